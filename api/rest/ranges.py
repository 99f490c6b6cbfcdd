"""Bytes of an object, whole or by Range (RFC 9110), a mebibyte at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from fastapi.responses import JSONResponse, Response, StreamingResponse

from api.rest.errors import body_of
from jobs.errors import Unavailable

_CHUNK = 1 << 20
_SHORT_BYTES = 64 << 10
"""Read before the answer begins: a stream costs more than so many bytes."""
_RANGE = re.compile(r"bytes=(\d{0,30})-(\d{0,30})", re.ASCII)


def part_of(header: str | None, size: int) -> tuple[int, int] | None:
    """(start, stop) of the one range that is asked for; None for the whole. Raises ValueError where it lies outside.

    Several ranges, other units and nonsense count as not asked for, as the RFC allows.
    """
    found = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if not found or found[1] == found[2] == "":
        return None
    first, last = found[1], found[2]
    if first == "":
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size or (first == "" and int(last) == 0):
        raise ValueError(f"bytes */{size}")
    return start, stop


class OctetStream(Response):
    """For the document: bytes."""

    media_type = "application/octet-stream"


def outside(error: ValueError) -> Response:
    """The answer to a range that cannot be served. error: of `part_of`."""
    content = body_of("The range lies outside the file.", kind="invalid_request_error", code="bad_range")
    return JSONResponse(content, 416, headers={"content-range": str(error)})


def ranged(chunks: Iterator[bytes], size: int, asked: str, media_type: str) -> Response:
    """A range of what is made as it is read: what lies before it is made and dropped."""
    try:
        part = part_of(asked, size)
    except ValueError as error:
        return outside(error)
    start, stop = part or (0, size)
    headers = {"accept-ranges": "bytes", "content-length": str(stop - start)}
    if part is not None:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    return StreamingResponse(
        _between(chunks, start, stop), 200 if part is None else 206, headers=headers, media_type=media_type
    )


def _between(chunks: Iterator[bytes], start: int, stop: int) -> Iterator[bytes]:
    at = 0
    for chunk in chunks:
        if at >= stop:
            return
        if at + len(chunk) > start:
            yield chunk[max(0, start - at) : stop - at]
        at += len(chunk)


def stream(file: BinaryIO, size: int, asked: str | None, headers: dict[str, str], media_type: str) -> Response:
    """The file's bytes, or those of the range; the file is closed at the end. Called in a thread.

    Raises Unavailable.
    """
    headers = {"accept-ranges": "bytes", **headers}
    try:
        part = part_of(asked, size)
    except ValueError as error:
        file.close()
        return outside(error)
    start, stop = part or (0, size)
    if part is not None:
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    status = 200 if part is None else 206
    if stop - start <= _SHORT_BYTES:
        content = b"".join(_chunks(file, start, stop))
        if len(content) != stop - start:
            raise Unavailable(reason=f"an object has {start + len(content)} bytes where its record has {size}")
        return Response(content, status, headers=headers, media_type=media_type)
    headers["content-length"] = str(stop - start)
    return StreamingResponse(_chunks(file, start, stop), status, headers=headers, media_type=media_type)


def _chunks(file: BinaryIO, start: int, stop: int) -> Iterator[bytes]:
    with file:
        file.seek(start)
        while start < stop and (chunk := file.read(min(_CHUNK, stop - start))):
            start += len(chunk)
            yield chunk
