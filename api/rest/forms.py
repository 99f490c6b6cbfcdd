"""A multipart form with one file, read as it comes: memory does not follow the file's size."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from fastapi.concurrency import run_in_threadpool
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from jobs.errors import BadInput, StorageFull, Unavailable

_FLUSH_BYTES = 1 << 20
_SHORT_BYTES = 64 << 10
"""A file of no more is kept in memory."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MOST_FIELDS = 32
_FIELD_BYTES = 4096
_HEAD_BYTES = 16


@dataclass(slots=True, kw_only=True)
class Form:
    """What came. head: the first bytes of the file; checksum: sha256, hex. short: the file, if it was not written."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    head: bytes = b""
    size: int = 0
    checksum: str = ""
    short: bytes | None = None


class Local:
    """A local file that is made when there is something to write, and gone at the end. place: names it."""

    def __init__(self, place: Callable[[], Path]) -> None:
        self._place = place
        self._file: BinaryIO | None = None
        self.path: Path | None = None

    def write(self, data: bytes) -> None:
        if self._file is None:
            self.path = self._place()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("wb")
        self._file.write(data)

    def close(self) -> None:
        """It is whole now."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with suppress(OSError):  # what could not be written is thrown away
                self.close()
        finally:
            if self.path is not None:
                self.path.unlink(missing_ok=True)


class _Reader:
    """Callbacks of the parser: small fields into memory, the file's bytes into a buffer that the caller empties."""

    def __init__(self) -> None:
        self.form = Form()
        self.buffer = bytearray()
        self.ended = False
        self._name = ""
        self._is_file = False
        self._header = self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._text = bytearray()

    def on_part_begin(self) -> None:
        self._headers, self._text = {}, bytearray()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name = options.get(b"name", b"").decode(errors="replace")
        self._is_file = self._name == "file"
        if self._is_file:
            if self.form.filename is not None:
                raise BadInput(source="file", reason="a request takes one file")
            self.form.filename = options.get(b"filename", b"upload").decode(errors="replace")
        elif len(self.form.fields) >= _MOST_FIELDS:
            raise BadInput(source="body", reason=f"a form has at most {_MOST_FIELDS} fields")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.buffer += data[start:end]
            return
        self._text += data[start:end]
        if len(self._text) > _FIELD_BYTES:
            raise BadInput(source="body", reason=f"the field {self._name[:64]!r} is longer than {_FIELD_BYTES} bytes")

    def on_part_end(self) -> None:
        if not self._is_file:
            self.form.fields[self._name] = self._text.decode(errors="replace")

    def on_end(self) -> None:
        self.ended = True


async def read_form(content_type: str, body: AsyncIterator[bytes], file: Local) -> Form:
    """Write the part `file` unless it is short, and keep the other fields. Raises BadInput, Unavailable."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise BadInput(source="body", reason="send it as multipart/form-data with the fields purpose and file")
    reader = _Reader()
    digest = hashlib.sha256()
    try:
        callbacks = {name: getattr(reader, name) for name in dir(reader) if name.startswith("on_")}
        parser = MultipartParser(options[b"boundary"], callbacks)  # type: ignore[arg-type]  # a TypedDict of these
        async for chunk in body:
            parser.write(chunk)
            if len(reader.buffer) >= _FLUSH_BYTES:
                await run_in_threadpool(_flush, reader, file, digest)
        if file.path is not None or len(reader.buffer) > _SHORT_BYTES:
            await run_in_threadpool(_flush, reader, file, digest)
            file.close()
        else:
            reader.form.short = _taken(reader, digest)
        parser.finalize()
    except FormParserError as error:
        raise BadInput(source="body", reason=f"it is no multipart form: {error}") from error
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(where="uploads") from error
        raise Unavailable(reason=f"an upload cannot be written: {error}") from error
    if not reader.ended:
        raise BadInput(source="body", reason="the form ends before its last boundary")
    reader.form.checksum = digest.hexdigest()
    return reader.form


def _flush(reader: _Reader, file: Local, digest: hashlib._Hash) -> None:
    file.write(_taken(reader, digest))


def _taken(reader: _Reader, digest: hashlib._Hash) -> bytes:
    """What has come of the file since the last time, noted in the form."""
    chunk = bytes(reader.buffer)
    reader.buffer.clear()
    reader.form.head = (reader.form.head + chunk[:_HEAD_BYTES])[:_HEAD_BYTES]
    reader.form.size += len(chunk)
    digest.update(chunk)
    return chunk
