"""Frames on a byte stream: lengths, a JSON head, and an optional binary tail (embeddings).

`u32 head length, u32 tail length, head, tail`, little-endian. JSON and raw floats only: nothing that is read is ever
executed, as a pickle would be.
"""

from __future__ import annotations

import struct
from typing import Any

import orjson

_LENGTHS = struct.Struct("<II")
MAX_FRAME_BYTES = 1 << 30
"""A length beyond this is a stream that lost its place, not a frame."""

Frame = tuple[dict[str, Any], bytes]


def encode_frame(head: dict[str, Any], tail: bytes = b"") -> bytes:
    """One frame. Raises orjson.JSONEncodeError when the head holds text that is not valid Unicode."""
    body = orjson.dumps(head)
    return b"".join((_LENGTHS.pack(len(body), len(tail)), body, tail))


class FrameReader:
    """Cuts a byte stream into frames, whatever the sizes in which the bytes arrive. max_bytes: of a frame."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. Raises ValueError when the stream cannot be one of frames."""
        self._buffer += data
        frames: list[Frame] = []
        at = 0
        with memoryview(self._buffer) as view:
            while len(view) - at >= _LENGTHS.size:
                head_size, tail_size = _LENGTHS.unpack_from(view, at)
                start = at + _LENGTHS.size
                middle, end = start + head_size, start + head_size + tail_size
                if end - start > self.max_bytes:
                    raise ValueError(f"not a frame: {end - start} bytes long")
                if len(view) < end:
                    break
                frames.append((orjson.loads(view[start:middle]), bytes(view[middle:end])))
                at = end
        del self._buffer[:at]
        return frames
