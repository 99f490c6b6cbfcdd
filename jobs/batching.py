"""The keeper of batches: from an uploaded file to a job, and from the job's end to the files of its results.

Every step looks at what is there and goes on, so any process may take it, and whoever comes after a crash makes the
same job and the same files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import BadInput, BatchEnded, Broken, Conflict, Exists, NotFound, Refused, WrongState
from jobs.filing import (
    BATCH_KEY,
    Batch,
    BatchStatus,
    FileKind,
    LineError,
    StoredFile,
    end_of,
    result_file_id,
    status_of,
    status_with,
)
from jobs.model import Job, JobState, Priority, Value
from jobs.naming import pool_behind
from jobs.pools import Pool
from jobs.ports.clock import Ids
from jobs.ports.intake import Intake, Models, SubmitRequest
from jobs.ports.objects import Objects
from jobs.ports.results import Results
from jobs.ports.store import Store
from jobs.submit import check, submit

_CANCELLABLE = frozenset({JobState.RUNNING, JobState.PAUSED})
_READ_BYTES = 1 << 20
_PAGE = 1000
_RESULTS = "/results"
_OURS = "The service failed at this batch. The operator's log has it under the batch's id."
ANSWERED = frozenset({"ok", "truncated", "refused"})
"""Outcomes whose rows are in the output file; all others are in the error file."""


Folder = Callable[[str, int | None], str]
"""URI of the folder of a tenant's own objects, for what has so many bytes; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPolicy(Value):
    """max_lines: requests that a batch may have, at most."""

    max_lines: int = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """`open_batches`, then `attend` to each. pools: what is served now. folder: see `Folder`."""

    store: Store
    intake: Intake
    models: Models
    objects: Objects
    results: Results
    ids: Ids
    pools: Callable[[], Sequence[Pool]]
    folder: Folder
    policy: KeepPolicy = KeepPolicy()

    def open_batches(self) -> Iterator[Batch]:
        """Those of all tenants with which there is something to do now, the oldest first."""
        page = self.store.open_batches(limit=_PAGE)
        while page:
            states = self.store.job_states([batch.job for batch in page if batch.job is not None])
            yield from [batch for batch in page if _to_do(batch, states.get(batch.job or ""))]
            page = self.store.open_batches(after=page[-1].id, limit=_PAGE)

    def attend(self, batch: Batch) -> Batch:
        """Bring a batch on as far as it goes now. Raises Unavailable and Broken; what is refused is in the batch."""
        if batch.job is None:
            batch = self._begin(batch)
        if batch.job is None or batch.status.terminal:
            return batch
        job = self.store.job(batch.job)
        if batch.cancel_asked and job.state in _CANCELLABLE:
            job = cancel_job(self.store, job)
        batch = self._note(batch, status_of(batch, job))
        return self._end(batch, job) if job.state.terminal else batch

    # ---- the beginning --------------------------------------------------------------------------

    def _begin(self, batch: Batch) -> Batch:
        """Find the job that it has already, or check its input and make one; what is wrong with the input ends it."""
        try:
            job = self.store.job_of_key(batch.tenant, _key_of(batch)) or self._submit(batch)
        except Conflict:  # another keeper made the job just now: the next look finds it
            return batch
        except Refused as error:
            return self._fail(batch, _faults(error))
        begun = batch.evolve(job=job.id, asked_model=job.spec.asked_model or job.spec.model)
        return self._note(begun, status_of(begun, job), anyway=True)

    def _submit(self, batch: Batch) -> Job:
        file = self.store.file(batch.input_file, batch.tenant)
        asked = self.intake.asked_model(file.uri)
        pool = self._pool(asked, batch.tenant)
        request = self._request(batch, file, asked, pool)
        checked = check(request, intake=self.intake, models=self.models, store=self.store, pool=pool)
        if checked.examined.total_rows > self.policy.max_lines:
            reason = f"it has {checked.examined.total_rows} requests; a batch may have {self.policy.max_lines}"
            raise BadInput(source=file.id, reason=reason, lines=(LineError(code="too_many_requests", message=reason),))
        return submit(checked, intake=self.intake, store=self.store, ids=self.ids, pool=pool.name)

    def _pool(self, asked: str, tenant: str) -> Pool:
        try:
            return pool_behind(asked, self.store.aliases(tenant), self.pools())
        except NotFound as error:
            line = LineError(code="model_not_found", message=error.sentence, line=1, param="body.model")
            raise NotFound(**error.data, lines=(line,)) from error

    def _request(self, batch: Batch, file: StoredFile, asked: str, pool: Pool) -> SubmitRequest:
        """Nothing pauses a batch but a person: who wrote for OpenAI's API does not know of `resume`."""
        expires_at = batch.expires_at
        return SubmitRequest(
            input=file.uri,
            foreign=True,
            model=pool.model,
            asked_model="" if asked == pool.model else asked,
            endpoint=batch.endpoint,
            output=f"{self.folder(batch.tenant, file.size)}{_RESULTS}",
            tenant=batch.tenant,
            project=batch.project,
            creator=batch.creator,
            priority=Priority.BATCH,
            order=batch.order,
            pause_on=None,
            deadline_s=None if expires_at is None else max(0.0, expires_at - self.store.now()),
            idempotency_key=_key_of(batch),
        )

    def give_up(self, batch: Batch) -> bool:
        """End a batch that we fail at again and again before it has a job; whether it is at its end.

        One that has a job is paid for: it goes on as soon as the fault is mended.
        """
        batch = self._again(batch)
        if batch.job is None and self.store.job_of_key(batch.tenant, _key_of(batch)) is None:
            batch = self._fail(batch, (LineError(code=Broken.code, message=_OURS),))
        return batch.status.terminal

    # ---- between --------------------------------------------------------------------------------

    def _note(self, batch: Batch, status: BatchStatus, *, anyway: bool = False) -> Batch:
        """Write down a status that is new, and when it was first seen."""
        if status is batch.status and not anyway:
            return batch
        times = {str(status): self.store.now(), **batch.times}
        return self.store.change_batch(batch.evolve(status=status, times=times)) or self._again(batch)

    def _fail(self, batch: Batch, errors: tuple[LineError, ...]) -> Batch:
        return self._note(batch.evolve(errors=errors, enqueued_tokens=0), BatchStatus.FAILED)

    def _again(self, batch: Batch) -> Batch:
        """As another process left it."""
        return self.store.batch(batch.id, batch.tenant)

    # ---- the end --------------------------------------------------------------------------------

    def _end(self, batch: Batch, job: Job) -> Batch:
        if batch.status.terminal:
            return batch
        answered = sum(n for outcome, n in job.usage.outcomes.items() if outcome in ANSWERED)
        output = self._file(batch, job, "output") if answered else None
        error = self._file(batch, job, "error") if answered < job.usage.rows else None
        done = batch.evolve(output_file=output, error_file=error, enqueued_tokens=0)
        return self._note(done, end_of(job))

    def _file(self, batch: Batch, job: Job, which: str) -> str:
        """The id of the file of these lines, written if it is not there."""
        file_id = result_file_id(batch.id, which)
        uri = f"{job.spec.output.removesuffix(_RESULTS)}/files/{file_id}.jsonl"
        size, checksum = self._written(job, which, uri)
        expires_s, now = batch.output_expires_s, self.store.now()
        self.store.add_file(
            StoredFile(
                id=file_id,
                tenant=batch.tenant,
                purpose=FileKind.OUTPUT,
                filename=f"{batch.id}_{which}.jsonl",
                uri=uri,
                size=size,
                checksum=checksum,
                project=batch.project,
                creator=batch.creator,
                batch=batch.id,
                created_at=now,
                expires_at=None if expires_s is None else now + expires_s,
            )
        )
        return file_id

    def _written(self, job: Job, which: str, uri: str) -> tuple[int, str]:
        """(size, sha256) of the object, which is written unless somebody did."""
        if self.objects.facts(uri) is None:
            local = self.objects.scratch(uri)
            try:
                found = _save(self.results.jsonl(job, which=which), local)
                self.objects.put_file_if_absent(uri, local)
            except Exists:  # of another release, which wrote the lines in another way: it was first
                return self._facts(uri)
            else:
                return found
            finally:
                local.unlink(missing_ok=True)
        return self._facts(uri)

    def _facts(self, uri: str) -> tuple[int, str]:
        size, digest = 0, hashlib.sha256()
        with self.objects.open(uri) as file:
            while chunk := file.read(_READ_BYTES):
                size += len(chunk)
                digest.update(chunk)
        return size, digest.hexdigest()


def _to_do(batch: Batch, state: JobState | None) -> bool:
    """Whether `attend` would change anything. state: of its job, if it has one."""
    if batch.job is None or state is None or state.terminal:
        return True
    return status_with(state) is not batch.status or (batch.cancel_asked and state in _CANCELLABLE)


def _save(lines: Iterator[bytes], path: Path) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for line in lines:
            file.write(line)
            digest.update(line)
            size += len(line)
    return size, digest.hexdigest()


def _key_of(batch: Batch) -> str:
    return f"{BATCH_KEY}{batch.id}"


def _faults(error: Refused) -> tuple[LineError, ...]:
    """By line where the input was read, else one for the file as a whole. `source` may be a place nobody shall see."""
    found: tuple[LineError, ...] = error.data.get("lines", ())
    message = str(error.data["reason"]) if isinstance(error, BadInput) else error.sentence
    return found or (LineError(code=error.code, message=message),)


def cancel_job(store: Store, job: Job) -> Job:
    """Ask a job to end. One that ends by itself meanwhile is left to it."""
    reason = "cancelled through the API"
    try:
        return store.set_state(job.id, expect=_CANCELLABLE, to=JobState.CANCELLING, reason=reason)
    except WrongState:
        return store.job(job.id)


def cancel_batch(store: Store, batch: Batch) -> Batch:
    """Ask a batch to end; the keeper does what is left. Raises BatchEnded for one that ended otherwise."""
    while not batch.cancel_asked:
        if batch.status.terminal:
            raise BatchEnded(batch=batch.id, state=batch.status)
        times = {str(BatchStatus.CANCELLING): store.now(), **batch.times}
        asked = store.change_batch(batch.evolve(cancel_asked=True, times=times))
        batch = asked or store.batch(batch.id, batch.tenant)
    if batch.job is not None:
        cancel_job(store, store.job(batch.job))
    return batch
