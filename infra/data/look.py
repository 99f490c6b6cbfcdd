"""The first look at a tenant's Parquet: asks a process of its own, which may take so much memory and so long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa

from infra.cores import all_cores
from infra.data.bounds import GIB, MIB, ParquetBounds
from infra.data.schema import load_schema
from infra.engines.frames import Frame, FrameReader, encode_frame
from infra.objects.local import scheme_of
from jobs.errors import BadInput, StorageFull
from jobs.model import InputFile, Value
from jobs.ports.objects import ObjectFacts, Objects

_RECEIVE_BYTES = 1 << 20
_MOST_READ_BYTES = 64 * MIB
_MOST_ANSWER_BYTES = 256 * MIB
"""Of one frame: a child that has been taken over must not fill this process either."""
_PER_S = 50 * MIB
"""Bytes of its files for which a look is given a second more."""
_NONSENSE = "it makes its reader say what makes no sense"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Of the environment: no credentials."""
_PLAIN_MEMORY = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
"""Other allocators reserve a gigabyte of addresses at their first use, which the bound would count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookPolicy(Value):
    """memory_bytes: beyond what a process takes that has looked at nothing. timeout_s: and more for large files."""

    memory_bytes: int = 1024 * MIB
    timeout_s: float = 60.0
    bounds: ParquetBounds = ParquetBounds()

    @classmethod
    def of(cls, *, memory_mib: int, timeout_s: float, rows: int, columns: int, gib: int) -> LookPolicy:
        """As the settings say it."""
        bounds = ParquetBounds(rows=rows, columns=columns, bytes=gib * GIB)
        return cls(memory_bytes=memory_mib * MIB, timeout_s=timeout_s, bounds=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """scratch: a local folder for buckets of ids. Safe to use from several threads: a process a look."""

    objects: Objects
    scratch: Path
    policy: LookPolicy = LookPolicy()

    def look(
        self, source: str, found: Sequence[ObjectFacts], id_column: str | None
    ) -> tuple[list[InputFile], pa.Schema]:
        """The files as they go on the frozen list, and the schema over them; their ids checked, if there are any.

        Raises BadInput for whatever the files are or do; what the object store raises; StorageFull.
        """
        with _Child(self.policy.memory_bytes) as child:
            child.put(
                {
                    "source": source,
                    "files": [asdict(facts) for facts in found],
                    "far": any(scheme_of(facts.uri) == "s3" for facts in found),
                    "id": id_column,
                    "scratch": str(self.scratch),
                    "bounds": asdict(self.policy.bounds),
                }
            )
            until = time.monotonic() + self.policy.timeout_s + sum(facts.size for facts in found) / _PER_S
            return self._serve(child, source, found, until)

    def _serve(
        self, child: _Child, source: str, found: Sequence[ObjectFacts], until: float
    ) -> tuple[list[InputFile], pa.Schema]:
        """Give it the bytes that it asks for, until it knows."""
        opened: tuple[int, BinaryIO] | None = None
        try:
            while True:
                head, tail = child.get(until, source)
                if "read" not in head:
                    return _answer(head, tail, source, found)
                number, at, size = (int(head[name]) for name in ("read", "at", "size"))
                if opened is None or opened[0] != number:
                    if opened is not None:
                        opened[1].close()
                    opened = number, self.objects.open(found[number].uri)
                opened[1].seek(at)
                child.put({}, opened[1].read(min(max(0, size), _MOST_READ_BYTES)))
        finally:
            if opened is not None:
                opened[1].close()


def _answer(
    head: Mapping[str, Any], tail: bytes, source: str, found: Sequence[ObjectFacts]
) -> tuple[list[InputFile], pa.Schema]:
    """Which files they are we know; of what is in them the child is believed, as far as it makes sense."""
    if "full" in head:
        raise StorageFull(where=head["full"])
    if "refused" in head:
        named, reason = head["refused"]
        raise BadInput(source=str(named), reason=str(reason))
    try:
        files = [_file(facts, told) for facts, told in zip(found, head["files"], strict=True)]
        return files, load_schema(tail)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise BadInput(source=source, reason=_NONSENSE) from error


def _file(facts: ObjectFacts, told: Mapping[str, Any]) -> InputFile:
    rows, sizes = (tuple(int(n) for n in told[name]) for name in ("row_groups", "row_group_bytes"))
    if len(rows) != len(sizes) or min((*rows, *sizes), default=0) < 0:
        raise ValueError(_NONSENSE)
    return InputFile(
        uri=facts.uri,
        size=facts.size,
        stamp=facts.stamp,
        rows=sum(rows),
        first_row=0,
        row_groups=rows,
        row_group_bytes=sizes,
    )


class _Child:
    """One process that looks. It ends with the `with`, whatever it is doing."""

    def __init__(self, memory_bytes: int) -> None:
        self._sock, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "infra.data.look_child", str(theirs.fileno()), str(memory_bytes)]
        try:
            with all_cores():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**_PLAIN_MEMORY, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            self._sock.close()
            raise
        finally:
            theirs.close()
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._heard = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()
        self._process.kill()
        self._process.wait()

    def put(self, head: dict[str, Any], tail: bytes = b"") -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died: the next `get` says so
            self._sock.sendall(encode_frame(head, tail))

    def get(self, until: float, source: str) -> Frame:
        """What it says next. Raises BadInput where it died, or took too long."""
        while not self._frames:
            left = until - time.monotonic()
            self._sock.settimeout(max(0.001, left))
            try:
                data = self._sock.recv(_RECEIVE_BYTES) if left > 0 else None
            except TimeoutError:
                data = None
            except ConnectionResetError:
                data = b""
            if data is None:
                raise BadInput(source=source, reason="to look at it takes too long")
            if not data:
                raise BadInput(source=source, reason="it brings its reader down")
            self._heard += len(data)
            if self._heard > _MOST_ANSWER_BYTES:
                raise BadInput(source=source, reason=_NONSENSE)
            try:
                self._frames = self._reader.feed(data)
            except ValueError:
                raise BadInput(source=source, reason=_NONSENSE) from None
        self._heard = 0
        return self._frames.pop(0)
