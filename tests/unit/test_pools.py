"""jobs/pools.py and jobs/scaling.py: who serves a job, what a worker needs, how many workers there should be."""

import pytest

from jobs.errors import NotFound
from jobs.model import Model
from jobs.pools import (
    Free,
    Placement,
    Pool,
    is_private,
    lenders,
    placement,
    pool_for,
    pool_named,
    request_pools,
    resolve_for_requests,
    resolve_pool,
    seat_stages,
)
from jobs.scaling import Demand, ScalePolicy, ScaleState, backoff_s, desired
from jobs.submit import pool_of

pytestmark = pytest.mark.unit

CHAT, TALK = Pool(name="batch", model="m"), Pool(name="talk", model="m", purpose="interactive")


def test_a_model_goes_to_the_first_pool_that_serves_it_and_takes_batch_jobs():
    assert resolve_pool("m", [TALK, CHAT, CHAT.evolve(name="second")]) == CHAT


def test_a_model_that_nobody_serves_is_refused_naming_what_is_served():
    with pytest.raises(NotFound, match=r"named x\. Served are: m \(pool batch, batch\), m \(pool talk, "):
        resolve_pool("x", [CHAT, TALK])


def test_an_interactive_pool_alone_takes_no_batch_job():
    with pytest.raises(NotFound):
        resolve_pool("m", [TALK])


def test_an_interactive_pool_that_lends_takes_batch_jobs_where_no_other_does():
    lending = TALK.evolve(lends=True)
    assert (resolve_pool("m", [lending]), resolve_pool("m", [lending, CHAT])) == (lending, CHAT)


def test_batch_jobs_borrow_from_the_interactive_pools_of_their_model_that_lend():
    lending, other = TALK.evolve(lends=True), TALK.evolve(name="other", model="x", lends=True)
    assert lenders(CHAT, [TALK.evolve(name="own"), lending, other, CHAT]) == [lending]


def test_requests_go_to_interactive_pools_first_and_to_mixed_ones_last():
    mixed, words = CHAT.evolve(requests=True), Pool(name="words", model="m", purpose="embedding")
    assert request_pools("m", [CHAT.evolve(name="plain"), mixed, words, TALK]) == [TALK, words, mixed]


def test_a_pool_made_for_a_model_at_hand_takes_requests_and_jobs():
    pool = pool_for(Model(name="m", kind="chat", path="", engine="fake"))
    assert (pool.takes_requests, pool.runs_tasks, resolve_for_requests(pool.model, [pool])) == (True, True, pool)


def test_a_model_without_a_pool_for_requests_is_refused_naming_what_is_served():
    with pytest.raises(NotFound, match=r"requests of model named m\. Served are: m \(pool batch, batch\)"):
        resolve_for_requests("m", [CHAT])


def test_without_pools_it_is_said_how_to_declare_one():
    with pytest.raises(NotFound, match=r"\[pools.NAME\]"):
        resolve_pool("m", [])


def test_a_pool_is_found_by_its_name():
    assert pool_named("talk", [CHAT, TALK]) == TALK
    with pytest.raises(NotFound, match="no pool named x"):
        pool_named("x", [CHAT])


def test_a_pool_that_a_run_made_for_itself_is_private():
    assert (is_private(pool_of("job-1")), is_private("batch")) == (True, False)


def test_a_worker_on_cpus_needs_one_bundle_of_cores():
    assert placement(CHAT.evolve(num_cpus=2.0)) == Placement(bundles=({"CPU": 2.0},), one_node=True)


def test_tensor_parallel_ranks_share_a_bundle_and_so_a_node():
    pool = CHAT.evolve(accelerators=4, engine_args={"tensor_parallel_size": 4})
    assert placement(pool) == Placement(bundles=({"GPU": 4.0, "CPU": 1.0},), one_node=True)


STAGES = CHAT.evolve(accelerators=4, engine_args={"tensor_parallel_size": 2, "pipeline_parallel_size": 2})


def test_with_pipeline_stages_each_accelerator_has_a_bundle_and_nodes_may_differ():
    one = {"GPU": 1.0}
    assert placement(STAGES) == Placement(bundles=({"GPU": 1.0, "CPU": 1.0}, one, one, one), one_node=False)


def test_stages_of_a_pool_on_cpus_stay_on_one_node():
    pool = CHAT.evolve(engine_args={"pipeline_parallel_size": 2})
    assert placement(pool) == Placement(bundles=({"CPU": 1.0},), one_node=True)


@pytest.mark.parametrize(
    ("free", "seats"),
    [
        pytest.param({"a": (2, 4), "b": (4, 4)}, ("b", "b"), id="both on the emptier node"),
        pytest.param(
            {"a": (3, 4), "b": (3, 4)}, ("b", "a"), id="ranks of a stage together though each node has a third"
        ),
        pytest.param({"a": (2, 4), "b": (2, 0)}, ("a", "b"), id="the first where there are cores"),
        pytest.param({"a": (3, 4), "b": (1, 4)}, None, id="four accelerators, but not by two"),
        pytest.param({"a": (8, 0)}, None, id="no cores for the worker"),
        pytest.param({}, None, id="no node"),
    ],
)
def test_each_stage_has_a_node_for_all_of_its_ranks(free, seats):
    nodes = {name: Free(gpus=gpus, cpus=cpus) for name, (gpus, cpus) in free.items()}
    assert seat_stages(STAGES, nodes) == seats


# ---- how many -----------------------------------------------------------------------------------

POOL = CHAT.evolve(max_workers=4)
POLICY = ScalePolicy(idle_s=10.0, backlog_s=100.0, blind_rows=50)
WORK = Demand(jobs=1, rows_left=10, workers=0)
NONE = Demand(jobs=0, rows_left=0, workers=3)


def wanted(demand, state=None, now=0.0, pool=POOL):
    return desired(demand, pool, state or ScaleState(), POLICY, now)


def test_any_work_wants_a_worker():
    assert wanted(WORK) == (1, ScaleState())


def test_a_pool_grows_until_what_waits_is_done_in_time():
    assert wanted(WORK.evolve(rows_left=2500, rows_per_s=10.0))[0] == 3
    assert wanted(WORK.evolve(rows_left=120))[0] == 3
    assert wanted(WORK.evolve(rows_left=10**9))[0] == 4


def test_while_there_is_work_it_does_not_shrink():
    assert wanted(WORK.evolve(workers=3))[0] == 3


def test_requests_keep_a_pool_awake_like_work():
    assert wanted(Demand(jobs=0, rows_left=0, workers=0, asked=True), ScaleState(idle_since=1.0)) == (1, ScaleState())


def test_requests_that_found_no_room_bring_one_worker_more_up_to_the_most():
    short = NONE.evolve(asked=True, short=True)
    assert [wanted(short.evolve(workers=n))[0] for n in (0, 3, 4)] == [1, 4, 4]


def test_without_work_it_stays_for_a_while_and_then_shrinks_to_its_least():
    count, state = wanted(NONE, now=5.0)
    assert (count, state) == (3, ScaleState(idle_since=5.0))
    assert wanted(NONE, state, now=14.9)[0] == 3
    assert wanted(NONE, state, now=15.0)[0] == 0
    assert wanted(NONE, state, now=15.0, pool=POOL.evolve(min_workers=2))[0] == 2


def test_new_work_ends_the_idle_time():
    assert wanted(WORK, ScaleState(idle_since=1.0))[1] == ScaleState()


def test_the_least_is_kept_from_the_beginning():
    assert wanted(NONE.evolve(workers=0), pool=POOL.evolve(min_workers=2))[0] == 2


def test_each_failure_in_a_row_doubles_the_pause():
    assert [backoff_s(n, 10.0) for n in range(6)] == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0]
