"""Jobs in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from infra.sql import closing, codec, dialect, rows, tables
from infra.sql.before import Before
from infra.sql.shelf import Shelf, all_of
from jobs.errors import Conflict, NotFound, WrongState
from jobs.model import InputFile, Job, JobState, Priority, Usage
from jobs.ports.store import End

_jobs = tables.jobs.c
_JOB = rows.jobs_with_totals.where(_jobs.id == sa.bindparam("of_job"))
_OF_KEY = rows.jobs_with_totals.where(
    _jobs.tenant == sa.bindparam("of_tenant"), _jobs.idempotency_key == sa.bindparam("of_key")
)
_input = tables.input_files.c
_FILES = sa.select(_input.file).where(_input.job == sa.bindparam("of_job")).order_by(_input.place)
_SHORTEST = 4  # characters of an abbreviated id
_CANDIDATES = 5
_ID_PREFIX = "job-"


class SqlJobs(Shelf):
    """`jobs.ports.store.JobStore`."""

    def create_job(self, job: Job, files: Sequence[InputFile]) -> Job:
        return self.create_jobs([(job, files)])[0]

    def create_jobs(self, wanted: Sequence[tuple[Job, Sequence[InputFile]]]) -> list[Job]:
        """A `created_at` of 0 is set by the database's clock, and with it the deadline that `deadline_s` asks for."""
        new = [_New(job, files, Before()) for job, files in wanted]
        return self._db.write_list(self._create_job, new) if new else []

    def _create_job(self, connection: sa.Connection, wanted: list[_New]) -> list[Job]:
        """In an order in which all lists write theirs."""
        now = self._db.now(connection)
        new = [rows.job_row(one.job, created_at=one.job.created_at or now) for one in wanted]
        firsts = {row["id"]: row for row in reversed(new)}  # of an id that comes twice
        ordered = sorted(firsts.values(), key=lambda row: (row["tenant"], row["idempotency_key"] or "", row["id"]))
        made = dialect.insert_all_new(connection, tables.jobs, ordered)
        mine = [row is firsts[row["id"]] and row["id"] in made for row in new]
        places = [
            {"job": one.job.id, "place": n, "file": codec.encode(file)}
            for one, is_mine in zip(wanted, mine, strict=True)
            for n, file in enumerate(one.files if is_mine else ())
        ]
        if places:
            connection.execute(tables.input_files.insert(), places)
        return [_created(connection, *one) for one in zip(wanted, new, mine, strict=True)]

    def job_of_key(self, tenant: str, key: str) -> Job | None:
        return self._db.ask(lambda c: _of_key(c, tenant, key))

    def jobs_of_keys(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Job]:
        def read(connection: sa.Connection) -> dict[tuple[str, str], Job]:
            tenants, names = sorted({tenant for tenant, _ in keys}), sorted({key for _, key in keys})
            of_them = dialect.among(connection, _jobs.tenant, tenants)
            these = rows.jobs_with_totals.where(of_them, dialect.among(connection, _jobs.idempotency_key, names))
            found = {(row.tenant, row.idempotency_key): rows.job_of(row) for row in connection.execute(these)}
            return {key: found[key] for key in keys if key in found}

        return self._db.ask(read) if keys else {}

    def job(self, job_id: str) -> Job:
        return self._db.ask(lambda c: _get(c, job_id))

    def jobs_named(self, job_ids: Sequence[str]) -> dict[str, Job]:
        def read(connection: sa.Connection) -> dict[str, Job]:
            these = rows.jobs_with_totals.where(dialect.among(connection, _jobs.id, list(job_ids)))
            return {row.id: rows.job_of(row) for row in connection.execute(these)}

        return self._db.ask(read) if job_ids else {}

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
        found = self._db.ask(lambda c: c.execute(_FILES, {"of_job": job_id}).all())
        return [codec.decode(InputFile, text) for (text,) in found]

    def files_of(self, job_ids: Sequence[str]) -> dict[str, list[InputFile]]:
        def read(connection: sa.Connection) -> Sequence[Any]:
            these = dialect.among(connection, _input.job, list(job_ids))
            query = sa.select(_input.job, _input.file).where(these).order_by(_input.job, _input.place)
            return connection.execute(query).all()

        found: dict[str, list[InputFile]] = {name: [] for name in job_ids}
        for job, text in self._db.ask(read) if job_ids else ():
            found[job].append(codec.decode(InputFile, text))
        return found

    def jobs(self, *, tenant: str | None = None, limit: int = 100, after: str | None = None) -> list[Job]:
        def work(connection: sa.Connection) -> list[Job]:
            query = _of_tenant(tenant)
            if after is not None:
                last = connection.execute(query.where(_jobs.id == after)).one_or_none()
                if last is None:
                    raise _unknown(after)
                query = query.where(sa.tuple_(_jobs.created_at, _jobs.id) < (last.created_at, last.id))
            newest = query.order_by(_jobs.created_at.desc(), _jobs.id.desc()).limit(limit)
            return [rows.job_of(row) for row in connection.execute(newest)]

        return self._db.ask(work)

    def children(self, job_id: str) -> list[Job]:
        mine = rows.jobs_with_totals.where(_jobs.parent == job_id)
        return self._all(mine.order_by(_jobs.created_at, _jobs.id))

    def active_jobs(self, pool: str) -> list[Job]:
        mine = rows.jobs_with_totals.where(_jobs.pool == pool, _jobs.finished_at.is_(None))
        return self._all(mine.order_by(_jobs.created_at, _jobs.id))

    def pressing_jobs(self, pool: str, *, most: int, patience_s: float) -> list[Job]:
        asked = [
            {"of_pool": pool, "of_priority": priority.value, "patience_s": patience_s, "most": most}
            for priority in Priority
        ]
        found = self._db.ask(lambda c: [row for one in asked for row in c.execute(_PRESSING, one)])
        return [rows.job_of(row) for row in found]

    def job_states(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        def read(connection: sa.Connection) -> dict[str, JobState]:
            these = sa.select(_jobs.id, _jobs.state).where(dialect.among(connection, _jobs.id, list(job_ids)))
            return {row.id: JobState(row.state) for row in connection.execute(these)}

        return self._db.ask(read) if job_ids else {}

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
        before = Before()

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
        return self.finalise_all([End(job_id, version, to, reason, manifest, void)])[0]

    def finalise_all(self, ends: Sequence[End]) -> list[bool]:
        if not ends:
            return []
        return self._db.write_list(self._finalise, [(end, Before()) for end in ends])

    def _finalise(self, connection: sa.Connection, ends: list[tuple[End, Before]]) -> list[bool]:
        """All records are closed before the book is locked: whoever waits for one of them may not hold that."""
        now = self._db.now(connection)
        closed = closing.close(connection, [end for end, _ in ends], now)
        closing.settle(connection, [end for (end, _), mine in zip(ends, closed, strict=True) if mine], now)
        for (_, before), mine in zip(ends, closed, strict=True):
            before.done |= mine
        return [
            mine or (before.done and _get(connection, end.job).state is end.to)
            for (end, before), mine in zip(ends, closed, strict=True)
        ]

    def unsealed(self) -> list[Job]:
        found = rows.jobs_with_totals.where(_jobs.finished_at.is_not(None), _jobs.sealed_at.is_(None))
        return self._all(found.order_by(_jobs.created_at, _jobs.id))

    def set_sealed(self, job_ids: Sequence[str]) -> None:
        def work(connection: sa.Connection) -> None:
            now = self._db.now(connection)
            connection.execute(_SEALED, [{"of_job": name, "at": now} for name in sorted(job_ids)])

        if job_ids:
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


_TURNS = {JobState.CANCELLING: 0, JobState.EXPIRING: 0, JobState.PAUSED: 2}
_patient = _jobs.created_at + sa.bindparam("patience_s", type_=sa.Double)
_pressing = (
    sa.case({state.value: n for state, n in _TURNS.items()}, value=_jobs.state, else_=1),
    sa.case((_jobs.deadline_at < _patient, _jobs.deadline_at), else_=_patient),
    _jobs.id,
)
_of_rank = (_jobs.pool == sa.bindparam("of_pool"), _jobs.priority == sa.bindparam("of_priority"))
_FIRST_IDS = (
    sa.select(_jobs.id)
    .where(*_of_rank, _jobs.finished_at.is_(None))
    .order_by(*_pressing)
    .limit(sa.bindparam("most", type_=sa.Integer))
)  # sorted without their prompts
_PRESSING = rows.jobs_with_totals.where(_jobs.id.in_(_FIRST_IDS)).order_by(*_pressing)
_SEALED = (
    tables.jobs.update()
    .where(_jobs.id == sa.bindparam("of_job"), _jobs.sealed_at.is_(None))
    .values(sealed_at=sa.bindparam("at"))
)


class _New(NamedTuple):
    """A job that is to be written, with what an earlier run of that did."""

    job: Job
    files: Sequence[InputFile]
    before: Before


def _created(connection: sa.Connection, new: _New, row: Mapping[str, Any], mine: bool) -> Job:  # noqa: FBT001 - see there
    """mine: it was written just now; else its id or key is taken."""
    job, before = new.job, new.before
    if not mine:
        return _made_before(connection, job, before) or _get(connection, job.id)
    before.done = True
    return job.evolve(created_at=row["created_at"], deadline_at=row["deadline_at"])


def _get(connection: sa.Connection, job_id: str) -> Job:
    row = connection.execute(_JOB, {"of_job": job_id}).one_or_none()
    if row is None:
        raise _unknown(job_id)
    return rows.job_of(row)


def _unknown(job_id: str) -> NotFound:
    return NotFound(kind="job", name=job_id, hint="List the jobs there are: nightmill jobs")


def _of_key(connection: sa.Connection, tenant: str, key: str) -> Job | None:
    row = connection.execute(_OF_KEY, {"of_tenant": tenant, "of_key": key}).one_or_none()
    return None if row is None else rows.job_of(row)


def _made_before(connection: sa.Connection, job: Job, before: Before) -> Job | None:
    """The job of this tenant and idempotency key. Raises Conflict where the id alone is taken, by another."""
    if job.idempotency_key is not None and (made := _of_key(connection, job.tenant, job.idempotency_key)) is not None:
        return made
    if connection.execute(sa.select(_jobs.id).where(_jobs.id == job.id)).first() is None:
        return None
    if before.done:
        return _get(connection, job.id)
    raise Conflict(reason=f"there is a job {job.id}")


def _of_tenant(tenant: str | None) -> sa.Select[Any]:
    return rows.jobs_with_totals if tenant is None else rows.jobs_with_totals.where(_jobs.tenant == tenant)


def _entering(to: JobState, reason: str, now: float) -> dict[str, Any]:
    values: dict[str, Any] = {"state": to.value, "reason": codec.storable(reason), "version": _jobs.version + 1}
    return values | ({"finished_at": now} if to.terminal else {})


def _hint(text: str, found: Sequence[Job]) -> str:
    if found:
        some = ", ".join(job.id for job in found[:_CANDIDATES])
        more = f" and {len(found) - _CANDIDATES} more" if len(found) > _CANDIDATES else ""
        return f"It could be {some}{more}."
    if len(text) < _SHORTEST:
        return f"An abbreviated id has at least {_SHORTEST} characters."
    return "List the jobs there are: nightmill jobs"
