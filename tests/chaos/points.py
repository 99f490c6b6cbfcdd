"""The durable steps of a run, and the wrapping of the functions that make them: the product knows nothing of it.

Every step has two points, `STEP.before` and `STEP.after`. For a database's step, before means that its transaction is
written out and not committed, after that it is committed and nobody has been told.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from infra.data import order, staging
from infra.engines.child import Child
from infra.engines.process import EngineProcess
from infra.locks import OwnerLock
from infra.objects import local
from infra.queue import schema as queue_schema
from infra.sql import moving
from infra.sql import schema as sql_schema
from infra.sql.engine import Database
from infra.sql.taskstore import SqlTasks
from tests.chaos.traps import Trap
from workers.beats import Beat

STEPS = {
    # ---- the database ----
    "db.migrate": "the tables of a new database",
    "db.set_price": "the example price of the model",
    "db.create_job": "the job's record",
    "db.lead": "the leadership of the job's pool",
    "db.plan_segment": "the tasks of a segment",
    "db.release": "queued → released",
    "db.published": "the note where a message was published",
    "db.withdraw": "released → queued",
    "db.lease": "released → leased",
    "db.commit": "leased → done: part, usage, charge",
    "db.drain": "leased → split: finished rows, and a child for the others",
    "db.divide": "leased → split without a part",
    "db.hand_back": "leased → queued",
    "db.sweep": "queued or released → void",
    "db.void_leased": "leased → void",
    "db.beat": "renewed leases",
    "db.fold": "balances, totals, a sealed block",
    "db.note_speed": "the measured speed",
    "db.set_state": "a change of the job's state",
    "db.finalise": "the job's end",
    "db.set_sealed": "the note that _SUCCESS is written",
    # ---- the queue ----
    "queue.make": "the tables of a new queue",
    "queue.ensure_topics": "the job's topics",
    "queue.delete_topic": "the end of a topic",
    "queue.join": "a consumer in its group",
    "queue.leave": "a consumer out of its group",
    "queue.stay": "the consumer's beat",
    "queue.publish": "messages in a topic",
    "queue.commit": "the group's offsets",
    # ---- objects ----
    "frozen.put": "the schemas that are frozen at submit",
    "staged.put": "a staged file",
    "part.put": "a part under _parts/",
    "void.put": "a part of rows that were never generated",
    "publish": "a part under its final name",
    "ordered.put": "a part put together in input order",
    "manifest.put": "_manifest.json",
    "success.put": "_SUCCESS",
    "other.put": "any other object",
    "delete": "an object deleted",
    # ---- inside them ----
    "file.half": "half of an object's bytes (before only)",
    "file.link": "a file's final name",
    "file.fsync": "a file or folder made durable",
    "scratch.half": "a staged or ordered file without its footer (before only)",
    # ---- locks and the engine ----
    "lock.claim": "the claim of the job",
    "lock.hold": "the sign that this owner lives",
    "beat.step": "the heartbeat, in its own thread",
    "engine.launch": "the start of the engine's process",
    "engine.stop": "the engine's end",
    "engine.submit": "rows given to the engine",
    "engine.results": "rows that came back (after only)",
}

NAMED = {"close": "leave", "_put": "put_many", "_publish": "publish_many", "_add_batches": "add_batch"}
"""Work that has another name than its step."""
ONE_SIDED = {"file.half": "before", "scratch.half": "before", "engine.results": "after"}


def all_points() -> list[str]:
    """Every name that `--at` takes."""
    sides = {step: (ONE_SIDED[step],) if step in ONE_SIDED else ("before", "after") for step in STEPS}
    return [f"{step}.{side}" for step, both in sides.items() for side in both]


def set_up(trap: Trap) -> None:
    """Wrap everything in this process; for good."""
    _watch_transactions(trap)
    _watch_making(trap)
    _watch_objects(trap)
    _watch_files(trap)
    _watch_engine(trap)
    for name in ("claim", "hold"):
        _around(OwnerLock, name, trap, lambda *_, step=f"lock.{name}": step)


def _around(owner: Any, name: str, trap: Trap, step_of: Callable[..., str]) -> None:
    """step_of: from the call's arguments to its step."""
    inner = getattr(owner, name)

    @wraps(inner)
    def outer(*args: Any, **options: Any) -> Any:
        step = step_of(*args)
        trap.hit(f"{step}.before")
        result = inner(*args, **options)
        trap.hit(f"{step}.after")
        return result

    setattr(owner, name, outer)


# ---- transactions -------------------------------------------------------------------------------


def _watch_transactions(trap: Trap) -> None:
    """Each work says its step when it is carried out; the commit, in the same thread, is where the points lie."""
    write, write_all, make = Database.write, Database.write_all, moving.make
    commit, roll_back = DefaultDialect.do_commit, DefaultDialect.do_rollback
    under_way = threading.local()

    def note(steps: Iterable[str]) -> None:
        under_way.steps = [*getattr(under_way, "steps", ()), *steps]

    def watched_write(self: Database, work: Callable[[Any], Any], **options: Any) -> Any:
        step = _step_of(work)

        def watched_work(connection: Any) -> Any:
            note([step])
            return work(connection)

        return write(self, watched_work, **options)

    @cache
    def watched_all(work: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """One for each work: the committer gathers those who wait with the same."""
        step = _step_of(work)

        def watched_work(connection: Any, items: Any) -> Any:
            note([step] * len(items))
            return work(connection, items)

        return watched_work

    def watched_write_all(self: Database, work: Callable[[Any, Any], Any], items: Any, **options: Any) -> Any:
        moves = work.__qualname__ == SqlTasks._carry_out.__qualname__  # each says its own step
        return write_all(self, work if moves else watched_all(work), items, **options)

    def watched_make(connection: Any, wanted: Any, now: float) -> Any:
        note(f"db.{move.name}" for move in wanted)
        return make(connection, wanted, now)

    def watched_commit(self: DefaultDialect, connection: Any) -> None:
        steps, under_way.steps = getattr(under_way, "steps", ()), ()
        trap.check_database()
        for step in steps:
            trap.hit(f"{step}.before")
        commit(self, connection)
        for step in steps:
            trap.hit(f"{step}.after")

    def watched_rollback(self: DefaultDialect, connection: Any) -> None:
        under_way.steps = ()
        roll_back(self, connection)

    Database.write = watched_write
    Database.write_all = watched_write_all
    moving.make = watched_make
    DefaultDialect.do_commit = watched_commit
    DefaultDialect.do_rollback = watched_rollback


def _step_of(work: Callable[[Any], Any]) -> str:
    """ "db.create_job" of `SqlJobs.create_job.<locals>.work`."""
    shelf, _, method = work.__qualname__.partition(".<locals>")[0].rpartition(".")
    step = ("queue." if shelf.startswith("Sqlite") else "db.") + NAMED.get(method, method).strip("_")
    if step not in STEPS:
        msg = f"{work.__qualname__} writes to a database, and {step} is no step of tests/chaos/points.py"
        raise LookupError(msg)
    return step


def _watch_making(trap: Trap) -> None:
    """New databases: before is inside the transaction that makes the tables."""
    migrate, upgrade, wal, make = sql_schema.migrate, sql_schema._upgrade, queue_schema.make_wal, queue_schema._make

    def watched_migrate(connection: Any, where: str) -> None:
        migrate(connection, where)
        trap.hit("db.migrate.before")

    def watched_upgrade(path: Path) -> None:
        upgrade(path)
        trap.hit("db.migrate.after")

    def watched_wal(path: Path) -> None:
        wal(path)
        trap.hit("queue.make.before")

    def watched_make(path: Path) -> None:
        make(path)
        trap.hit("queue.make.after")

    sql_schema.migrate, sql_schema._upgrade = watched_migrate, watched_upgrade
    queue_schema.make_wal, queue_schema._make = watched_wal, watched_make


# ---- objects ------------------------------------------------------------------------------------


def _watch_objects(trap: Trap) -> None:
    for name in ("put_if_absent", "put_file_if_absent"):
        _around(local.LocalObjects, name, trap, lambda _, uri, *__: put_step(uri))
    for name in ("publish", "delete"):
        _around(local.LocalObjects, name, trap, lambda *_, step=name: step)


def put_step(uri: str) -> str:
    """The step of an object, by its name."""
    folder, _, name = uri.rpartition("/")
    if folder.endswith("/_parts"):
        return "void.put" if name.endswith("-void.parquet") else "part.put"
    if folder.endswith("/staged"):
        return "staged.put"
    if name.endswith(".arrow"):
        return "frozen.put"
    known = {"_manifest.json": "manifest.put", "_SUCCESS": "success.put"}
    return known.get(name, "ordered.put" if name.startswith("part-") else "other.put")


def _watch_files(trap: Trap) -> None:
    write = local._write

    def watched_write(path: Path, data: bytes) -> None:
        trap.check_objects()
        if trap.kills_next("file.half.before"):
            path.write_bytes(data[: len(data) // 2])
        trap.hit("file.half.before")
        write(path, data)

    local._write = watched_write
    for name in ("link", "fsync"):
        _around(os, name, trap, lambda *_, step=f"file.{name}": step)
    for module in (staging, order):
        _watch_writer(module, trap)


def _watch_writer(module: Any, trap: Trap) -> None:
    writer = module.writer

    @contextmanager
    def watched(*args: Any, **options: Any) -> Iterator[Any]:
        with writer(*args, **options) as out:
            trap.check_objects()
            yield out
            trap.hit("scratch.half.before")

    module.writer = watched


# ---- the engine ---------------------------------------------------------------------------------


def _watch_engine(trap: Trap) -> None:
    poll, start = EngineProcess.poll, Child.__init__

    def watched_poll(self: EngineProcess, timeout_s: float) -> Any:
        results = poll(self, timeout_s)
        if results:
            trap.hit("engine.results.after")
        return results

    def watched_start(self: Child, *args: Any) -> None:
        start(self, *args)
        trap.engine_pid = self.pid

    EngineProcess.poll = watched_poll
    Child.__init__ = watched_start
    _around(Beat, "step", trap, lambda *_: "beat.step")
    for name in ("launch", "submit", "stop"):
        _around(EngineProcess, name, trap, lambda *_, step=f"engine.{name}": step)
