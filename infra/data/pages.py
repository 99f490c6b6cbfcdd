"""The pages of a Parquet file by their headers, without decoding one: how large each gets, and what it can grow into.

A footer may say anything. What a reader sets memory aside for is in the page headers (Thrift's compact protocol, as
parquet-format's `PageHeader`), and a dictionary or shared prefixes let few bytes become many values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

DICTIONARY_PAGE = 2
_DATA_V1, _DATA_V2 = 5, 8  # fields of PageHeader
_DICTIONARY_ENCODINGS = frozenset({2, 8})  # PLAIN_DICTIONARY, RLE_DICTIONARY
_SHARED_PREFIXES = 7  # DELTA_BYTE_ARRAY
_HEADER_BYTES, _MOST_HEADER_BYTES = 512, 1 << 20
_MOST_VARINT = 10
_MOST_DEPTH = 16
_SLACK_BYTES = 100
"""Some old writers left the dictionary page's header out of what they say a chunk takes."""


class BadPage(Exception):
    """A page header that cannot be read, or says what cannot be; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """at: where its bytes begin, behind its header. size, decoded: bytes as stored and as unpacked.

    grows: a value of it can take more bytes than the page has for it: as many as the dictionary (`dictionary`) or as
    the page (`prefix`); "" where it cannot.
    """

    kind: int
    at: int
    size: int
    decoded: int
    values: int
    grows: str = ""


def pages_of(file: BinaryIO, chunk: pq.ColumnChunkMetaData, size: int) -> Iterator[Page]:
    """Of one column chunk, until it has as many values as it says. size: of the file. Raises BadPage."""
    at = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    end, left = min(size, at + chunk.total_compressed_size + _SLACK_BYTES), chunk.num_values
    while left > 0:
        if not 0 <= at < end:
            raise BadPage(f"{left} of its values are not there")
        page = _page(file, at, size)
        yield page
        if page.kind != DICTIONARY_PAGE:
            left -= page.values
        at = page.at + page.size


def _page(file: BinaryIO, at: int, size: int) -> Page:
    wanted = _HEADER_BYTES
    while True:
        file.seek(at)
        data = file.read(min(wanted, size - at))
        try:
            return _read_header(data, at, size)
        except IndexError:
            if wanted >= _MOST_HEADER_BYTES or wanted > len(data):
                raise BadPage(f"the page header at byte {at} does not end") from None
            wanted *= 16


def _read_header(data: bytes, at: int, size: int) -> Page:
    reader = _Compact(data)
    found = reader.struct(0)
    kind, decoded, stored = (found.get(number) for number in (1, 2, 3))
    if not (isinstance(kind, int) and isinstance(decoded, int) and isinstance(stored, int)):
        raise BadPage(f"the page header at byte {at} lacks its sizes")
    start = at + reader.at
    if decoded < 0 or stored < 0 or start + stored > size:
        raise BadPage(f"the page at byte {at} says that it has {stored} bytes, {decoded} unpacked")
    inner = found.get(_DATA_V1) or found.get(_DATA_V2) or found.get(7)
    details = inner if isinstance(inner, dict) else {}
    values, encoding = details.get(1, 0), details.get(4 if _DATA_V2 in found else 2)
    if not isinstance(values, int) or values < 0 or isinstance(encoding, dict):
        raise BadPage(f"the page at byte {at} says what its values are in a way that makes no sense")
    grows = ""
    if kind != DICTIONARY_PAGE:
        grows = "dictionary" if encoding in _DICTIONARY_ENCODINGS else "prefix" if encoding == _SHARED_PREFIXES else ""
    return Page(kind=kind, at=start, size=stored, decoded=decoded, values=values, grows=grows)


def longest_value(file: BinaryIO, page: Page, compression: str) -> int:
    """Bytes of the longest value of a dictionary of byte arrays; its page's own size where it cannot be read so."""
    file.seek(page.at)
    data = file.read(page.size)
    try:
        plain = data if compression == "UNCOMPRESSED" else pa.Codec(compression.lower()).decompress(data, page.decoded)
    except (pa.ArrowException, OSError, ValueError):
        return page.decoded
    view, at, longest = memoryview(plain), 0, 0
    while at + 4 <= len(view):
        (length,) = struct.unpack_from("<I", view, at)
        longest, at = max(longest, length), at + 4 + length
    return min(longest, page.decoded)


Fields = dict[int, "int | Fields | None"]


class _Compact:
    """Reads a struct of Thrift's compact protocol: whole numbers and structs, everything else skipped.

    Raises IndexError where the bytes end, BadPage for what is no such struct.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int) -> Fields:
        """Field → value; None for what was skipped."""
        if depth > _MOST_DEPTH:
            raise BadPage("a page header is nested too deeply")
        found: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else _signed(self._varint())
            found[number] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> int | Fields | None:
        if kind in {1, 2}:  # true, false: in the head itself
            return 2 - kind
        if kind in {4, 5, 6}:
            return _signed(self._varint())
        if kind == 12:
            return self.struct(depth + 1)
        self._skip(kind, depth)
        return None

    def _skip(self, kind: int, depth: int) -> None:
        if kind in {3, 7, 8}:
            self._forward({3: 1, 7: 8}.get(kind) or self._varint())
        elif kind in {9, 10}:
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            self._items(count, [head & 15], depth)
        elif kind == 11:
            count = self._varint()
            kinds = self._byte() if count else 0
            self._items(count, [kinds >> 4, kinds & 15], depth)
        else:
            raise BadPage(f"a page header has a field of type {kind}")

    def _items(self, count: int, kinds: list[int], depth: int) -> None:
        if count > len(self._data):
            raise IndexError
        for _ in range(count):
            for kind in kinds:
                if kind in {1, 2}:
                    self._byte()
                else:
                    self._value(kind, depth + 1)

    def _varint(self) -> int:
        value = 0
        for place in range(_MOST_VARINT):
            byte = self._byte()
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value
        raise BadPage("a page header has a number that does not end")

    def _byte(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        return byte

    def _forward(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise IndexError


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)
