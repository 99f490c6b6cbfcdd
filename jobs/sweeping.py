"""Which of the files that workers wrote may go: those that no lease can commit any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jobs.filing import StoredFile
from jobs.model import Job, TaskState, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnd(Value):
    """A task as a sweeper needs it.

    token: of the lease it has, or of the one that ended it. since: from then on no other token was good (seconds, the
    database's clock), None if the task was never leased. part: URI of its part on the manifest.
    """

    task: str
    state: TaskState
    token: str | None
    since: float | None
    part: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover(Value):
    """A file that may be one. task, token: of the lease that wrote it; "" where its name does not say."""

    uri: str
    size: int
    task: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead(Value):
    """A file to be deleted. since: when it became useless; why: in a few words. job, file: whose it is, or "".

    file: a stored file's id; its record goes after its bytes.
    """

    uri: str
    size: int
    job: str
    since: float
    why: str
    file: str = ""


def dead(
    found: Iterable[Leftover],
    leases: Mapping[str, LeaseEnd],
    *,
    job: Job,
    sealed: bool,
    now: float,
    older_than_s: float,
) -> Iterator[Dead]:
    """Those of a job's files that may go.

    `leases` must have been read *after* the files were listed: then every lease that wrote one of them is in it.
    sealed: the job's `_SUCCESS` is written, so nothing will be read below `_parts/` any more.
    """
    ended_at = job.finished_at if sealed else None
    for file in found:
        since, why = _since(file, leases.get(file.task), ended_at)
        if since is not None and now - since >= older_than_s:
            yield Dead(uri=file.uri, size=file.size, job=job.id, since=since, why=why)


def _since(file: Leftover, lease: LeaseEnd | None, ended_at: float | None) -> tuple[float | None, str]:
    if not file.task:
        return ended_at, "never finished, and its job has ended"
    if lease is None or lease.part == file.uri:
        return None, ""
    if not file.token:
        return ended_at, "its job is published"
    alive = lease.state is TaskState.LEASED and lease.token == file.token
    return None if alive else lease.since, "its lease is over, and it is not on the manifest"


def dead_file(file: StoredFile, reading: frozenset[str]) -> Dead | None:
    """A deleted or expired file, unless a job still reads it. reading: inputs of jobs that are not published yet.

    `reading` must have been read *after* the file was found dead: no job can have begun to read it since.
    """
    ends = [(file.deleted_at, "deleted by its tenant"), (file.expires_at, "expired")]
    told = [(at, why) for at, why in ends if at is not None]
    if not told or file.uri in reading:
        return None
    since, why = min(told)
    return Dead(uri=file.uri, size=file.size, job="", since=since, why=why, file=file.id)


def orphan(upload: Leftover, *, chosen_at: float, now: float, older_than_s: float) -> Dead | None:
    """Bytes of an upload without a record. chosen_at: when its id was; the upload may have taken long since."""
    if now - chosen_at < older_than_s:
        return None
    return Dead(uri=upload.uri, size=upload.size, job="", since=chosen_at, why="its upload never ended")
