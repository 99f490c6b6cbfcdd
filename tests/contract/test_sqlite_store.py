"""What only the SQLite adapter promises: its file, its triggers, its plans, its migrations."""

import sqlite3
import subprocess
import sys
import threading
import time

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from infra.sql import AT_ONCE, engine, open_store, schema, tables, tidying
from infra.sql.faults import DatabaseNewer
from jobs.errors import Broken, DatabaseUnavailable, StorageFull
from jobs.model import TaskState
from jobs.tenancy import Tenant
from tests.factories import Planned, a_commit, a_job

pytestmark = pytest.mark.contract


@pytest.fixture
def store(sqlite_home, clock):
    opened = open_store(sqlite_home, clock=clock, pace=AT_ONCE)
    yield opened
    opened.close()


def run(store, statement, *parameters):
    return store._db.write(lambda connection: connection.exec_driver_sql(statement, parameters).rowcount)


def pragma(connection, name):
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_every_connection_is_set_up_to_survive_a_power_cut(tmp_path):
    store = open_store(tmp_path, pace=AT_ONCE)
    wanted = {
        "journal_mode": "wal", "synchronous": 2, "busy_timeout": 30000, "wal_autocheckpoint": 1000,
        "recursive_triggers": 1,
    }  # fmt: skip
    with store._db.read() as reader:
        assert {name: pragma(reader, name) for name in wanted} == wanted
    wanted["busy_timeout"] = 1  # it tries again itself
    assert store._db.write(lambda writer: {name: pragma(writer, name) for name in wanted}) == wanted
    store.close()


@pytest.fixture
def locked(sqlite_home, store):
    """The database, while another connection writes."""
    other = sqlite3.connect(sqlite_home / "nightmill.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield other
    other.close()


def test_a_write_waits_for_another_process_s(store, locked):
    timer = threading.Timer(0.2, lambda: locked.execute("COMMIT"))
    timer.start()
    began = time.monotonic()
    store.put_tenant(Tenant(name="late"), "test")
    assert time.monotonic() - began > 0.15
    assert store.tenant("late") is not None
    timer.join()


def test_a_write_that_waits_too_long_is_told_and_leaves_the_next_one_to_go_on(store, locked, monkeypatch):
    monkeypatch.setattr(engine, "_LOCK_S", 0.1)
    with pytest.raises(DatabaseUnavailable, match="database is locked"):
        store.put_tenant(Tenant(name="late"), "test")
    locked.execute("ROLLBACK")
    store.put_tenant(Tenant(name="late"), "test")
    assert store.tenant("late") is not None


@pytest.mark.parametrize("table", ["entries", "blocks", "sealed"])
@pytest.mark.parametrize(
    "statement",
    ["UPDATE {0} SET txn = txn", "DELETE FROM {0}", "INSERT OR REPLACE INTO {0} SELECT * FROM {0}"],
)
def test_the_book_is_append_only(store, table, statement):
    Planned(store).done()
    store.fold()
    column = {"blocks": "root"}.get(table, "txn")
    with pytest.raises(Broken, match=f"{table} is append-only"):
        run(store, statement.format(table).replace("txn", column))
    assert store.verify().faults == ()


def test_what_is_committed_is_moved_into_the_file_beside_the_writers(sqlite_home, store):
    reader = engine.sqlite_reader(sqlite_home / "nightmill.db")
    store._db._tidier.close()  # else it may be there first
    store.put_tenant(Tenant(name="a"), actor="test")
    with store._db._engine.begin():  # a writer at work: nobody waits for it
        pages, moved = tidying.tidy(reader)
    assert pages == moved > 0
    reader.dispose()


def test_a_tidier_goes_to_work_a_while_after_a_commit_and_rests_until_the_next(monkeypatch):
    done, asked = [], threading.Event()

    def tidy(_):
        done.append(1)
        asked.set()
        if len(done) == 1:
            raise sa.exc.OperationalError("PRAGMA", None, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(tidying, "tidy", tidy)
    tidier = tidying.Tidier(None, every_s=0.01)
    assert tidier._thread is None
    for number in (1, 2):  # the first one fails, which ends nothing
        asked.clear()
        tidier.stir()
        assert asked.wait(10)
        time.sleep(0.05)
        assert len(done) == number
    tidier.close()
    assert not tidier._thread.is_alive()


def test_a_tidier_that_rests_is_closed_at_once(monkeypatch):
    monkeypatch.setattr(tidying, "tidy", lambda _: pytest.fail("nobody may be there any more"))
    tidier = tidying.Tidier(None, every_s=3600.0)
    tidier.stir()
    tidier.close()
    assert not tidier._thread.is_alive()


def test_a_charge_is_written_once_whatever_the_tasks_say(store):
    p = Planned(store)
    leased = p.leased()
    store.make([a_commit(p.job, leased)])
    run(store, "DELETE FROM parts")
    run(store, "UPDATE tasks SET state = 'leased', token = ?", leased.token)
    with pytest.raises(Exception, match=r"entries\.txn"):
        store.make([a_commit(p.job, leased)])


def test_the_head_constant_is_alembic_s_head():
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.HEAD]


def test_the_migrations_make_the_tables(store):
    with store._db.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def test_the_migrations_make_the_very_indexes_and_keys(store):
    """Compared as SQL text: alembic's own comparison is blind to WHERE, AUTOINCREMENT and the order of columns."""
    fresh = sa.create_engine("sqlite://")
    tables.metadata.create_all(fresh)
    query = sa.text(
        "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'index') AND name NOT LIKE 'sqlite_%'"
        " AND name <> 'alembic_version' AND sql IS NOT NULL"
    )
    with store._db.read() as migrated, fresh.connect() as made:
        have, want = ({name: " ".join(sql.split()) for name, sql in c.execute(query)} for c in (migrated, made))
    fresh.dispose()
    assert have == want


def test_opening_a_database_that_is_up_to_date_loads_no_alembic(tmp_path):
    open_store(tmp_path).close()
    program = (
        "import sys, pathlib\n"
        "from infra.sql import open_store\n"
        "open_store(pathlib.Path(sys.argv[1])).close()\n"
        "print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_copy_of_the_database_is_brought_back_to_wal_mode(tmp_path):
    store = open_store(tmp_path, pace=AT_ONCE)
    (tmp_path / "copy").mkdir()
    with store._db.read() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{tmp_path}/copy/nightmill.db'")
    store.close()
    copy = open_store(tmp_path / "copy")
    with copy._db.read() as connection:
        assert pragma(connection, "journal_mode") == "wal"
    copy.close()


def test_a_database_of_a_later_release_is_refused(tmp_path):
    store = open_store(tmp_path, pace=AT_ONCE)
    run(store, "UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(DatabaseNewer, match="revision 9999"):
        open_store(tmp_path)


def test_a_file_that_is_no_database_says_so(tmp_path):
    (tmp_path / "nightmill.db").write_bytes(b"not a database" * 100)
    with pytest.raises(DatabaseUnavailable, match="file is not a database"):
        open_store(tmp_path)


def test_a_home_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseUnavailable, match=r"nightmill\.db"):
        open_store(tmp_path / "file" / "home")


def test_a_full_disk_is_told_as_such_and_leaves_everything_as_it_was(store):
    p = Planned(store)
    leased = p.leased()
    pages = store._db.write(lambda c: pragma(c, "page_count"))
    store._db.write(lambda c: pragma(c, f"max_page_count = {pages}"))
    with pytest.raises(StorageFull, match="Free some space"):
        store.create_job(a_job("job-b", reason="x" * 100_000), [])
    store._db.write(lambda c: pragma(c, "max_page_count = 1000000"))
    assert store.make([a_commit(p.job, leased)]) == ["made"]


@pytest.mark.parametrize(
    ("read", "index"),
    [
        (lambda s, job: s.tasks(job, frozenset({TaskState.QUEUED}), 10), "tasks_pick (job=? AND state=?)"),
        (lambda s, job: s.leased_by("worker"), "tasks_of_owner (owner=?)"),
        (lambda s, job: s.overdue("pool"), "tasks_leased (pool=?)"),
        (lambda s, job: s.owners(), "tasks_of_owner"),
        (lambda s, job: s.pending(10, "pool"), "outbox_pending (pool=?)"),
        (lambda s, job: s.open_reservations(job), "reservations_open (job=?)"),
        (lambda s, job: list(s.parts(job)), "parts_in_order (job=? AND position>?)"),
        (lambda s, job: list(s.entries(job_id=job)), "entries_of_job (job=? AND id>?)"),
        (lambda s, job: s.statement("t", since=1.0), "entries_of_tenant (tenant=? AND at>?)"),
        (lambda s, job: s.active_jobs("pool"), "jobs_active (pool=?)"),
        (lambda s, job: s.pressing_jobs("pool", most=10, patience_s=1.0), "jobs_active (pool=?)"),
        (lambda s, job: s.heads([job]), "tasks_pick (job=? AND state=?)"),
        (lambda s, job: s.with_open_tasks([job]), "tasks_pick (job=? AND state=?)"),
        (lambda s, job: s.unsealed(), "jobs_unsealed"),
        (lambda s, job: s.children(job), "jobs_of_parent (parent=?)"),
        (lambda s, job: s.task_counts(job), "tasks_pick (job=?)"),
    ],
)
def test_hot_reads_use_their_index(store, read, index):
    p = Planned(store)
    plans = []

    def explain(connection, cursor, statement, parameters, context, many):
        if statement.startswith("SELECT"):
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in cursor.fetchall())

    sa.event.listen(store._db._reader, "before_cursor_execute", explain)
    read(store, p.job.id)
    sa.event.remove(store._db._reader, "before_cursor_execute", explain)
    assert any(f"INDEX {index}" in plan for plan in plans), plans
    if "tasks_pick (job=? AND state" in index:
        assert not [plan for plan in plans if "TEMP B-TREE" in plan]
