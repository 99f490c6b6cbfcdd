"""What only the PostgreSQL adapter promises: its sessions, its triggers, its plans, its migrations, its locks."""

import re
import threading

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from infra.sql import AT_ONCE, PostgresPolicy, open_store, postgres, schema, tables
from infra.sql.faults import DatabaseNewer, DatabaseUnfit
from jobs.errors import Broken, Conflict, DatabaseUnavailable
from jobs.model import JobState, TaskState
from jobs.ports.store import End, Place, Progress
from tests.factories import PRICE, USAGE, Planned, a_job, a_lease, a_release
from tests.support.filing import a_batch, a_file
from tests.support.postgres import eventually
from tests.support.together import together

pytestmark = pytest.mark.contract

LEASED = "tasks_of_owner|tasks_leased"
"""Either holds the leased tasks alone; which is better the planner knows only from statistics."""
END = {"version": 99, "to": JobState.FAILED, "reason": "", "manifest": "", "void": USAGE}
ROWS = 3000
"""Enough for the planner to prefer another way where there is one."""


@pytest.fixture
def database(postgres):
    with postgres.database() as found:
        yield found


@pytest.fixture
def store(database):
    opened = open_store(database.url)
    yield opened
    opened.close()


def run(store, statement):
    return store._db.write(lambda connection: connection.exec_driver_sql(statement).rowcount)


# ---- sessions ---------------------------------------------------------------------------------------


def test_every_session_is_bounded_in_time_and_survives_a_power_cut(store):
    wanted = {
        "statement_timeout": "30s", "lock_timeout": "12s", "idle_in_transaction_session_timeout": "8s",
        "synchronous_commit": "on", "application_name": "nightmill", "transaction_isolation": "read committed",
        "enable_seqscan": "off",
    }  # fmt: skip

    def settings(connection):
        return {name: connection.exec_driver_sql(f"SHOW {name}").scalar() for name in wanted}

    assert store._db.write(settings) == wanted
    assert store._db.ask(settings) == wanted
    assert store._db.write(settings, durable=False) == wanted | {"synchronous_commit": "off"}
    assert store._db.write(settings) == wanted


def test_a_process_holds_no_more_connections_than_it_may(database):
    store = open_store(database.url, policy=PostgresPolicy(connections=2))
    job = store.create_job(a_job(), [])
    assert together([lambda: store.job(job.id)] * 12) == [job] * 12
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'nightmill' AND datname = %s"
    assert database.run(count, database.name) == [(2,)]
    store.close()
    assert eventually(lambda: database.run(count, database.name) == [(0,)])


def test_what_the_url_says_of_the_connection_stays(database):
    store = open_store(f"{database.url}?application_name=mine")
    assert store._db.ask(lambda c: c.exec_driver_sql("SHOW application_name").scalar()) == "mine"
    store.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_url_is_taken_as_users_write_it_and_shown_without_its_password(scheme):
    url = postgres.parse(f"{scheme}://ann:se%40cret@db.example:5433/mill?sslmode=require")
    assert (url.drivername, url.password, url.query["sslmode"]) == ("postgresql+psycopg", "se@cret", "require")
    assert postgres.shown(url) == "postgresql://ann@db.example:5433/mill"


@pytest.mark.parametrize("text", ["mysql://ann:secret@h/x", "secret"])
def test_another_url_is_refused_without_its_password(text):
    with pytest.raises(DatabaseUnfit) as caught:
        open_store(text)
    assert "secret" not in caught.value.sentence


def test_a_server_that_does_not_listen_is_unavailable_at_once():
    with pytest.raises(DatabaseUnavailable, match=r"postgresql://ann@127\.0\.0\.1:1/x does not answer: .*refused"):
        open_store("postgresql://ann:secret@127.0.0.1:1/x")


def test_a_database_that_is_not_there_says_so(database):
    with pytest.raises(DatabaseUnavailable, match='database "nowhere" does not exist'):
        open_store(database.server.url("nowhere"))


# ---- the book ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["entries", "blocks", "sealed"])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {0} SET {1} = {1}",
        "DELETE FROM {0}",
        "TRUNCATE {0}",
        "INSERT INTO {0} SELECT * FROM {0} ON CONFLICT ({2}) DO UPDATE SET {1} = excluded.{1}",
    ],
)
def test_the_book_is_append_only(store, table, statement):
    Planned(store).done()
    store.fold()
    column = {"blocks": "root"}.get(table, "txn")
    key = {"entries": "id", "blocks": "block", "sealed": "block, position"}[table]
    with pytest.raises(Broken, match=f"{table} is append-only"):
        run(store, statement.format(table, column, key))
    assert store.verify().faults == ()


def test_the_details_of_a_conflict_stay_with_the_server(store):
    store.create_job(a_job(), [])
    statement = "INSERT INTO input_files VALUES ('job-of-another', 0, 'x'), ('job-of-another', 0, 'x')"
    with pytest.raises(Conflict) as caught:
        run(store, statement)
    assert "job-of-another" not in caught.value.sentence
    assert "input_files_pkey" in caught.value.sentence


# ---- migrations -------------------------------------------------------------------------------------


def test_the_migrations_make_the_tables(store):
    def differences(connection):
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), tables.metadata)

    assert store._db.ask(differences) == []


SHAPE = """
    SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, l.collname
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
"""


def test_the_migrations_make_the_very_columns_indexes_and_keys(database, postgres):
    with postgres.new_database() as other:
        engine = sa.create_engine(other.url.replace("postgresql:", "postgresql+psycopg:"))
        tables.metadata.create_all(engine)
        engine.dispose()
        made = set(other.run(SHAPE))
    migrated = {row for row in database.run(SHAPE) if row[1] != "alembic_version"}
    assert migrated == made
    assert {row[5] for row in made if row[0] == "column" and row[3] == "text"} == {"C"}


def test_the_tables_are_kept_as_they_should_be(database):
    found = dict(database.run("SELECT relname, reloptions FROM pg_class WHERE reloptions IS NOT NULL"))
    assert {name: sorted(options) for name, options in found.items() if name in tables.metadata.tables} == {
        name: sorted(f"{key}={value}" for key, value in options.items()) for name, options in tables.STORAGE.items()
    }


def test_a_database_of_a_later_release_is_refused(postgres):
    with postgres.new_database() as database:
        open_store(database.url).close()
        database.run("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(DatabaseNewer, match="revision 9999"):
            open_store(database.url)


def test_a_database_that_cannot_hold_every_text_is_refused(postgres):
    with postgres.new_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0") as database:
        with pytest.raises(DatabaseUnfit, match="encoding is LATIN1"):
            open_store(database.url)
        assert database.run("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


def test_a_migration_that_fails_leaves_nothing_behind(postgres, monkeypatch):
    monkeypatch.setattr(schema, "HEAD", "0000")  # never reached: so it migrates at each opening
    with postgres.new_database() as database:
        database.run("CREATE TABLE wastes ()")
        with pytest.raises(Broken, match='relation "wastes" already exists'):
            open_store(database.url)
        assert database.run("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("wastes",)]


# ---- plans ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(postgres):
    """A database whose planner knows nothing of what was written since it was empty, which is how a queue finds it."""
    with postgres.new_database() as database:
        store = open_store(database.url, pace=AT_ONCE)
        p = Planned(store, tasks=ROWS)
        database.run("ALTER TABLE tasks SET (autovacuum_enabled = off)")
        database.run("ANALYZE tasks")
        database.run("UPDATE tasks SET state = 'done' WHERE position > '00000000.000100'")
        for number in range(50):
            p.leased(number)
        for number in range(50, 60):
            p.released(number)
        p.done(60)
        yield p
        store.close()


@pytest.mark.parametrize(
    ("act", "index"),
    [
        (lambda s, job: s.tasks(job, frozenset({TaskState.QUEUED}), 10), "tasks_pick"),
        (lambda s, job: s.task(f"{job}-s00000.00001"), "tasks_pkey"),
        (lambda s, job: s.leased_by("worker"), LEASED),
        (lambda s, job: s.overdue("pool"), LEASED),
        (lambda s, job: s.owners(), LEASED),
        (lambda s, job: s.silent(f"pool-{job}", 0.0), "tasks_pkey"),
        (lambda s, job: s.pending(10, f"pool-{job}"), "outbox_pending"),
        (lambda s, job: s.open_reservations(job), "reservations_open"),
        (lambda s, job: list(s.parts(job)), "parts_in_order"),
        (lambda s, job: list(s.entries(job_id=job)), "entries_of_job"),
        (lambda s, job: s.unsealed(), "jobs_unsealed"),
        (lambda s, job: s.active_jobs(f"pool-{job}"), "jobs_active"),
        (lambda s, job: s.pressing_jobs(f"pool-{job}", most=10, patience_s=1.0), "jobs_active"),
        (lambda s, job: s.heads([job]), "tasks_pick"),
        (lambda s, job: s.with_open_tasks([job]), "tasks_pick"),
        (lambda s, job: s.released(f"pool-{job}"), "tasks_pkey"),
        (lambda s, job: s.children(job), "jobs_of_parent"),
        (lambda s, job: s.task_counts(job), "tasks_pick"),
        (lambda s, job: s.make([a_lease(s.task(f"{job}-s00000.00055"), token="x")]), "tasks_pkey"),
        (lambda s, job: s.beat("worker", [Progress(token="token-1", usage=USAGE)], 30.0), LEASED),
        (lambda s, job: s.fold(), "inbox_pkey"),
        (lambda s, job: s.census(), "jobs_active"),
        (lambda s, job: s.census(), "outbox_pending"),
        (lambda s, job: s.census(), LEASED),
        (lambda s, job: s.census(), "reservations_open"),
        (lambda s, job: s.finalise(job, **END), "tasks_pick"),
    ],
)
def test_whatever_is_done_often_uses_its_index_and_reads_no_table_through(large, act, index):
    plans = []

    def explain(connection, cursor, statement, parameters, context, many):
        if statement.startswith(("SELECT", "UPDATE", "DELETE")) and not many:
            cursor.execute(f"EXPLAIN {statement}", parameters)
            plans.extend(row[0] for row in cursor.fetchall())

    engine = large.store._db._engine
    sa.event.listen(engine, "before_cursor_execute", explain)
    act(large.store, large.job.id)
    sa.event.remove(engine, "before_cursor_execute", explain)
    assert any(re.search(index, plan) for plan in plans), plans
    assert not [plan for plan in plans if "Seq Scan" in plan]
    if index == "tasks_pick":
        assert not [plan for plan in plans if "Sort" in plan]


# ---- many at once -----------------------------------------------------------------------------------


def test_leaders_at_the_same_time_get_epochs_of_their_own(store):
    epochs = together([lambda: store.lead("scope", "me").epoch] * 8)
    assert sorted(epochs) == list(range(1, 9))


def test_creates_with_the_same_key_at_the_same_time_make_one_job(store):
    made = together([lambda n=n: store.create_job(a_job(f"job-{n}", idempotency_key="k"), []) for n in range(8)])
    assert len({job.id for job in made}) == len(store.jobs()) == 1


def test_the_same_price_set_at_the_same_time_is_set_once(store):
    assert together([lambda: store.set_price(PRICE)] * 8) == [None] * 8
    assert store.prices() == [PRICE]


def test_a_segment_planned_at_the_same_time_is_planned_once(store):
    job = store.create_job(a_job(), [])
    assert sorted(together([lambda: store.plan_segment(job.id, 0, [], last=True)] * 6)) == [False] * 5 + [True]


def test_lists_that_lock_shared_rows_are_no_members_of_a_group(store, monkeypatch):
    """In a group their locks would come in an order that depends on who came first."""
    store.create_job(a_job("job-a"), [])
    monkeypatch.setattr(store._db, "_writer", None)
    made = store.create_jobs([(a_job("job-b"), [])])
    planned = store.plan_segments([(name, 0, [], True) for name in ("job-a", "job-b")])
    ended = store.finalise_all([End("job-a", 0, JobState.COMPLETED, "", "/m", USAGE)])
    files = store.add_files([a_file()])
    assert ([job.id for job in made], planned, ended, len(files)) == (["job-b"], [True, True], [True], 1)
    assert store.change_batches([a_batch()]) == [None]
    monkeypatch.undo()


def test_folders_at_the_same_time_fold_each_commit_once(store):
    p = Planned(store, tasks=30)
    for number in range(30):
        p.done(number)
    folds = together([lambda: [store.fold(max_entries=12).transactions for _ in range(4)]] * 4)
    assert sum(map(sum, folds)) == 30
    report = store.verify()
    assert (report.faults, report.transactions, report.unsealed) == ((), 30, 0)


def test_the_moves_of_a_task_made_at_the_same_time_are_made_once(store):
    p = Planned(store, tasks=6)
    released = [p.released(number) for number in range(6)]
    tokens = [f"token-{n}" for n in range(8)]
    answers = together([lambda t=t: store.make([a_lease(task, token=t) for task in released]) for t in tokens])
    held = [p.task(number).token for number in range(6)]
    for number, token in enumerate(held):
        assert [tokens[n] for n in range(8) if answers[n][number] == "made"] == [token]


def test_a_relay_waits_for_no_lease(store, database):
    """A lease deletes the message that the relay wants to mark; each may hold what the other wants next."""
    relay = open_store(database.url)
    p = Planned(store, tasks=2)
    released = [p.released(0), p.released(1)]
    ids = [row.id for row in store.pending(10)]
    place = Place(topic="t", topic_id="i", partition=0, offset=0)

    def lease_one_and_publish_both(connection):
        store._carry_out(connection, [a_lease(released[0])])
        relay.published(dict.fromkeys(ids, place))

    store._db.write(lease_one_and_publish_both)
    relay.close()
    assert store.pending(10) == []
    assert [task.id for task, _ in store.silent(p.job.pool, -60.0)] == [p.ids[1]]


def test_a_job_s_state_changes_only_after_the_releases_that_saw_it(store):
    """The release share-locks the job's row, so what a pause finds released is all that there will be."""
    p = Planned(store)
    paused = threading.Event()

    def pause():
        store.set_state(p.job.id, expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED)
        paused.set()

    def release_and_look(connection):
        assert store._carry_out(connection, [a_release(p.task(), p.leader)]) == ["made"]
        threading.Thread(target=pause).start()
        return paused.wait(0.3)

    assert store._db.write(release_and_look) is False
    assert paused.wait(10)
