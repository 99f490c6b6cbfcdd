"""Tasks in SQL: planning, moves, leases and the manifest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

import sqlalchemy as sa

from infra.sql import codec, dialect, moving, rows, tables
from infra.sql.shelf import Shelf, in_order
from jobs.errors import Broken, NotFound, Unavailable
from jobs.model import Job, JobState, Part, Priority, Task, TaskState, Usage
from jobs.moves import Answer, Move
from jobs.ports.store import Progress

_tasks = tables.tasks.c
_LEASED = _tasks.state == tables.literal(TaskState.LEASED.value)
_ALL = sa.select(tables.tasks)
_PAGE = 1000
_part = tables.parts.c
_PARTS = (
    sa.select(tables.parts)
    .where(_part.job == sa.bindparam("of_job"), _part.position > sa.bindparam("after"))
    .order_by(_part.position)
    .limit(_PAGE)
)
_jobs = tables.jobs.c
_STEP = tables.jobs.update().where(
    _jobs.id == sa.bindparam("of_job"), _jobs.next_segment == sa.bindparam("of_segment")
)  # sets what its parameters name
_BEAT = (
    tables.tasks.update()
    .where(_tasks.id == sa.bindparam("of_task"), _tasks.token == sa.bindparam("of_token"), _LEASED)
    .values(lease_until=sa.bindparam("until"), progress=sa.bindparam("so_far"))
)


class SqlTasks(Shelf):
    """`jobs.ports.store.TaskStore`."""

    def plan_segment(self, job_id: str, segment: int, tasks: Sequence[Task], *, last: bool) -> bool:
        return self.plan_segments([(job_id, segment, tasks, last)])[0]

    def plan_segments(self, planned: Sequence[tuple[str, int, Sequence[Task], bool]]) -> list[bool]:
        return self._db.write_list(self._plan_segment, planned) if planned else []

    def _plan_segment(
        self, connection: sa.Connection, planned: list[tuple[str, int, Sequence[Task], bool]]
    ) -> list[bool]:
        return _plan(connection, planned)

    def make(self, moves: Sequence[Move]) -> list[Answer]:
        """Raises the first error of a member once all others have been tried alone; Unavailable at once."""
        if not moves:
            return []
        try:
            return self._make(moves)
        except Unavailable:
            raise
        except Exception:
            if len(moves) == 1:
                raise
        return self._make_each(moves)

    def _make(self, moves: Sequence[Move]) -> list[Answer]:
        pace = self._db.pace
        linger_s = pace.commit_linger_s if any(move.part for move in moves) else pace.linger_s
        return self._db.write_all(self._carry_out, moves, linger_s=linger_s)

    def _carry_out(self, connection: sa.Connection, moves: Sequence[Move]) -> list[Answer]:
        return moving.make(connection, moves, self._db.now(connection))

    def _make_each(self, moves: Sequence[Move]) -> list[Answer]:
        answers, errors = [], []
        for move in moves:
            try:
                answers += self._make([move])
            except Exception as error:  # noqa: BLE001  # raised below, when the others are through
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def task(self, task_id: str) -> Task:
        query = sa.select(tables.tasks).where(_tasks.id == task_id)
        row = self._db.ask(lambda c: c.execute(query).one_or_none())
        if row is None:
            raise NotFound(kind="task", name=task_id, hint="")
        return rows.task_of(row)

    def with_jobs(self, task_ids: Sequence[str]) -> dict[str, tuple[Task, Job]]:
        def read(connection: sa.Connection) -> dict[str, tuple[Task, Job]]:
            these = connection.execute(_ALL.where(dialect.among(connection, _tasks.id, list(task_ids))))
            found = [rows.task_of(row) for row in these]
            owners = dialect.among(connection, tables.jobs.c.id, sorted({task.job for task in found}))
            jobs = {row.id: rows.job_of(row) for row in connection.execute(rows.jobs_with_totals.where(owners))}
            return {task.id: (task, jobs[task.job]) for task in found}

        return self._db.ask(read) if task_ids else {}

    def tasks(self, job_id: str, states: frozenset[TaskState], limit: int = 1000) -> list[Task]:
        """One index scan of at most `limit` rows a state: a query over several states would sort all their tasks."""
        asked = {"of_job": job_id, "most": limit}
        found = self._db.ask(lambda c: [c.execute(_in_state(state), asked).all() for state in sorted(states)])
        merged = heapq.merge(*found, key=lambda row: str(row.position))
        return [rows.task_of(row) for row in islice(merged, limit)]

    def task_counts(self, job_id: str) -> dict[TaskState, int]:
        query = sa.select(_tasks.state, sa.func.count()).where(_tasks.job == job_id).group_by(_tasks.state)
        return self._db.ask(lambda c: {TaskState(state): count for state, count in c.execute(query)})

    def heads(self, job_ids: Sequence[str]) -> dict[str, Task]:
        """A seek for each job: a window over all their queued tasks would read them all."""
        other = tables.tasks.alias("other")
        first = (
            sa.select(other.c.id)
            .where(other.c.job == tables.jobs.c.id, other.c.state == tables.literal(TaskState.QUEUED.value))
            .order_by(other.c.position)
            .limit(1)
            .scalar_subquery()
        )
        heads = sa.select(tables.tasks).join_from(tables.jobs, tables.tasks, _tasks.id == first)
        found = self._of_jobs(heads, job_ids)
        return {row.job: rows.task_of(row) for row in found}

    def with_open_tasks(self, job_ids: Sequence[str]) -> set[str]:
        states = [tables.literal(state.value) for state in TaskState if not state.terminal]
        still_open = sa.exists().where(_tasks.job == tables.jobs.c.id, _tasks.state.in_(states))
        return {row.id for row in self._of_jobs(sa.select(tables.jobs.c.id).where(still_open), job_ids)}

    def _of_jobs(self, query: sa.Select[Any], job_ids: Sequence[str]) -> list[sa.Row[Any]]:
        """The query for these jobs, a page of them at a time."""
        pages = [job_ids[at : at + _PAGE] for at in range(0, len(job_ids), _PAGE)]

        def read(connection: sa.Connection) -> list[sa.Row[Any]]:
            found: list[sa.Row[Any]] = []
            for page in pages:
                found += connection.execute(query.where(dialect.among(connection, tables.jobs.c.id, page)))
            return found

        return self._db.ask(read) if job_ids else []

    def released(self, pool: str) -> list[Task]:
        """Through the outbox, which has a row for each of them and no more."""
        out = tables.outbox.c
        query = (
            sa.select(tables.tasks, out.priority.label("released_as"))
            .join_from(tables.outbox, tables.tasks, _tasks.id == out.task)
            .where(out.pool == pool, _tasks.state == TaskState.RELEASED.value, _tasks.epoch == out.epoch)
            .order_by(out.id)
        )
        found = self._db.ask(lambda c: c.execute(query).all())
        return [rows.task_of(row).evolve(priority=Priority(row.released_as)) for row in found]

    def beat(self, owner: str, progress: Sequence[Progress], lease_s: float) -> dict[str, JobState]:
        reported = {item.token: codec.encode(item.usage) for item in progress}
        mine = (
            sa.select(_tasks.id, _tasks.token, tables.jobs.c.state)
            .join_from(tables.tasks, tables.jobs, tables.jobs.c.id == _tasks.job)
            .where(_LEASED, _tasks.owner == owner)
            .order_by(_tasks.id)
            .with_for_update(of=tables.tasks)  # in the order in which moves lock them
        )

        def work(connection: sa.Connection) -> dict[str, JobState]:
            held = [row for row in connection.execute(mine) if row.token in reported]
            until = self._db.now(connection) + lease_s
            beats = [{"of_task": r.id, "of_token": r.token, "until": until, "so_far": reported[r.token]} for r in held]
            if beats:
                connection.execute(_BEAT, beats)
            return {row.token: JobState(row.state) for row in held}

        return self._db.write(work, durable=False) if reported else {}

    def overdue(self, pool: str) -> list[tuple[Task, Usage]]:
        def late(connection: sa.Connection) -> list[tuple[Task, Usage]]:
            over = _tasks.lease_until < self._db.now(connection)
            return _with_progress(connection, _tasks.pool == pool, over)

        return self._db.ask(late)

    def leased_by(self, owner: str) -> list[tuple[Task, Usage]]:
        return self._db.ask(lambda c: _with_progress(c, _tasks.owner == owner))

    def owners(self) -> list[str]:
        query = sa.select(_tasks.owner).where(_LEASED).distinct().order_by(_tasks.owner)
        return self._db.ask(lambda c: [owner for (owner,) in c.execute(query) if owner is not None])

    def parts(self, job_id: str) -> Iterator[Part]:
        """By pages, so that no read transaction stays open while the caller works."""
        after = ""
        while True:
            asked = {"of_job": job_id, "after": after}
            page = self._db.ask(partial(_page_of_parts, asked))
            yield from map(rows.part_of, page)
            if len(page) < _PAGE:
                return
            after = page[-1].position

    def parts_of(self, job_ids: Sequence[str]) -> dict[str, list[Part]]:
        def read(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
            these = dialect.among(connection, _part.job, list(job_ids))
            return connection.execute(sa.select(tables.parts).where(these).order_by(_part.job, _part.position)).all()

        found: dict[str, list[Part]] = {name: [] for name in job_ids}
        for row in self._db.ask(read) if job_ids else ():
            found[row.job].append(rows.part_of(row))
        return found

    def open_reservations(self, job_id: str) -> dict[str, int]:
        held = tables.reservations.c
        query = sa.select(held.task, held.amount_pico).where(held.job == job_id, held.state == tables.literal("open"))
        return self._db.ask(lambda c: {row.task: row.amount_pico for row in c.execute(query)})


def _plan(connection: sa.Connection, planned: list[tuple[str, int, Sequence[Task], bool]]) -> list[bool]:
    """The jobs are locked in the order of their ids."""
    these = dialect.among(connection, _jobs.id, sorted({job_id for job_id, _, _, _ in planned}))
    query = sa.select(_jobs.id, _jobs.next_segment).where(these).order_by(_jobs.id).with_for_update()
    reached = {row.id: row.next_segment for row in connection.execute(query)}
    steps: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []

    def plan(one: tuple[str, int, Sequence[Task], bool]) -> bool:
        job_id, segment, tasks, last = one
        if not _is_next(job_id, segment, reached.get(job_id)):
            return False
        reached[job_id] = segment + 1
        steps.append({"of_job": job_id, "of_segment": segment, "next_segment": segment + 1, "planned": last})
        new.extend(rows.task_row(task, f"{segment:08d}.{number:06d}") for number, task in enumerate(tasks))
        return True

    answers = in_order(planned, lambda one: one[:2], plan)
    if steps and connection.execute(_STEP, steps).rowcount != len(steps):
        raise Broken(reason="a job was planned under its lock")
    if new:
        connection.execute(tables.tasks.insert(), new)
    return answers


def _is_next(job_id: str, segment: int, reached: int | None) -> bool:
    """False if it has been planned. reached: what the job's planning comes to next."""
    if reached is None:
        raise NotFound(kind="job", name=job_id, hint="")
    if reached < segment:
        raise Broken(reason=f"segment {segment} of {job_id} was planned before segment {reached}")
    return reached == segment


def _page_of_parts(asked: dict[str, str], connection: sa.Connection) -> Sequence[sa.Row[Any]]:
    return connection.execute(_PARTS, asked).all()


@cache
def _in_state(state: TaskState) -> sa.Select[Any]:
    """A statement a state, each made once; the state stands in it, for indexes of some states."""
    mine = sa.select(tables.tasks).where(
        _tasks.job == sa.bindparam("of_job"), _tasks.state == tables.literal(state.value)
    )
    return mine.order_by(_tasks.position).limit(sa.bindparam("most", type_=sa.Integer))


def _with_progress(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[tuple[Task, Usage]]:
    query = sa.select(tables.tasks).where(_LEASED, *where).order_by(_tasks.job, _tasks.position)
    return [(rows.task_of(row), rows.usage_of(row.progress)) for row in connection.execute(query)]
