"""The first look at a tenant's Parquet, in a process of its own: `python -m infra.data.look_child SOCKET MEMORY`.

It has no credentials and opens nothing: every byte comes from the parent, which knows the files. What a file does to
its reader (a gigabyte out of a kilobyte, a crash in a decoder) happens here, within MEMORY bytes, and ends here.

Frames (`infra/engines/frames.py`) from here: `{"read": FILE, "at": N, "size": N}`, answered with the bytes; in the end
`{"files": …}` with the schema, or `{"refused": …}`.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from infra.data.bounds import Measure, ParquetBounds, check_footer_size, check_shape
from infra.data.inputs import Inputs, check_ids, placed
from infra.data.parquet import facts_of, open_parquet
from infra.data.schema import dump_schema
from infra.data.unify import Unifier
from infra.engines.frames import Frame, FrameReader, encode_frame
from infra.objects.s3_reader import RangeFile, RangeReader, Seekable
from jobs.errors import BadInput, NightmillError, StorageFull
from jobs.model import InputFile
from jobs.ports.objects import ObjectFacts

_NEAR_BYTES = 64 << 10
_RECEIVE_BYTES = 1 << 20


class _Line:
    """The socket: a question, its answer."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._frames: Iterator[Frame] = iter(())

    def get(self) -> Frame:
        while True:
            for frame in self._frames:
                return frame
            data = self._sock.recv(_RECEIVE_BYTES)
            if not data:
                sys.exit(0)  # nobody waits for an answer any more
            self._frames = iter(self._reader.feed(data))

    def put(self, head: dict[str, Any], tail: bytes = b"") -> None:
        self._sock.sendall(encode_frame(head, tail))

    def ask(self, head: dict[str, Any]) -> bytes:
        self.put(head)
        return self.get()[1]


class _Files:
    """As much of `jobs.ports.objects.Objects` as is needed to read the given files."""

    def __init__(self, line: _Line, files: Sequence[ObjectFacts], *, far: bool) -> None:
        self._line = line
        self._files = {facts.uri: (number, facts.size) for number, facts in enumerate(files)}
        self._far = far

    def open(self, uri: str) -> BinaryIO:
        number, size = self._files[uri]

        def fetch(start: int, stop: int) -> bytes:
            return self._line.ask({"read": number, "at": start, "size": stop - start})

        return RangeFile(RangeReader(fetch, size)) if self._far else io.BufferedReader(_Near(fetch, size), _NEAR_BYTES)


class _Near(Seekable):
    """What costs no request: nothing is read ahead."""

    def __init__(self, fetch: Any, size: int) -> None:
        super().__init__(size)
        self._fetch = fetch

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]  # any writable buffer
        stop = min(self._at + min(len(buffer), _RECEIVE_BYTES), self._size)
        if stop <= self._at:
            return 0
        data = self._fetch(self._at, stop)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def look(line: _Line, asked: Mapping[str, Any]) -> None:
    """Look at the files; tell what they are. Raises BadInput, StorageFull."""
    bounds = ParquetBounds(**asked["bounds"])
    found = [ObjectFacts(**facts) for facts in asked["files"]]
    objects: Any = _Files(line, found, far=asked["far"])
    unifier, files = Unifier(), []
    for facts in found:
        file, schema = _one(objects, facts, bounds, far=asked["far"])
        unifier.add(facts.uri, schema)
        files.append(file)
        if sum(known.rows for known in files) > bounds.rows:
            raise BadInput(source=asked["source"], reason=f"it has more than {bounds.rows:,} rows")
    inputs = Inputs(source=asked["source"], files=placed(files), format="parquet", schema=unifier.schema)
    if asked["id"] is not None:
        check_ids(objects, inputs, asked["id"], scratch=Path(asked["scratch"]))
    line.put({"files": [asdict(file) for file in inputs.files]}, dump_schema(inputs.schema))


def _one(objects: Any, facts: ObjectFacts, bounds: ParquetBounds, *, far: bool) -> tuple[InputFile, pa.Schema]:
    with objects.open(facts.uri) as source:
        check_footer_size(facts.uri, source, facts.size, bounds)
    with open_parquet(objects, facts.uri) as reader, objects.open(facts.uri) as source:
        check_shape(facts.uri, reader.metadata, bounds)
        file, schema = facts_of(reader, facts)
        Unifier().add(facts.uri, schema)
        sizes = Measure(facts.uri, source, facts.size, far=far, bounds=bounds).groups(reader)
    return file.evolve(row_group_bytes=sizes), schema


def main(number: int, memory: int) -> None:
    """Answer one question, within the memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    line = _Line(socket.socket(fileno=number))
    asked = line.get()[0]
    with contextlib.suppress(ValueError):  # a hard limit below it: what is bounded more tightly is bounded
        resource.setrlimit(resource.RLIMIT_AS, (_mapped() + memory,) * 2)
    source = asked["source"]
    try:
        look(line, asked)
    except StorageFull as error:
        line.put({"full": str(error.data.get("where", ""))})
    except BadInput as error:
        line.put({"refused": [str(error.data["source"]), str(error.data["reason"])]})
    except (MemoryError, pa.ArrowMemoryError):
        line.put({"refused": [source, f"to look at it takes more than {memory >> 20} MiB of memory"]})
    except (NightmillError, pa.ArrowException, OSError, ValueError, RecursionError, OverflowError) as error:
        words = " ".join(str(error).split())[:300]
        line.put({"refused": [source, f"it cannot be read: {words or type(error).__name__}"]})


def _mapped() -> int:
    """Bytes of address space that this process has already."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
