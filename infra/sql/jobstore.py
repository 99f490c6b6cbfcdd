"""Jobs in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, folding, rows, tables
from infra.sql.shelf import Shelf, all_of
from jobs.errors import Conflict, NotFound, WrongState
from jobs.model import InputFile, Job, JobState, Priority, TaskState, Usage

_jobs = tables.jobs.c
_SHORTEST = 4  # characters of an abbreviated id
_CANDIDATES = 5
_ID_PREFIX = "job-"
_FOLD = 5000  # entries a block


class SqlJobs(Shelf):
    """`jobs.ports.store.JobStore`."""

    def create_job(self, job: Job, files: Sequence[InputFile]) -> Job:
        """A `created_at` of 0 is set by the database's clock, and with it the deadline that `deadline_s` asks for."""
        before = _Before()

        def work(connection: sa.Connection) -> Job:
            if (made := _made_before(connection, job, before)) is not None:
                return made
            new = rows.job_row(job, created_at=job.created_at or self._db.now(connection))
            if not dialect.insert_new(connection, tables.jobs, new):  # somebody was faster
                return _made_before(connection, job, before) or _get(connection, job.id)
            if files:
                places = [{"job": job.id, "place": n, "file": codec.encode(file)} for n, file in enumerate(files)]
                connection.execute(tables.input_files.insert(), places)
            before.done = True
            return _get(connection, job.id)

        return self._db.write(work)

    def job(self, job_id: str) -> Job:
        return self._db.ask(lambda c: _get(c, job_id))

    def find_job(self, text: str, tenant: str | None = None) -> Job:
        if text == "last":
            found = self.jobs(tenant=tenant, limit=1)
            hint = "There are no jobs yet."
        else:
            found = self._matching(text.lower(), tenant)
            hint = _hint(text, found)
        if len(found) != 1:
            raise NotFound(kind="job", name=text, hint=hint)
        return found[0]

    def files(self, job_id: str) -> list[InputFile]:
        file = tables.input_files.c
        query = sa.select(file.file).where(file.job == job_id).order_by(file.place)
        return [codec.decode(InputFile, text) for (text,) in self._db.ask(all_of(query))]

    def jobs(self, *, tenant: str | None = None, limit: int = 100) -> list[Job]:
        newest = _of_tenant(tenant).order_by(_jobs.created_at.desc(), _jobs.id.desc()).limit(limit)
        return self._all(newest)

    def children(self, job_id: str) -> list[Job]:
        mine = rows.jobs_with_totals.where(_jobs.parent == job_id)
        return self._all(mine.order_by(_jobs.created_at, _jobs.id))

    def active_jobs(self, pool: str) -> list[Job]:
        mine = rows.jobs_with_totals.where(_jobs.pool == pool, _jobs.finished_at.is_(None))
        return self._all(mine.order_by(_jobs.created_at, _jobs.id))

    def set_priority(self, job_id: str, priority: Priority) -> Job:
        def work(connection: sa.Connection) -> Job:
            change = tables.jobs.update().where(_jobs.id == job_id, _jobs.finished_at.is_(None))
            made = connection.execute(change.values(priority=priority.value)).rowcount
            job = _get(connection, job_id)
            if not made:
                raise WrongState(job=job_id, state=job.state, action="a new priority", needed="not at its end")
            return job

        return self._db.write(work)

    def set_state(self, job_id: str, *, expect: frozenset[JobState], to: JobState, reason: str = "") -> Job:
        before = _Before()

        def work(connection: sa.Connection) -> Job:
            change = tables.jobs.update().where(_jobs.id == job_id, _jobs.state.in_([s.value for s in expect]))
            values = _entering(to, reason, self._db.now(connection))
            made = connection.execute(change.values(values)).rowcount
            job = _get(connection, job_id)
            if not made and not (before.done and job.state is to):
                needed = " or ".join(sorted(expect))
                raise WrongState(job=job_id, state=job.state, action=f"becoming {to}", needed=needed)
            before.done = True
            return job

        return self._db.write(work)

    def finalise(self, job_id: str, *, version: int, to: JobState, reason: str, manifest: str, void: Usage) -> bool:
        task = tables.tasks.c
        open_states = [state.value for state in TaskState if not state.terminal]
        still_open = sa.exists().where(task.job == job_id, task.state.in_(open_states))
        before = _Before()

        def work(connection: sa.Connection) -> bool:
            now = self._db.now(connection)
            change = tables.jobs.update().where(
                _jobs.id == job_id, _jobs.version == version, _jobs.planned, ~still_open, _jobs.state.not_in(_FINAL)
            )
            values = _entering(to, reason, now) | {"manifest": manifest, "void": codec.encode(void)}
            if not connection.execute(change.values(values)).rowcount:
                return before.done and _get(connection, job_id).state is to
            while folding.fold(connection, _FOLD, now, job=job_id).transactions:
                pass
            folding.add_totals(connection, {job_id: (void, 0)})
            before.done = True
            return True

        return self._db.write(work)

    def unsealed(self) -> list[Job]:
        found = rows.jobs_with_totals.where(_jobs.finished_at.is_not(None), _jobs.sealed_at.is_(None))
        return self._all(found.order_by(_jobs.created_at, _jobs.id))

    def set_sealed(self, job_id: str) -> None:
        def work(connection: sa.Connection) -> None:
            first = tables.jobs.update().where(_jobs.id == job_id, _jobs.sealed_at.is_(None))
            connection.execute(first.values(sealed_at=self._db.now(connection)))

        self._db.write(work)

    def _matching(self, text: str, tenant: str | None) -> list[Job]:
        """The job of this id, else all whose id begins (with or without "job-") or ends so, the newest first."""
        exact = self._all(_of_tenant(tenant).where(_jobs.id == text))
        if exact or len(text) < _SHORTEST:
            return exact
        like = sa.or_(
            _jobs.id.startswith(text, autoescape=True),
            _jobs.id.startswith(_ID_PREFIX + text, autoescape=True),
            _jobs.id.endswith(text, autoescape=True),
        )
        return self._all(_of_tenant(tenant).where(like).order_by(_jobs.created_at.desc(), _jobs.id.desc()))

    def _all(self, query: sa.Select[Any]) -> list[Job]:
        return [rows.job_of(row) for row in self._db.ask(all_of(query))]


_FINAL = [state.value for state in JobState if state.terminal]


@dataclass(slots=True)
class _Before:
    """Whether an earlier run of a closure came to its end. It runs again when it was rolled back, and when its commit
    was not answered: what it then finds done was done by itself.
    """

    done: bool = False


def _get(connection: sa.Connection, job_id: str) -> Job:
    row = connection.execute(rows.jobs_with_totals.where(_jobs.id == job_id)).one_or_none()
    if row is None:
        raise NotFound(kind="job", name=job_id, hint="List the jobs there are: nightmill jobs")
    return rows.job_of(row)


def _made_before(connection: sa.Connection, job: Job, before: _Before) -> Job | None:
    """The job of this tenant and idempotency key. Raises Conflict where the id alone is taken, by another."""
    if job.idempotency_key is not None:
        same = _of_tenant(job.tenant).where(_jobs.idempotency_key == job.idempotency_key)
        if (row := connection.execute(same).one_or_none()) is not None:
            return rows.job_of(row)
    if connection.execute(sa.select(_jobs.id).where(_jobs.id == job.id)).first() is None:
        return None
    if before.done:
        return _get(connection, job.id)
    raise Conflict(reason=f"there is a job {job.id}")


def _of_tenant(tenant: str | None) -> sa.Select[Any]:
    return rows.jobs_with_totals if tenant is None else rows.jobs_with_totals.where(_jobs.tenant == tenant)


def _entering(to: JobState, reason: str, now: float) -> dict[str, Any]:
    values: dict[str, Any] = {"state": to.value, "reason": _storable(reason), "version": _jobs.version + 1}
    return values | ({"finished_at": now} if to.terminal else {})


def _storable(text: str) -> str:
    """What a database can keep of a sentence: it may quote bytes that are no text."""
    return text.replace("\0", " ").encode(errors="replace").decode()


def _hint(text: str, found: Sequence[Job]) -> str:
    if found:
        some = ", ".join(job.id for job in found[:_CANDIDATES])
        more = f" and {len(found) - _CANDIDATES} more" if len(found) > _CANDIDATES else ""
        return f"It could be {some}{more}."
    if len(text) < _SHORTEST:
        return f"An abbreviated id has at least {_SHORTEST} characters."
    return "List the jobs there are: nightmill jobs"
