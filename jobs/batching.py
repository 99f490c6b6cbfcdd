"""The keeper of batches: from an uploaded file to a job, and from the job's end to the files of its results.

Every step looks at what is there and goes on, so any process may take it, and whoever comes after a crash makes the
same job and the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from jobs.batch_files import RESULTS, BatchFiles, files_of, is_small
from jobs.errors import BadInput, BatchEnded, Broken, Conflict, NotFound, Refused, WrongState
from jobs.filing import (
    BATCH_KEY,
    Batch,
    BatchStatus,
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
from jobs.submit import Checked, check, submit_all
from jobs.tenancy import Alias

_CANCELLABLE = frozenset({JobState.RUNNING, JobState.PAUSED})
_PAGE = 1000
_OURS = "The service failed at this batch. The operator's log has it under the batch's id."


Folder = Callable[[str, int | None], str]
"""URI of the folder of a tenant's own objects, for what has so many bytes; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPolicy(Value):
    """max_lines: requests that a batch may have, at most."""

    max_lines: int = 5_000_000


class _Asked:
    """What the batches of a list ask alike is asked once."""

    def __init__(self, store: Store) -> None:
        self.price, self.aliases = cache(store.price), cache(store.aliases)


class Look(NamedTuple):
    """todo: batches with which there is something to do now, the oldest first. seen: how many were looked at; newest:
    the last of them, None where there was none.
    """

    todo: Sequence[Batch]
    seen: int
    newest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """`look`, then `attend` to each. pools: what is served now. folder: see `Folder`."""

    store: Store
    intake: Intake
    models: Models
    objects: Objects
    results: Results
    ids: Ids
    pools: Callable[[], Sequence[Pool]]
    folder: Folder
    policy: KeepPolicy = KeepPolicy()

    def look(self, after: str | None = None) -> Look:
        """At the open batches of all tenants. after: only at those that are newer than this one."""
        todo: list[Batch] = []
        seen, full = 0, True
        while full and (page := self.store.open_batches(after=after, limit=_PAGE)):
            states = self.store.job_states([batch.job for batch in page if batch.job is not None])
            todo += [batch for batch in page if _to_do(batch, states.get(batch.job or ""))]
            seen, full, after = seen + len(page), len(page) == _PAGE, page[-1].id
        return Look(todo, seen, after)

    def attend(self, batch: Batch) -> Batch:
        """Bring a batch on as far as it goes now. Raises Unavailable and Broken; what is refused is in the batch."""
        return self.attend_all([batch])[0]

    def attend_all(self, batches: Sequence[Batch]) -> list[Batch]:
        """As `attend` for each; what they write shares transactions. Raises the first error: then begin again."""
        found = {batch.id: batch for batch in batches}
        found |= {batch.id: batch for batch in self._begin([batch for batch in batches if batch.job is None])}
        ends: list[tuple[Batch, Job]] = []
        going = [one for one in found.values() if one.job is not None and not one.status.terminal]
        jobs = self.store.jobs_named([str(one.job) for one in going])
        for batch in going:
            job = jobs.get(str(batch.job)) or self.store.job(str(batch.job))
            if batch.cancel_asked and job.state in _CANCELLABLE:
                job = cancel_job(self.store, job)
            if not job.state.terminal:
                found[batch.id] = self._note(batch, status_of(batch, job))
            else:
                ends.append((batch if is_small(job) else self._note(batch, status_of(batch, job)), job))
        found |= {batch.id: batch for batch in self._end([end for end in ends if not end[0].status.terminal])}
        return [found[batch.id] for batch in batches]

    # ---- the beginning --------------------------------------------------------------------------

    def _begin(self, batches: Sequence[Batch]) -> list[Batch]:
        """Find the jobs that they have already, or check their input and make them; what is wrong with the input ends
        a batch.
        """
        changed: list[Batch] = []
        new: list[tuple[Batch, Checked, Pool]] = []
        made = self.store.jobs_of_keys([(batch.tenant, _key_of(batch)) for batch in batches])
        files = self.store.files_named([(batch.input_file, batch.tenant) for batch in batches])
        asked = _Asked(self.store)
        for batch in batches:
            try:
                if (job := made.get((batch.tenant, _key_of(batch)))) is not None:
                    changed.append(self._begun(batch, job))
                else:
                    file = files.get((batch.input_file, batch.tenant))
                    file = file or self.store.file(batch.input_file, batch.tenant)  # raises what it is
                    new.append((batch, *self._checked(batch, file, asked)))
            except Refused as error:
                changed.append(self._failed(batch, _faults(error)))
        return self._change([*changed, *self._made(new)])

    def _made(self, new: Sequence[tuple[Batch, Checked, Pool]]) -> list[Batch]:
        """With the jobs that are written for them."""
        wanted = [(checked, pool.name) for _, checked, pool in new]
        try:
            jobs = submit_all(wanted, intake=self.intake, store=self.store, ids=self.ids) if new else []
        except Conflict:  # another keeper made the job just now: the next look finds it
            if len(new) > 1:
                raise
            return []
        except Refused as error:
            if len(new) > 1:
                raise
            return [self._failed(new[0][0], _faults(error))]
        return [self._begun(batch, job) for (batch, _, _), job in zip(new, jobs, strict=True)]

    def _begun(self, batch: Batch, job: Job) -> Batch:
        begun = batch.evolve(job=job.id, asked_model=job.spec.asked_model or job.spec.model)
        return self._in(begun, status_of(begun, job))

    def _checked(self, batch: Batch, file: StoredFile, known: _Asked) -> tuple[Checked, Pool]:
        """Raises Refused."""
        asked = self.intake.asked_model(file.uri)
        pool = self._pool(asked, known.aliases(batch.tenant))
        request = self._request(batch, file, asked, pool)
        checked = check(request, intake=self.intake, models=self.models, store=known, pool=pool)
        if checked.examined.total_rows > self.policy.max_lines:
            reason = f"it has {checked.examined.total_rows} requests; a batch may have {self.policy.max_lines}"
            raise BadInput(source=file.id, reason=reason, lines=(LineError(code="too_many_requests", message=reason),))
        return checked, pool

    def _pool(self, asked: str, aliases: Sequence[Alias]) -> Pool:
        try:
            return pool_behind(asked, aliases, self.pools())
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
            output=f"{self.folder(batch.tenant, file.size)}{RESULTS}",
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
            batch = self._change([self._failed(batch, (LineError(code=Broken.code, message=_OURS),))])[0]
        return batch.status.terminal

    # ---- between --------------------------------------------------------------------------------

    def _note(self, batch: Batch, status: BatchStatus) -> Batch:
        """Write down a status that is new, and when it was first seen."""
        return batch if status is batch.status else self._change([self._in(batch, status)])[0]

    def _in(self, batch: Batch, *statuses: BatchStatus) -> Batch:
        """In the last of these, having passed the others."""
        now = self.store.now()
        return batch.evolve(status=statuses[-1], times={**{str(one): now for one in statuses}, **batch.times})

    def _failed(self, batch: Batch, errors: tuple[LineError, ...]) -> Batch:
        return self._in(batch.evolve(errors=errors, enqueued_tokens=0), BatchStatus.FAILED)

    def _change(self, batches: Sequence[Batch]) -> list[Batch]:
        """Write them down; where another process was faster, as that left it."""
        changed = self.store.change_batches(batches) if batches else []
        return [new or self._again(batch) for batch, new in zip(batches, changed, strict=True)]

    def _again(self, batch: Batch) -> Batch:
        """As another process left it."""
        return self.store.batch(batch.id, batch.tenant)

    # ---- the end --------------------------------------------------------------------------------

    def _end(self, ends: Sequence[tuple[Batch, Job]]) -> list[Batch]:
        now = self.store.now()
        files = [file for batch, job in ends for file in files_of(batch, job, now)]
        written = BatchFiles(objects=self.objects, results=self.results).write([wanted for _, wanted in files])
        facts = [
            file.evolve(size=new.size, checksum=new.checksum) for (file, _), new in zip(files, written, strict=True)
        ]
        self.store.add_files(facts)
        names = {file.id for file in facts}
        done: list[Batch] = []
        for batch, job in ends:
            output, error = (result_file_id(batch.id, which) for which in ("output", "error"))
            ended = batch.evolve(
                output_file=output if output in names else None,
                error_file=error if error in names else None,
                enqueued_tokens=0,
            )
            done.append(self._in(ended, status_of(batch, job), end_of(job)))
        return self._change(done)


def _to_do(batch: Batch, state: JobState | None) -> bool:
    """Whether `attend` would change anything. state: of its job, if it has one."""
    if batch.job is None or state is None or state.terminal:
        return True
    return status_with(state) is not batch.status or (batch.cancel_asked and state in _CANCELLABLE)


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
