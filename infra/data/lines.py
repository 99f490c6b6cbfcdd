"""JSONL in OpenAI batch form: every line checked once at submit, and found again later without reading the file.

The check notes stretches of lines with their bytes (`InputFile.row_groups`, `row_group_bytes`), so that a reader seeks
to a stretch. Blank lines belong to the stretch they stand in and are no rows.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

import orjson

from infra.data.bodies import SORTED, BadBody, Body, Rules, check_model
from infra.data.endpoints import ENDPOINTS, read_body
from jobs.errors import BadInput
from jobs.filing import LineError
from jobs.model import InputFile
from jobs.ports.objects import ObjectFacts, Objects

STRETCH_LINES = 4096
STRETCH_BYTES = 1 << 20
MAX_LINE_BYTES = 32 << 20
MAX_FAULTS = 20
_FIELDS = ("custom_id", "method", "url", "body")


class Faults:
    """Collects what is wrong with a file's lines, the first MAX_FAULTS of it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lines: list[LineError] = []

    def add(self, line: int, fault: BadBody) -> None:
        self._lines.append(LineError(code=fault.code, message=str(fault), line=line, param=fault.param))
        if len(self._lines) >= MAX_FAULTS:
            self.check()

    def check(self) -> None:
        """Raises BadInput if there was any; its `lines` are what is wrong, line by line."""
        if self._lines:
            texts = [f"line {found.line}: {found.message}" for found in self._lines]
            more = ["(there may be more)"] * (len(texts) >= MAX_FAULTS)
            raise BadInput(source=self._uri, reason="; ".join(texts + more), lines=tuple(self._lines))


def raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends; one past MAX_LINE_BYTES comes cut to one byte more than that, then its rest is skipped."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            while (rest := file.readline(STRETCH_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield line


class LineReader:
    """Reads lines against the rules; the first one says what the others' `url` must be, where the rules do not.

    more: whether any line's answer has more to it than one text or one vector. dimensions: that embeddings asked for,
    None for the model's own.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.more = False
        self.dimensions: set[int | None] = set()

    def read(self, text: bytes) -> tuple[str, Body]:
        """custom_id and request of one line. Raises BadBody."""
        entry = _parse(text)
        custom_id = _frame(entry)
        url = entry["url"]
        if not isinstance(url, str) or url not in ENDPOINTS or (self.rules.endpoint and url != self.rules.endpoint):
            known = f"{self.rules.endpoint}, as the others" if self.rules.endpoint else f"one of {', '.join(ENDPOINTS)}"
            msg = f"`url` must be {known}, not {url!r}"
            raise BadBody(msg, code="invalid_url", param="url")
        if not self.rules.endpoint:
            self.rules = replace(self.rules, endpoint=url)
        body = read_body(entry["body"], self.rules)
        self.more = self.more or body.more
        self.dimensions.add(body.dimensions)
        return custom_id, body


def check_lines(
    objects: Objects, found: ObjectFacts, *, reader: LineReader, note_id: Callable[[str, int], None]
) -> InputFile:
    """Check every line of a file. note_id: is told each custom_id and its line number (from 1).

    Raises BadInput naming up to MAX_FAULTS lines.
    """
    faults = Faults(found.uri)
    stretches = _Stretches()
    with objects.open(found.uri) as file:
        for number, line in enumerate(raw_lines(file), start=1):
            text = _bare(line, number)
            stretches.add(len(line), is_row=bool(text))
            if not text:
                continue
            try:
                custom_id, _ = reader.read(text)
            except BadBody as error:
                faults.add(number, error)
            else:
                note_id(custom_id, number)
    faults.check()
    rows, sizes = stretches.close()
    return InputFile(
        uri=found.uri,
        size=found.size,
        stamp=found.stamp,
        rows=sum(rows),
        first_row=0,
        row_groups=tuple(rows),
        row_group_bytes=tuple(sizes),
    )


def first_model(objects: Objects, uri: str) -> str:
    """The model that the first request of a JSONL file asks for. Raises BadInput, with `lines`."""
    faults = Faults(uri)
    with objects.open(uri) as file:
        for number, line in enumerate(raw_lines(file), start=1):
            if text := _bare(line, number):
                try:
                    entry = _parse(text)
                    body = entry.get("body")
                    check_model(body.get("model") if isinstance(body, dict) else None, None)
                    return str(entry["body"]["model"])
                except BadBody as error:
                    faults.add(number, error)
                faults.check()
    nothing = LineError(code="empty_file", message="the file has no requests")
    raise BadInput(source=uri, reason="it has no rows", lines=(nothing,))


class _Stretches:
    def __init__(self) -> None:
        self._rows: list[int] = []
        self._bytes: list[int] = []
        self._open_rows = self._open_bytes = 0

    def add(self, size: int, *, is_row: bool) -> None:
        if self._open_rows and (self._open_rows >= STRETCH_LINES or self._open_bytes >= STRETCH_BYTES):
            self._cut()
        self._open_rows += is_row
        self._open_bytes += size

    def _cut(self) -> None:
        self._rows.append(self._open_rows)
        self._bytes.append(self._open_bytes)
        self._open_rows = self._open_bytes = 0

    def close(self) -> tuple[list[int], list[int]]:
        if self._open_bytes:
            self._cut()
        return self._rows, self._bytes


def _bare(line: bytes, number: int) -> bytes:
    """Without its end and, on the first line, without a byte order mark."""
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    return line.strip(b" \t\r\n")


def _frame(entry: dict[str, Any]) -> str:
    """The custom_id of a line that has what a line must have. Raises BadBody."""
    missing = [f"`{name}`" for name in _FIELDS if name not in entry]
    if missing:
        msg = f"{', '.join(missing)} is missing"
        raise BadBody(msg, code="missing_required_parameter", param=missing[0].strip("`"))
    extra = sorted(set(entry).difference(_FIELDS))
    if extra:
        msg = f"unknown field {', '.join(extra)}"
        raise BadBody(msg, code="unknown_parameter", param=extra[0])
    custom_id = entry["custom_id"]
    if not isinstance(custom_id, str) or not custom_id:
        msg = f"`custom_id` must be a text that is not empty, not {custom_id!r}"
        raise BadBody(msg, code="invalid_custom_id", param="custom_id")
    if entry["method"] != "POST":
        msg = f"`method` must be POST, not {entry['method']!r}"
        raise BadBody(msg, code="invalid_method", param="method")
    return custom_id


def _parse(text: bytes) -> dict[str, Any]:
    if len(text) > MAX_LINE_BYTES:
        msg = f"it is longer than {MAX_LINE_BYTES >> 20} MiB"
        raise BadBody(msg, code="line_too_long")
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        try:
            text.decode()
        except UnicodeDecodeError as fault:
            msg = f"byte {fault.start} is not valid UTF-8"
            raise BadBody(msg, code="invalid_json_line") from None
        msg = f"it is not JSON: {error.msg}, at its character {error.colno}"
        raise BadBody(msg, code="invalid_json_line") from None
    if not isinstance(entry, dict):
        msg = "it is not a JSON object; each line is one request"
        raise BadBody(msg, code="invalid_json_line")
    return entry


def stretch_rows(file: BinaryIO, first_line: int, size: int) -> Iterator[tuple[str, str]]:
    """(custom_id, body as JSON with sorted keys) of the lines in the next `size` bytes.

    first_line: 1 at the start of the file (a byte order mark may stand there), anything else elsewhere.
    """
    left = size
    for number, line in enumerate(raw_lines(file), start=first_line):
        left -= len(line)
        text = _bare(line, number)
        if text:
            entry = orjson.loads(text)
            yield entry["custom_id"], orjson.dumps(entry["body"], option=SORTED).decode()
        if left <= 0:
            return
