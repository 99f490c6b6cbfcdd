"""What PostgreSQL does to a store: it restarts, forgets its answers, becomes a standby, has no room, makes it wait."""

import threading
import time

import pytest

from infra.doctor import examine
from infra.settings import load
from infra.sql import AT_ONCE, PostgresPolicy, open_store
from jobs.errors import Conflict, DatabaseUnavailable, StorageFull, WrongState
from jobs.model import JobState, Usage
from jobs.moves import Answer
from tests.factories import Planned, a_commit, a_job, a_lease, a_release
from tests.support.cutter import Cutter
from tests.support.postgres import eventually, postgres_server

pytestmark = pytest.mark.integration

SHORT = PostgresPolicy(statement_s=1.0, idle_s=0.4, lock_s=0.8, retry_s=0.5)
THREADS, TASKS = 8, 25
GUARDS = {Answer.MADE, Answer.ALREADY}


@pytest.fixture(scope="module")
def own():
    """A server that is not shared with other tests: here it goes up and down."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def database(own):
    with own.database() as found:
        yield found


@pytest.fixture
def open_one(database):
    opened = []

    def one(url=database.url, **options):
        opened.append(open_store(url, **options))
        return opened[-1]

    yield one
    for store in opened:
        store.close()


@pytest.fixture
def cutter(own):
    """A line that breaks where a test says."""
    line = Cutter(own)
    yield line
    line.close()


# ---- the server goes away -------------------------------------------------------------------------


def carry(store, planned, mine, done):
    """All moves of some tasks, each task alone; what was not answered is asked for again by the store itself."""
    for number in mine:
        task = planned.task(number)
        store.make([a_release(task, planned.leader, ticket=f"ticket-{number}")])
        assert planned.task(number).ticket == f"ticket-{number}"  # made now, or before a lost answer
        assert store.make([a_lease(planned.task(number), token=f"token-{number}")])[0] in GUARDS
        assert store.make([a_commit(planned.job, planned.task(number))])[0] in GUARDS
        store.fold()
        done.append(number)


def test_a_server_that_crashes_under_commits_loses_none_and_makes_none_twice(own, open_one):
    store = open_one()
    planned = Planned(store, tasks=THREADS * TASKS)
    done, errors = [], []

    def thread(mine):
        try:
            carry(store, planned, mine, done)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=thread, args=(range(n, THREADS * TASKS, THREADS),)) for n in range(THREADS)]
    for one in threads:
        one.start()
    for share in (0.25, 0.5, 0.75):
        assert eventually(lambda share=share: len(done) >= share * THREADS * TASKS or errors)
        own.crash()
    for one in threads:
        one.join()
    assert not errors
    while store.fold().transactions:
        pass
    report = store.verify()
    assert (report.faults, report.transactions, report.unsealed) == ((), THREADS * TASKS, 0)
    assert store.job(planned.job.id).usage.rows == 10 * THREADS * TASKS
    assert [part.task for part in store.parts(planned.job.id)] == planned.ids
    assert store.open_reservations(planned.job.id) == {}


def test_a_server_that_stays_away_is_unavailable_in_bounded_time_and_then_found_again(own, open_one):
    store = open_one(policy=SHORT)
    planned = Planned(store)
    leased = planned.leased()
    own.control("stop", "-m", "fast")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="refused"):
        store.make([a_commit(planned.job, leased)])
    with pytest.raises(DatabaseUnavailable):
        store.jobs()
    assert time.monotonic() - began < 5.0
    own.control("start")
    assert store.make([a_commit(planned.job, leased)]) == [Answer.MADE]


def test_a_server_that_became_a_standby_is_left_for_the_one_that_took_over(own, open_one):
    """Told by what a standby says to a write; here it says so for a moment."""
    store = open_one()
    job = store.create_job(a_job(), [])

    def set_read_only(to):
        own.run(f"ALTER SYSTEM SET default_transaction_read_only = {to}")
        own.run("SELECT pg_reload_conf()")

    set_read_only("on")
    try:
        assert eventually(lambda: own.run("SHOW default_transaction_read_only") == [("on",)])
        back = threading.Timer(0.5, set_read_only, ["off"])
        back.start()
        paused = store.set_state(job.id, expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED)
        back.join()
    finally:
        own.run("SET default_transaction_read_only = off")
        set_read_only("off")
    assert paused.state is JobState.PAUSED


def test_a_failover_to_a_synchronous_standby_loses_nothing():
    with postgres_server() as primary, primary.new_database() as database:
        with primary.standby() as standby:
            hosts = f"host=127.0.0.1:{primary.port}&host=127.0.0.1:{standby.port}&target_session_attrs=read-write"
            store = open_store(f"postgresql://nightmill@/{database.name}?{hosts}")
            planned = Planned(store, tasks=40)
            leased = [planned.leased(number) for number in range(40)]
            answers = []

            def commit():
                answers.extend(store.make([a_commit(planned.job, task)])[0] for task in leased)

            assert standby_check(database.url) == ("ok", "1 synchronous: a failover loses no commit")
            thread = threading.Thread(target=commit)
            thread.start()
            assert eventually(lambda: len(answers) > 10)
            primary.control("stop", "-m", "immediate")
            standby.control("promote")
            thread.join()
            assert set(answers) <= GUARDS
            assert [part.task for part in store.parts(planned.job.id)] == planned.ids
            assert store.verify().faults == ()
            store.close()
        primary.control("start")
        level, found = standby_check(database.url)
        primary.run("ALTER SYSTEM RESET synchronous_standby_names")
        primary.run("SELECT pg_reload_conf()")
        assert level == "fail"
        assert "every commit waits" in found


def standby_check(url):
    """What the doctor says."""
    settings = load(environ={"NIGHTMILL_DATABASE_URL": url})
    return next((c.level, c.found) for c in examine(settings) if c.name == "standby")


# ---- answers get lost -----------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_already_made(open_one, cutter, database):
    planned = Planned(open_one())
    leased = planned.leased()
    store = open_one(cutter.url(database), pace=AT_ONCE)
    cutter.cut()
    assert store.make([a_commit(planned.job, leased)]) == [Answer.ALREADY]
    assert cutter.cuts == 1
    assert planned.store.fold().transactions == 1
    assert planned.store.verify().faults == ()


def test_a_commit_that_was_lost_itself_is_made(open_one, cutter, database):
    planned = Planned(open_one())
    leased = planned.leased()
    store = open_one(cutter.url(database), pace=AT_ONCE)
    cutter.cut(before=True, times=3)
    assert store.make([a_commit(planned.job, leased)]) == [Answer.MADE]
    assert cutter.cuts == 3
    assert planned.store.verify().faults == ()


def test_a_lost_lease_answer_gives_the_lease_to_whoever_asked(open_one, cutter, database):
    planned = Planned(open_one())
    released = planned.released()
    store = open_one(cutter.url(database), pace=AT_ONCE)
    cutter.cut()
    assert store.make([a_lease(released, token="mine")]) == [Answer.ALREADY]
    assert planned.task().token == "mine"


def test_a_job_whose_making_was_not_answered_is_made_once_and_is_no_conflict(open_one, cutter, database):
    store = open_one(cutter.url(database))
    cutter.cut()
    made = store.create_job(a_job(), [])
    assert (made, cutter.cuts) == (store.job("job-a"), 1)
    with pytest.raises(Conflict):
        store.create_job(a_job(), [])


def test_a_change_of_state_that_was_not_answered_is_no_wrong_state(open_one, cutter, database):
    store = open_one(cutter.url(database))
    job = store.create_job(a_job(), [])
    cutter.cut()
    change = {"expect": frozenset({JobState.RUNNING}), "to": JobState.PAUSED}
    assert store.set_state(job.id, **change).state is JobState.PAUSED
    assert (store.job(job.id).version, cutter.cuts) == (1, 1)
    with pytest.raises(WrongState):
        store.set_state(job.id, **change)


def test_an_end_that_was_not_answered_is_still_this_finaliser_s(open_one, cutter, database):
    """Or nobody would write `_SUCCESS`."""
    planned = Planned(open_one())
    planned.done()
    store = open_one(cutter.url(database))
    end = {"version": 0, "to": JobState.COMPLETED, "reason": "", "manifest": "/m", "void": Usage()}
    cutter.cut()
    assert store.finalise(planned.job.id, **end)
    assert cutter.cuts == 1
    assert not store.finalise(planned.job.id, **end)
    assert store.verify().faults == ()


def test_an_answer_to_a_question_that_got_lost_is_asked_for_again(open_one, database, own):
    store = open_one()
    job = store.create_job(a_job(), [])
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'nightmill'"
    for ask in (lambda: store.job(job.id), store.jobs, store.verify, lambda: list(store.parts(job.id)), store.now):
        assert own.run(end)
        ask()


# ---- the server makes one wait --------------------------------------------------------------------


@pytest.fixture
def frozen(database):
    """A client that stopped in the middle of a transaction, and what the server says of it."""
    psycopg = pytest.importorskip("psycopg")
    opened = []

    def freeze(statement, idle_s=0.0):
        connection = psycopg.connect(database.url)
        connection.execute(f"SET idle_in_transaction_session_timeout = {round(1000 * idle_s)}")
        connection.commit()
        connection.execute(statement)
        opened.append(connection)

    yield freeze
    for connection in opened:
        connection.close()


def test_a_statement_that_takes_too_long_is_ended(open_one):
    store = open_one(policy=SHORT)
    with pytest.raises(DatabaseUnavailable, match="canceling statement due to statement timeout"):
        store._db.ask(lambda c: c.exec_driver_sql("SELECT pg_sleep(20)"))
    assert store.jobs() == []


def test_a_row_that_another_holds_too_long_is_not_waited_for_for_ever(open_one, frozen):
    store = open_one(policy=SHORT)
    store.create_job(a_job(), [])
    frozen("SELECT * FROM jobs FOR UPDATE")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match="canceling statement due to lock timeout"):
        store.set_state("job-a", expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED)
    assert time.monotonic() - began < 3.0


def test_a_frozen_holder_of_a_row_is_ended_before_others_lose_patience(open_one, frozen):
    store = open_one(policy=SHORT)
    store.create_job(a_job(), [])
    frozen("SELECT * FROM jobs FOR UPDATE", idle_s=SHORT.idle_s)
    change = {"expect": frozenset({JobState.RUNNING}), "to": JobState.PAUSED}
    assert store.set_state("job-a", **change).state is JobState.PAUSED


def test_our_own_transaction_is_ended_when_we_freeze_and_made_when_we_thaw(open_one):
    store = open_one(policy=SHORT)
    job = store.create_job(a_job(), [])
    frozen_once = []

    def work(connection):
        connection.exec_driver_sql("UPDATE jobs SET reason = 'thawed'")
        if not frozen_once:
            frozen_once.append(time.sleep(3 * SHORT.idle_s))

    store._db.write(work)
    assert store.job(job.id).reason == "thawed"


def test_a_deadlock_is_tried_again(open_one):
    store = open_one()
    for name in "ab":
        store.create_job(a_job(f"job-{name}"), [])
    meet, runs = threading.Barrier(2, timeout=20), []

    def update(first, second):
        def work(connection):
            runs.append(first)
            connection.exec_driver_sql(f"UPDATE jobs SET reason = reason || 'x' WHERE id = 'job-{first}'")
            if runs.count(first) == 1:
                meet.wait()
            connection.exec_driver_sql(f"UPDATE jobs SET reason = reason || 'x' WHERE id = 'job-{second}'")

        store._db.write(work)

    threads = [threading.Thread(target=update, args=pair) for pair in ("ab", "ba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [job.reason for job in store.jobs()] == ["xx", "xx"]
    assert len(runs) == 3


def test_moves_of_the_same_tasks_in_any_order_never_deadlock(open_one, own):
    """Two processes want the same tasks, each in its own order; only the lock order of moves keeps them apart."""
    before = len(own.log())
    stores = [open_one(), open_one()]
    planned = Planned(stores[0], tasks=40)
    leased = [planned.leased(number) for number in range(40)]
    orders = [leased, leased[::-1]]
    threads = [
        threading.Thread(target=store.make, args=([a_commit(planned.job, task) for task in order],))
        for store in stores
        for order in orders
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "deadlock detected" not in own.log()[before:]
    assert stores[0].verify().faults == ()
    assert len(list(stores[0].parts(planned.job.id))) == 40


# ---- the server has no room -----------------------------------------------------------------------


def test_a_full_disk_is_told_as_such_and_leaves_everything_as_it_was(open_one, database):
    """The server says what it says when it cannot extend a file; here a trigger says it."""
    store = open_one()
    planned = Planned(store)
    leased = planned.leased()
    says = "RAISE EXCEPTION 'could not extend file \"base/1/2\": No space left on device' USING ERRCODE = 'disk_full'"
    database.run(f"CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {says}; END $$")
    database.run("CREATE TRIGGER no_room BEFORE INSERT ON entries EXECUTE FUNCTION no_room()")
    try:
        with pytest.raises(StorageFull, match=r"holds postgresql://.*Free some space"):
            store.make([a_commit(planned.job, leased)])
    finally:
        database.run("DROP FUNCTION no_room() CASCADE")
    assert planned.task() == leased
    assert store.make([a_commit(planned.job, leased)]) == [Answer.MADE]
    assert store.verify().faults == ()
