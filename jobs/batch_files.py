"""The files of a batch's output and error lines, written from its job's results.

A file is written once: whoever comes after a crash, or is late, finds it and takes it as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from jobs.errors import Exists
from jobs.filing import Batch, FileKind, StoredFile, result_file_id
from jobs.model import Job, Value
from jobs.ports.objects import Objects
from jobs.ports.results import Results

RESULTS = "/results"
"""The folder of a batch's job beside that of its files."""
ANSWERED = frozenset({"ok", "truncated", "refused"})
"""Outcomes whose rows are in the output file; all others are in the error file."""
_FEW_ROWS = 256
"""The lines of so many are made in memory and written with those of others."""
_HELD_BYTES = 8 << 20
_READ_BYTES = 1 << 20


class Wanted(NamedTuple):
    """which: "output" or "error" lines. uri: of the file that they become."""

    job: Job
    which: str
    uri: str


class Written(NamedTuple):
    """size: bytes; checksum: sha256, hex."""

    size: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFiles(Value):
    """Memory: eight megabytes, and the lines of one small job."""

    objects: Objects
    results: Results

    def write(self, wanted: Sequence[Wanted]) -> list[Written]:
        """What each file is, in order; those that are not there are written."""
        found: dict[str, Written] = {}
        held: list[tuple[str, bytes]] = []
        for one in wanted:
            if not is_small(one.job):
                found[one.uri] = self._large(one)
                continue
            held.append((one.uri, b"".join(self.results.jsonl(one.job, which=one.which))))
            if sum(len(data) for _, data in held) > _HELD_BYTES:
                found |= self._put(held)
                held = []
        found |= self._put(held)
        return [found[one.uri] for one in wanted]

    def _put(self, items: Sequence[tuple[str, bytes]]) -> dict[str, Written]:
        try:
            self.objects.put_many(items)
        except Exists:  # of another release, which wrote the lines in another way: it was first
            if len(items) > 1:
                return {uri: found for item in items for uri, found in self._put([item]).items()}
            return {items[0][0]: self._facts(items[0][0])}
        return {uri: Written(len(data), hashlib.sha256(data).hexdigest()) for uri, data in items}

    def _large(self, one: Wanted) -> Written:
        if self.objects.facts(one.uri) is not None:
            return self._facts(one.uri)
        local = self.objects.scratch(one.uri)
        try:
            found = _save(self.results.jsonl(one.job, which=one.which), local)
            self.objects.put_file_if_absent(one.uri, local)
        except Exists:  # as in `_put`
            return self._facts(one.uri)
        finally:
            local.unlink(missing_ok=True)
        return found

    def _facts(self, uri: str) -> Written:
        size, digest = 0, hashlib.sha256()
        with self.objects.open(uri) as file:
            while chunk := file.read(_READ_BYTES):
                size += len(chunk)
                digest.update(chunk)
        return Written(size, digest.hexdigest())


def files_of(batch: Batch, job: Job, now: float) -> Iterator[tuple[StoredFile, Wanted]]:
    """Of those lines that there are; size and checksum are not known yet."""
    answered = sum(n for outcome, n in job.usage.outcomes.items() if outcome in ANSWERED)
    expires_s = batch.output_expires_s
    for which, lines in (("output", answered), ("error", job.usage.rows - answered)):
        if not lines:
            continue
        file_id = result_file_id(batch.id, which)
        uri = f"{job.spec.output.removesuffix(RESULTS)}/files/{file_id}.jsonl"
        file = StoredFile(
            id=file_id,
            tenant=batch.tenant,
            purpose=FileKind.OUTPUT,
            filename=f"{batch.id}_{which}.jsonl",
            uri=uri,
            size=0,
            checksum="",
            project=batch.project,
            creator=batch.creator,
            batch=batch.id,
            created_at=now,
            expires_at=None if expires_s is None else now + expires_s,
        )
        yield file, Wanted(job, which, uri)


def is_small(job: Job) -> bool:
    """Whether its files are written at once, in memory."""
    return job.total_rows <= _FEW_ROWS


def _save(lines: Iterator[bytes], path: Path) -> Written:
    size, digest = 0, hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for line in lines:
            file.write(line)
            digest.update(line)
            size += len(line)
    return Written(size, digest.hexdigest())
