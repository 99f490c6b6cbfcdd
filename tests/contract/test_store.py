"""The database port: one body over every adapter."""

import threading

import pytest
import sqlalchemy as sa

from jobs import ledger, moves
from jobs.errors import Conflict, LedgerBroken, NotFound, WrongState
from jobs.model import InputFile, JobState, Outcome, Priority, TaskState, Usage, VoidReason
from jobs.moves import Answer, Group
from jobs.ports.book import Fold, StatementLine
from jobs.ports.store import End, Leader, OutboxRow, Place, Progress
from jobs.ranges import Range
from jobs.sweeping import LeaseEnd
from tests.factories import PRICE, USAGE, Planned, a_commit, a_job, a_lease, a_part, a_release, a_task, a_waste
from tests.support.statements import said

pytestmark = pytest.mark.contract

ALL = frozenset(TaskState)
MADE, ALREADY, LOST = Answer.MADE, Answer.ALREADY, Answer.LOST


# ---- jobs -------------------------------------------------------------------------------------------


def test_a_job_comes_back_as_it_was_written(store):
    spec = a_job().spec.evolve(
        engine_args={"max_model_len": 512, "nested": {"a": [1, None, "x"]}},
        vary={"lang": ("de", "fr")},
        messages=(("system", "Say"), ("user", "{{ Näme }}")),
        kept=(("a", "a"), ("row", "row_in")),
        pause_on=None,
    )
    job = a_job(spec=spec, priority=Priority.HIGH, created_at=12.5, deadline_at=99.0, total_rows=7, parent="job-p")
    assert store.create_job(job, []) == job
    assert store.job(job.id) == job


def test_a_job_without_a_time_gets_the_database_s_and_its_deadline_from_it(store, clock):
    job = store.create_job(a_job(spec=a_job().spec.evolve(deadline_s=60.0)), [])
    assert (job.created_at, job.deadline_at) == (clock.now(), clock.now() + 60.0)


def test_a_used_idempotency_key_answers_with_the_first_job(store):
    first = store.create_job(a_job("job-a", idempotency_key="k"), [])
    assert store.create_job(a_job("job-b", idempotency_key="k"), []) == first
    assert [job.id for job in store.jobs()] == ["job-a"]


def test_an_idempotency_key_belongs_to_its_tenant(store):
    store.create_job(a_job("job-a", idempotency_key="k"), [])
    assert store.create_job(a_job("job-b", tenant="other", idempotency_key="k"), []).id == "job-b"
    keyed = [("default", "k"), ("other", "k"), ("default", "K"), ("nobody", "k")]
    assert [job and job.id for job in [store.job_of_key(*key) for key in keyed]] == ["job-a", "job-b", None, None]
    assert store.jobs_of_keys(keyed) == {keyed[0]: store.job("job-a"), keyed[1]: store.job("job-b")}
    assert store.jobs_of_keys([]) == {}


def test_what_a_job_was_asked_for_is_kept_with_it(store):
    job = store.create_job(a_job(idempotency_key="k", request={"prompt": "0a", "limit": "1b"}), [])
    assert store.job_of_key(job.tenant, "k").request == {"prompt": "0a", "limit": "1b"}


def test_an_id_is_taken_once(store):
    store.create_job(a_job("job-a"), [])
    with pytest.raises(Conflict, match="there is a job job-a"):
        store.create_job(a_job("job-a"), [])


def test_the_input_list_keeps_its_order(store):
    files = [
        InputFile(uri=f"/in/{n}", size=n, stamp="mtime_ns:1", rows=3, first_row=3 * n, row_groups=(2, 1))
        for n in reversed(range(3))
    ]
    job = store.create_job(a_job(), files)
    other = store.create_job(a_job("job-other"), files[:1])
    assert store.files(job.id) == files
    assert store.files_of([other.id, job.id, "job-x"]) == {other.id: files[:1], job.id: files, "job-x": []}
    assert store.files_of([]) == {}


def test_jobs_are_listed_newest_first_and_by_tenant(store):
    for number, tenant in enumerate(["a", "b", "a"]):
        store.create_job(a_job(f"job-{number}", tenant=tenant, created_at=1.0 + number), [])
    assert [job.id for job in store.jobs()] == ["job-2", "job-1", "job-0"]
    assert [job.id for job in store.jobs(tenant="a")] == ["job-2", "job-0"]
    assert [job.id for job in store.jobs(limit=1)] == ["job-2"]
    assert [job.id for job in store.jobs(after="job-2", limit=1)] == ["job-1"]
    assert [job.id for job in store.jobs(tenant="a", after="job-2")] == ["job-0"]
    with pytest.raises(NotFound):
        store.jobs(tenant="b", after="job-2")


def test_children_are_listed_oldest_first(store):
    store.create_job(a_job("job-p"), [])
    for number in (2, 1):
        store.create_job(a_job(f"job-{number}", parent="job-p", created_at=float(number)), [])
    assert [job.id for job in store.children("job-p")] == ["job-1", "job-2"]


def test_a_job_is_found_by_id_beginning_end_or_last(store):
    for number, name in enumerate(["job-0abc1111", "job-0abd2222"]):
        store.create_job(a_job(name, tenant=f"t{number}", created_at=1.0 + number), [])
    finds = {
        text: store.find_job(text).id[-4:] for text in ["job-0abc1111", "job-0abc", "0abd", "1111", "last", "0ABD2"]
    }
    assert finds == {
        "job-0abc1111": "1111", "job-0abc": "1111", "0abd": "2222", "1111": "1111", "last": "2222", "0ABD2": "2222",
    }  # fmt: skip
    assert store.find_job("last", tenant="t0").id == "job-0abc1111"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("job-", "job-0abd2222, job-0abc1111"),
        ("111", "at least 4"),
        ("job-zzz", "nightmill jobs"),
        ("%%%%", "nightmill jobs"),
    ],
)
def test_a_job_that_cannot_be_told_is_not_found_and_the_hint_helps(store, text, hint):
    for number, name in enumerate(["job-0abc1111", "job-0abd2222"]):
        store.create_job(a_job(name, created_at=1.0 + number), [])
    with pytest.raises(NotFound) as caught:
        store.find_job(text)
    assert hint in caught.value.sentence


def test_another_tenant_s_job_is_not_there(store):
    store.create_job(a_job("job-0abc1111", tenant="a"), [])
    for text in ["job-0abc1111", "0abc", "last"]:
        with pytest.raises(NotFound) as caught:
            store.find_job(text, tenant="b")
        assert "0abc1111" not in caught.value.hint


def test_an_unknown_job_is_not_found(store):
    with pytest.raises(NotFound):
        store.job("job-x")
    with pytest.raises(NotFound):
        store.set_state("job-x", expect=frozenset(JobState), to=JobState.PAUSED)
    with pytest.raises(NotFound):
        store.plan_segment("job-x", 0, [], last=True)


def test_set_state_compares_and_counts_versions(store):
    job = store.create_job(a_job(), [])
    paused = store.set_state(job.id, expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED, reason="why")
    assert paused == job.evolve(state=JobState.PAUSED, reason="why", version=1)
    with pytest.raises(WrongState, match="is paused; becoming paused needs a job that is running"):
        store.set_state(job.id, expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED)


def test_a_reason_that_quotes_what_is_no_text_is_kept_all_the_same(store):
    store.create_job(a_job(), [])
    reason = "in\0put \udcff is ä"
    assert (
        store.set_state("job-a", expect=frozenset(JobState), to=JobState.PAUSED, reason=reason).reason
        == "in put ? is ä"
    )


def finalise(store, job, **changes):
    call = {"version": job.version, "to": JobState.COMPLETED, "reason": "r", "manifest": "/m", "void": Usage()}
    return store.finalise(job.id, **(call | changes))


def test_the_active_jobs_of_a_pool_are_those_not_at_their_end_oldest_first(store):
    for number, state in enumerate([JobState.PAUSED, JobState.RUNNING, JobState.CANCELLING, JobState.RUNNING]):
        job = store.create_job(a_job(f"job-{number}", pool="pool", created_at=9.0 - number), [])
        if state is not JobState.RUNNING:
            store.set_state(job.id, expect=frozenset({JobState.RUNNING}), to=state)
    store.create_job(a_job("job-x", pool="other"), [])
    store.set_state("job-3", expect=frozenset({JobState.RUNNING}), to=JobState.COMPLETED)
    assert [job.id for job in store.active_jobs("pool")] == ["job-2", "job-1", "job-0"]


def test_pressing_jobs_are_a_few_of_each_priority_those_that_end_first_then_the_earliest_due_and_paused_ones_last(
    store,
):
    def job(name, state=JobState.RUNNING, **fields):
        made = store.create_job(a_job(f"job-{name}", pool="pool", **fields), [])
        if state is not JobState.RUNNING:
            store.set_state(made.id, expect=frozenset({JobState.RUNNING}), to=state)

    job("patient", created_at=1000.0)
    job("soon", created_at=1001.0, deadline_at=1010.0)
    job("far", created_at=1002.0, deadline_at=9000.0)
    job("ending", JobState.CANCELLING, created_at=1003.0)
    job("paused", JobState.PAUSED, created_at=1.0)
    job("over", JobState.COMPLETED, created_at=1.0)
    job("urgent", created_at=1004.0, priority=Priority.CRITICAL)
    found = {most: [j.id for j in store.pressing_jobs("pool", most=most, patience_s=50.0)] for most in (9, 3)}
    assert found == {
        9: ["job-urgent", "job-ending", "job-soon", "job-patient", "job-far", "job-paused"],
        3: ["job-urgent", "job-ending", "job-soon", "job-patient"],
    }


def test_of_many_jobs_the_heads_and_those_with_open_tasks_are_told_at_once(store):
    one, two, three = (Planned(store, tasks=4 - n, job_id=f"job-{n}") for n in (1, 2, 3))
    one.released(0)
    for number in range(2):
        two.leased(number, token=f"two-{number}")
    three.done()
    ids = [planned.job.id for planned in (one, two, three)]
    assert store.heads(ids) == {one.job.id: one.task(1)}
    assert store.with_open_tasks(ids) == {one.job.id, two.job.id}
    assert (store.heads([]), store.with_open_tasks([])) == ({}, set())


def test_tasks_are_told_with_their_jobs_and_unknown_ones_left_out(store):
    one, two = (Planned(store, tasks=n, job_id=f"job-{n}") for n in (1, 2))
    two.leased(1)
    found = store.with_jobs([one.ids[0], two.ids[1], "unknown"])
    assert found == {
        one.ids[0]: (one.task(0), store.job(one.job.id)),
        two.ids[1]: (two.task(1), store.job(two.job.id)),
    }
    assert store.with_jobs([]) == {}


def test_the_states_of_many_jobs_are_told_at_once(store):
    for name in ("job-1", "job-2"):
        Planned(store, tasks=1, job_id=name)
    store.set_state("job-2", expect=frozenset({JobState.RUNNING}), to=JobState.CANCELLING)
    assert store.job_states(["job-1", "job-2", "unknown"]) == {
        "job-1": JobState.RUNNING,
        "job-2": JobState.CANCELLING,
    }
    assert store.job_states([]) == {}


def test_a_job_is_unfolded_from_its_commit_until_the_folder_has_passed(store):
    one, two = (Planned(store, tasks=1, job_id=f"job-{n}") for n in (1, 2))
    one.done(0)
    before = [store.unfolded([planned.job.id]) for planned in (one, two)]
    store.fold()
    assert (before, store.unfolded([one.job.id, two.job.id])) == ([True, False], False)


def test_a_new_priority_is_for_what_is_released_from_now_on(store):
    p = Planned(store, tasks=2)
    p.released(0)
    assert store.set_priority(p.job.id, Priority.CRITICAL) == store.job(p.job.id)
    assert store.job(p.job.id).priority is Priority.CRITICAL
    assert store.make([a_release(p.task(1).evolve(priority=Priority.CRITICAL), p.leader)]) == [MADE]
    found = [(task.id, task.priority) for task in store.released(p.job.pool)]
    assert found == [(p.ids[0], Priority.NORMAL), (p.ids[1], Priority.CRITICAL)]
    assert store.released("other") == []


def test_a_finished_job_keeps_its_priority(store):
    job = store.create_job(a_job(), [])
    store.set_state(job.id, expect=frozenset({JobState.RUNNING}), to=JobState.CANCELLED)
    with pytest.raises(WrongState, match="cancelled"):
        store.set_priority(job.id, Priority.HIGH)


def test_only_tasks_that_are_still_released_are_told(store):
    p = Planned(store, tasks=2)
    p.leased(0)
    store.make([moves.withdraw(p.released(1))])
    assert store.released(p.job.pool) == []


def test_finalise_waits_for_the_plan_and_for_every_task(store, clock):
    p = Planned(store, last=False)
    assert not finalise(store, p.job)
    p.done()
    assert not finalise(store, p.job)
    store.plan_segment(p.job.id, 1, [], last=True)
    assert not finalise(store, p.job, version=7)
    assert finalise(store, p.job)
    job = store.job(p.job.id)
    assert (job.state, job.reason, job.version, job.finished_at) == (JobState.COMPLETED, "r", 1, clock.now())
    assert not finalise(store, job)


def test_finalise_makes_the_totals_final(store):
    p = Planned(store, tasks=2)
    p.done(0)
    store.set_state(p.job.id, expect=frozenset({JobState.RUNNING}), to=JobState.CANCELLING)
    store.make([moves.sweep(p.task(1), VoidReason.CANCELLED)])
    void = Usage(rows=10, outcomes={"cancelled": 10})
    assert finalise(store, store.job(p.job.id), to=JobState.CANCELLED, void=void)
    job = store.job(p.job.id)
    assert job.usage == USAGE.plus(void)
    assert job.amount_pico == sum(e.amount_pico for e in ledger.charge(job, "t", USAGE, 0.0)[:3])
    assert store.verify().faults == ()


def test_a_final_job_is_unsealed_until_its_success_is_written(store):
    p = Planned(store)
    p.done()
    assert store.unsealed() == []
    finalise(store, p.job)
    assert store.unsealed() == [store.job(p.job.id)]
    store.set_sealed([p.job.id])
    assert store.unsealed() == []


def test_a_job_that_comes_twice_in_a_list_is_closed_once(store):
    Planned(store, job_id="job-a", tasks=0)
    ends = [End("job-a", 0, to, "", "/m", Usage()) for to in (JobState.COMPLETED, JobState.CANCELLED)]
    assert (store.finalise_all(ends), store.job("job-a").state) == ([True, False], JobState.COMPLETED)


def test_records_that_end_in_a_list_are_all_closed_before_the_book_is_locked(store):
    """Else one who closes the second alone holds that and waits for the book, and this list the other way round."""
    names = ("job-a", "job-b")
    for name in names:
        Planned(store, job_id=name, tasks=0)
    with said(store) as statements:
        closed = store.finalise_all([End(name, 0, JobState.COMPLETED, "", "/m", Usage()) for name in names])
    verbs = [text.split()[0] for text, _ in statements if text.startswith("UPDATE jobs") or "FROM inbox" in text]
    assert (closed, verbs) == ([True, True], ["UPDATE", "SELECT"])


# ---- planning ---------------------------------------------------------------------------------------


def test_a_segment_is_planned_once(store):
    job = store.create_job(a_job(), [])
    assert store.plan_segment(job.id, 0, [a_task(job)], last=False)
    assert not store.plan_segment(job.id, 0, [a_task(job, 5)], last=True)
    assert [task.id for task in store.tasks(job.id, ALL)] == [a_task(job).id]
    assert store.job(job.id) == job.evolve(next_segment=1)
    assert store.plan_segment(job.id, 1, [], last=True)
    assert store.job(job.id) == job.evolve(next_segment=2, planned=True)


def test_jobs_are_made_planned_and_ended_in_lists_each_with_its_own_answer(store):
    first = store.create_job(a_job("job-a", idempotency_key="k"), [])
    store.plan_segment("job-a", 0, [], last=True)
    made = store.create_jobs([(a_job("job-c"), []), (a_job("job-b", idempotency_key="k"), []), (a_job("job-d"), [])])
    planned = [(name, 0, [a_task(a_job(name))], True) for name in ("job-d", "job-a", "job-c")]
    ends = [End(name, 0, JobState.COMPLETED, "", "/m", Usage()) for name in ("job-d", "job-a", "job-c")]
    assert [job.id for job in made] == ["job-c", first.id, "job-d"]
    assert store.plan_segments(planned) == [True, False, True]
    assert store.finalise_all(ends) == [False, True, False]
    store.set_sealed(["job-c", "job-a"])
    found = store.jobs_named(["job-d", "job-x", "job-a"])
    assert {name: (job.state, job.planned) for name, job in found.items()} == {
        "job-d": (JobState.RUNNING, True),
        "job-a": (JobState.COMPLETED, True),
    }
    assert (store.create_jobs([]), store.plan_segments([]), store.finalise_all([])) == ([], [], [])


def test_a_job_whose_id_is_taken_keeps_its_list_from_being_written(store):
    store.create_job(a_job("job-a"), [])
    with pytest.raises(Conflict):
        store.create_jobs([(a_job("job-b"), []), (a_job("job-a"), [])])
    assert store.jobs_named(["job-a", "job-b"]).keys() == {"job-a"}


def test_a_task_comes_back_as_it_was_planned(store):
    job = store.create_job(a_job(), [])
    task = a_task(job, suspect=True, ranges=(Range(0, 3), Range(7, 14)))
    store.plan_segment(job.id, 0, [task], last=True)
    assert store.task(task.id) == task
    with pytest.raises(NotFound):
        store.task("job-x-s00000.00000")


def test_tasks_come_in_planning_order_with_children_where_their_parent_stood(store):
    job = store.create_job(a_job(), [])
    for segment in (0, 1):
        tasks = [a_task(job, number, segment) for number in (2, 0, 1)]
        store.plan_segment(job.id, segment, tasks, last=segment == 1)
    p = Planned.__new__(Planned)
    p.store, p.job, p.ids, p.leader = store, job, [f"{job.id}-s00000.00000"], store.lead(job.pool, "me")
    groups = [Group(rows=(Range(n, n + 1),), suspect=bool(n)) for n in range(2)]
    store.make([moves.divide(p.leased(), groups, a_waste(job, p.task()))])
    queued = [task.id.removeprefix(f"{job.id}-s0000") for task in store.tasks(job.id, frozenset({TaskState.QUEUED}))]
    assert queued == ["0.00002", "0.00000.0", "0.00000.1", "0.00001", "1.00002", "1.00000", "1.00001"]
    both = store.tasks(job.id, frozenset({TaskState.QUEUED, TaskState.SPLIT}), limit=3)
    assert [task.id.removeprefix(f"{job.id}-s0000") for task in both] == ["0.00002", "0.00000", "0.00000.0"]
    assert [task.suspect for task in both] == [False, False, False]
    assert store.task(f"{p.ids[0]}.1").suspect
    assert store.task_counts(job.id) == {TaskState.QUEUED: 7, TaskState.SPLIT: 1}


# ---- moves ------------------------------------------------------------------------------------------


def test_a_task_goes_all_the_way(store, clock):
    p = Planned(store)
    released = p.released(reserve_pico=777)
    assert released == a_task(p.job, state=TaskState.RELEASED, epoch=1, ticket="ticket")
    assert store.open_reservations(p.job.id) == {released.id: 777}
    assert store.make([a_lease(released)]) == [MADE]
    leased = p.task()
    assert leased == released.evolve(
        state=TaskState.LEASED, token="token", owner="worker", lease_until=clock.now() + 30.0
    )
    assert store.make([a_commit(p.job, leased)]) == [MADE]
    assert p.task() == leased.evolve(state=TaskState.DONE, ticket=None, lease_until=None)
    assert store.open_reservations(p.job.id) == {}
    assert list(store.parts(p.job.id)) == [a_part(leased)]
    assert list(store.entries()) == list(ledger.charge(p.job, leased.id, USAGE, 1.0))


def test_a_lost_commit_answer_is_told_apart_from_a_lost_lease(store):
    p = Planned(store)
    leased = p.leased()
    commit = a_commit(p.job, leased)
    assert store.make([commit]) == [MADE]
    assert store.make([commit]) == [ALREADY]
    assert store.make([a_commit(p.job, leased, checksum="other")]) == [LOST]
    assert store.make([a_commit(p.job, leased.evolve(token="dead"))]) == [LOST]
    assert len(list(store.entries())) == 4


def test_a_lost_lease_answer_is_told_apart_from_another_s_lease(store):
    p = Planned(store)
    released = p.released()
    assert store.make([a_lease(released, token="mine")]) == [MADE]
    assert store.make([a_lease(released, token="mine"), a_lease(released, token="other")]) == [ALREADY, LOST]


def test_moves_of_a_list_see_those_before_them(store):
    p = Planned(store, tasks=2)
    one, two = p.task(0), p.task(1)
    released = one.evolve(state=TaskState.RELEASED, epoch=1, ticket="ticket")
    wanted = [
        a_release(one, p.leader),
        a_release(one, p.leader),
        a_release(two, p.leader),
        moves.withdraw(released),
        a_release(one.evolve(epoch=1), p.leader, reserve_pico=5),
    ]
    assert store.make(wanted) == [MADE, LOST, MADE, MADE, MADE]
    assert store.open_reservations(p.job.id) == {one.id: 5, two.id: 1000}
    assert p.task(0).epoch == 2


def test_a_move_of_an_unknown_task_is_lost(store):
    p = Planned(store)
    assert store.make([a_release(p.task().evolve(id="nobody"), p.leader)]) == [LOST]
    assert store.make([]) == []


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.CANCELLING, JobState.EXPIRING])
def test_nothing_is_released_in_a_job_that_does_not_run(store, state):
    p = Planned(store)
    store.set_state(p.job.id, expect=frozenset({JobState.RUNNING}), to=state)
    assert store.make([a_release(p.task(), p.leader)]) == [LOST]


def test_a_deposed_leader_releases_nothing(store):
    p = Planned(store)
    assert p.leader == Leader(scope=p.job.pool, epoch=1, owner="scheduler")
    assert store.lead(p.job.pool, "other") == Leader(scope=p.job.pool, epoch=2, owner="other")
    assert store.make([a_release(p.task(), p.leader)]) == [LOST]
    assert store.leader(p.job.pool).owner == "other"
    assert store.leader("nowhere") == Leader(scope="nowhere", epoch=0, owner="")


def test_a_drain_commits_what_is_finished_and_queues_the_rest(store):
    p = Planned(store)
    leased = p.leased()
    groups = [Group(rows=(Range(4, 7),), suspect=False), Group(rows=(Range(7, 10),), suspect=True)]
    usage = USAGE.evolve(rows=4)
    drain = moves.drain(
        leased,
        groups,
        part=a_part(leased, usage=usage),
        usage=usage,
        entries=ledger.charge(p.job, leased.id, usage, 1.0),
        waste=a_waste(p.job, leased),
    )
    assert store.make([drain]) == [MADE]
    assert store.make([drain]) == [ALREADY]
    assert [store.task(f"{leased.id}.{n}") for n in (0, 1)] == list(moves.children(leased, groups))
    assert p.task().state is TaskState.SPLIT
    assert len(list(store.entries())) == 6
    assert store.verify().faults == ()


def test_a_member_that_raises_does_not_take_the_others_with_it(store):
    p = Planned(store, tasks=3)
    leased = [p.leased(n) for n in range(3)]
    commits = [a_commit(p.job, task) for task in leased]
    lame = commits[1].evolve(entries=commits[1].entries[:1])
    with pytest.raises(LedgerBroken, match="off by"):
        store.make([commits[0], lame, commits[2]])
    assert [p.task(n).state for n in range(3)] == [TaskState.DONE, TaskState.LEASED, TaskState.DONE]
    assert store.make(commits) == [ALREADY, MADE, ALREADY]


def test_an_entry_beyond_64_bits_is_refused(store):
    p = Planned(store)
    commit = a_commit(p.job, p.leased(), usage=USAGE.evolve(input_tokens=10**17))
    with pytest.raises(LedgerBroken, match="more than 64 bits"):
        store.make([commit])
    assert p.task().state is TaskState.LEASED


def test_the_same_waste_told_twice_is_posted_once(store):
    p = Planned(store)
    waste = a_waste(p.job, p.leased())
    assert store.make([moves.hand_back(p.task(), waste, suspect=True, alone_deaths=1)]) == [MADE]
    assert (p.task().suspect, p.task().alone_deaths, p.task().owner) == (True, 1, None)
    again = moves.hand_back(p.leased(), waste.evolve(cause="other", entries=()))
    assert store.make([again]) == [MADE]
    assert [entry.txn for entry in store.entries()] == [f"waste:{p.ids[0]}:1:worker_died"] * 2


def test_commits_from_many_threads_share_transactions_and_none_is_lost(store):
    p = Planned(store, tasks=24)
    commits = [a_commit(p.job, p.leased(n)) for n in range(24)]
    answers = []
    threads = [threading.Thread(target=lambda c=c: answers.append(store.make([c])[0])) for c in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [MADE] * 24
    assert store.task_counts(p.job.id) == {TaskState.DONE: 24}


# ---- leases -----------------------------------------------------------------------------------------


def test_a_beat_extends_what_is_held_and_tells_its_job_s_state(store, clock):
    p = Planned(store, tasks=2)
    p.leased(0)
    p.leased(1, owner="other")
    clock.advance(20.0)
    store.set_state(p.job.id, expect=frozenset({JobState.RUNNING}), to=JobState.PAUSED)
    spent = [Progress(token=token, usage=USAGE) for token in ("token-0", "token-1", "dead")]
    assert store.beat("worker", spent, 30.0) == {"token-0": JobState.PAUSED}
    assert store.beat("worker", [], 30.0) == {}
    assert (p.task(0).lease_until, p.task(1).lease_until) == (clock.now() + 30.0, clock.now() + 10.0)
    assert store.leased_by("worker") == [(p.task(0), USAGE)]
    assert store.leased_by("other") == [(p.task(1), Usage())]
    assert store.owners() == ["other", "worker"]


def test_leases_are_overdue_once_their_time_is_over(store, clock):
    p = Planned(store)
    leased = p.leased()
    store.beat("worker", [Progress(token=leased.token, usage=USAGE)], 30.0)
    clock.advance(30.0)
    assert store.overdue(p.job.pool) == []
    clock.advance(0.001)
    assert store.overdue(p.job.pool) == [(leased, USAGE)]
    assert store.overdue("another-pool") == []
    assert store.make([a_commit(p.job, leased)]) == [MADE]  # time alone never invalidates work
    assert store.overdue(p.job.pool) == []


def test_a_new_lease_starts_without_progress(store):
    p = Planned(store)
    store.beat("worker", [Progress(token=p.leased().token, usage=USAGE)], 30.0)
    store.make([moves.hand_back(p.task(), moves.Waste(cause="drain"))])
    assert store.leased_by("worker") == []
    assert store.leased_by("worker") == [] == store.owners()
    p.leased(token="second")
    assert store.leased_by("worker") == [(p.task(), Usage())]


# ---- outbox -----------------------------------------------------------------------------------------


def test_the_outbox_holds_what_is_released_until_it_is_published(store, clock):
    p, q = Planned(store, tasks=2), Planned(store, job_id="job-b")
    released = [p.released(0), p.released(1), q.released(0)]
    pending = store.pending(10)
    assert [row.message.task for row in pending] == [task.id for task in released]
    assert pending[0] == OutboxRow(
        id=pending[0].id,
        message=moves.Message(task=p.ids[0], epoch=1, ticket="ticket", pool=p.job.pool, priority=Priority.NORMAL),
        released_at=clock.now(),
    )
    assert [row.message.task for row in store.pending(10, pool=q.job.pool)] == q.ids
    assert len(store.pending(2)) == 2

    place = Place(topic="t", topic_id="i", partition=1, offset=7)
    store.published({pending[0].id: place})
    assert [row.id for row in store.pending(10)] == [row.id for row in pending[1:]]
    clock.advance(15.0)
    assert store.silent(p.job.pool, 15.0) == []
    clock.advance(0.001)
    assert store.silent(p.job.pool, 15.0) == [(p.task(0), place)]
    assert store.silent(q.job.pool, 0.0) == []


def test_a_message_of_a_task_that_moved_on_is_not_published(store):
    p = Planned(store, tasks=2)
    store.make([moves.withdraw(p.released(0))])
    leased = p.leased(1)
    assert store.pending(10) == []
    store.published({1: Place(topic="t", topic_id="i", partition=0, offset=0)})
    assert store.silent(p.job.pool, -1.0) == []
    store.make([moves.hand_back(leased, moves.Waste(cause="drain"))])
    p.released(0)
    assert len(store.pending(10)) == 1  # ids are not used again, so the late word above marked nothing


# ---- ledger -----------------------------------------------------------------------------------------


def test_folding_turns_commits_into_balances_and_totals_once(store):
    p = Planned(store, tasks=3)
    for number in range(3):
        p.done(number)
    assert store.job(p.job.id).usage == Usage()
    assert store.fold() == Fold(transactions=3, entries=12)
    assert store.fold() == Fold()
    job, owed = store.job(p.job.id), ledger.balances(store.entries())
    assert store.balances() == owed
    assert job.usage == Usage(
        rows=30, input_tokens=300, cached_tokens=120, output_tokens=180, outcomes={"ok": 27, "error": 3}
    )
    assert job.amount_pico == owed["tenant:default:usage", "USD"]


def test_a_fold_takes_whole_transactions_and_at_least_one(store):
    p = Planned(store, tasks=4)
    for number in range(4):
        p.done(number)
    assert [store.fold(max_entries=n) for n in (1, 11)] == [
        Fold(transactions=1, entries=4),
        Fold(transactions=2, entries=8),
    ]
    assert store.verify().evolve(faults=()) == store.verify()
    report = store.verify()
    assert (report.entries, report.transactions, report.blocks, report.unsealed) == (16, 4, 2, 4)


def test_balances_are_exact_beyond_64_bits(store):
    p = Planned(store, tasks=3)
    usage = USAGE.evolve(input_tokens=6 * 10**13, cached_tokens=0, output_tokens=0)
    for number in range(3):
        p.done(number, usage=usage)
        store.fold()
    amount = 3 * 150_000 * 6 * 10**13
    assert amount > 2**63
    assert store.balances() == {("tenant:default:usage", "USD"): amount, ("platform:revenue:fake", "USD"): -amount}
    assert store.job(p.job.id).amount_pico == amount
    assert store.statement("default")[0].amount_pico == amount
    assert store.verify().faults == ()


def test_waste_is_folded_and_charged_to_nobody(store):
    p = Planned(store)
    store.make([moves.hand_back(p.leased(), a_waste(p.job, p.task()))])
    store.fold()
    value = 150_000 * 100 + 75_000 * 40 + 600_000 * 60
    assert store.balances() == {("platform:waste", "USD"): value, ("platform:capacity", "USD"): -value}
    assert store.job(p.job.id).usage == Usage()
    assert store.statement("default") == []
    assert store.verify().faults == ()


def test_entries_can_be_read_by_job_and_by_tenant(store):
    p, q = Planned(store, tasks=2), Planned(store, job_id="job-b", tenant="other")
    for task in (p.done(0), q.done(0), p.done(1)):
        assert task.state is TaskState.DONE
    assert [e.task for e in store.entries(job_id=p.job.id) if e.line == 0] == p.ids
    assert {e.tenant for e in store.entries(tenant="other")} == {"other"}
    assert [e.task for e in store.entries() if e.line == 0] == [p.ids[0], q.ids[0], p.ids[1]]


def test_a_statement_sums_by_job_and_token_class(store):
    p = Planned(store, tasks=2)
    q = Planned(store, job_id="job-b", price=PRICE.evolve(example=True), tags={}, project="")
    p.done(0, at=10.0)
    p.done(1, at=20.0)
    q.done(0, at=30.0)
    line = StatementLine(
        job="job-a", project="catalog", model="fake", kind="usage", token_class="input", tokens=200,
        amount_pico=200 * 150_000, currency="USD", example_price=False, creator="ann", tags={"team": "red"},
    )  # fmt: skip
    lines = store.statement("default")
    assert lines[:3] == [
        line,
        line.evolve(token_class="cached", tokens=80, amount_pico=80 * 75_000),
        line.evolve(token_class="output", tokens=120, amount_pico=120 * 600_000),
    ]
    assert lines[3] == line.evolve(
        job="job-b", project="", tokens=100, amount_pico=100 * 150_000, example_price=True, tags={}
    )
    window = store.statement("default", since=20.0, until=30.0)
    assert [(found.job, found.tokens) for found in window] == [("job-a", 100), ("job-a", 40), ("job-a", 60)]
    assert store.statement("nobody") == []


def test_a_sound_book_has_no_faults_while_work_goes_on(store):
    p = Planned(store, tasks=5)
    p.done(0)
    store.fold()
    p.done(1)
    p.released(2)
    p.leased(3)
    report = store.verify()
    assert report.faults == ()
    assert (report.entries, report.transactions, report.blocks, report.unsealed) == (8, 2, 1, 4)


# ---- prices, speeds, parts, clock -------------------------------------------------------------------


def test_the_newest_price_version_is_the_price_and_old_ones_stay(store):
    second = PRICE.evolve(version="v2", input_micro=1)
    other = PRICE.evolve(model="other")
    assert store.price("fake") is None
    for price in (PRICE, second, other, PRICE):
        store.set_price(price)
    assert store.price("fake") == second
    assert store.prices() == [second, PRICE, other]
    with pytest.raises(Conflict, match="v1 of fake has other numbers"):
        store.set_price(PRICE.evolve(output_micro=1))


def test_a_model_s_speed_is_the_last_one_noted(store):
    assert store.speed("fake") is None
    for rows_per_s in (1.5, 2.5):
        store.note_speed("fake", rows_per_s=rows_per_s, output_tokens_per_s=40.0)
    assert store.speed("fake") == (2.5, 40.0)


def test_parts_come_in_planning_order_however_many(store, monkeypatch):
    monkeypatch.setattr("infra.sql.taskstore._PAGE", 2)
    p = Planned(store, tasks=5)
    for number in (3, 0, 4, 2, 1):
        p.done(number)
    assert [part.task for part in store.parts(p.job.id)] == p.ids
    assert list(store.parts("job-x")) == []
    assert store.parts_of([p.job.id, "job-x"]) == {p.job.id: list(store.parts(p.job.id)), "job-x": []}
    assert store.parts_of([]) == {}


def test_the_store_tells_the_database_s_time(store, clock):
    assert store.now() == clock.now()


def test_what_one_store_wrote_another_reads(open_again):
    p = Planned(open_again())
    p.done()
    again = open_again()
    assert again.task(p.ids[0]).state is TaskState.DONE
    assert again.job(p.job.id) == p.store.job(p.job.id)
    assert again.fold().transactions == 1
    assert Outcome.OK in p.store.job(p.job.id).usage.outcomes


# ---- what a sweeper asks ----------------------------------------------------------------------------


def test_every_job_comes_once_with_whether_it_is_sealed(store, monkeypatch):
    monkeypatch.setattr("infra.sql.sweepstore._PAGE", 2)
    jobs = [store.create_job(a_job(f"job-{n}"), []) for n in "abcde"]
    store.set_sealed(["job-b"])
    assert list(store.every_job()) == [(store.job(job.id), job.id == "job-b") for job in jobs]


def test_a_lease_s_end_says_who_holds_a_task_since_when_and_what_counts(store, clock, monkeypatch):
    monkeypatch.setattr("infra.sql.sweepstore._CHUNK", 2)
    p = Planned(store, tasks=5)
    start = clock.now()

    def end(number, state, token, since, part=None):
        return LeaseEnd(task=p.ids[number], state=state, token=token, since=since, part=part)

    p.leased(1)
    clock.advance(1)
    store.make([moves.hand_back(p.task(1), a_waste(p.job, p.task(1)))])
    clock.advance(1)
    p.leased(2)
    store.make([moves.hand_back(p.task(2), a_waste(p.job, p.task(2)))])
    clock.advance(1)
    p.leased(2, token="second")
    p.leased(3)
    clock.advance(1)
    store.make([a_commit(p.job, p.task(3))])
    clock.advance(1)
    p.leased(4)
    clock.advance(1)
    halves = [Group(rows=(Range(40, 45),), suspect=True), Group(rows=(Range(45, 50),), suspect=True)]
    store.make([moves.divide(p.task(4), halves, a_waste(p.job, p.task(4)))])
    assert store.lease_ends([*p.ids, "nobody"]) == {
        p.ids[0]: end(0, TaskState.QUEUED, None, None),
        p.ids[1]: end(1, TaskState.QUEUED, None, start + 1),
        p.ids[2]: end(2, TaskState.LEASED, "second", start + 3),
        p.ids[3]: end(3, TaskState.DONE, "token-3", start + 4, part=a_part(p.task(3)).uri),
        p.ids[4]: end(4, TaskState.SPLIT, "token-4", start + 6),
    }
    assert store.lease_ends([]) == {}


# ---- errors -----------------------------------------------------------------------------------------


def test_an_error_of_a_statement_does_not_repeat_its_values(store):
    """They go into logs, and a job's record holds its prompt."""
    with pytest.raises(Exception, match="no_such_function") as caught:
        store._db.ask(lambda connection: connection.execute(sa.text("SELECT no_such_function(:p)"), {"p": "a prompt"}))
    chain = [str(error) for error in (caught.value, caught.value.__cause__) if error is not None]
    assert [text for text in chain if "a prompt" in text] == []
