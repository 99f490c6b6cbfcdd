"""The webhook port: one body over every adapter. What is told of an end is written with the end."""

import json

import pytest

from jobs.errors import Conflict, NotFound
from jobs.filing import BatchStatus
from jobs.model import JobState, Usage
from jobs.webhooks import delivery_id
from tests.support.filing import a_batch, a_file, twice
from tests.support.hooks import a_webhook
from tests.support.values import a_job, a_spec

pytestmark = pytest.mark.contract

TAKE = {"limit": 10, "each": 10, "hold_s": 60.0}


def finish(store, job, to=JobState.COMPLETED):
    store.plan_segment(job.id, 0, [], last=True)
    job = store.job(job.id)
    return store.finalise(job.id, version=job.version, to=to, reason="", manifest="m", void=Usage())


def ended(store, job_id="job-a", to=JobState.COMPLETED, **changes):
    job = store.create_job(a_job(**{"id": job_id, "tenant": "default", **changes}), [])
    assert finish(store, job, to)
    return job


def told(store, **where):
    return [(d.webhook, d.subject, d.event, d.outcome) for d in store.deliveries(**where)]


def test_an_endpoint_comes_back_as_it_was_added_and_again_is_the_same_one(store, clock):
    hook = a_webhook(name="näme\0", events=("job.failed",))
    kept = hook.evolve(name="näme ")
    assert store.add_webhook(hook, "cli:ann") == hook
    assert store.add_webhook(hook.evolve(url="https://other.example"), "cli:ann") == kept == store.webhook("we_a")
    assert store.add_webhook(a_webhook("we_b", created_at=0.0), "cli:ann").created_at == clock.now()
    assert [w.id for w in store.webhooks()] == [w.id for w in store.webhooks("default")] == ["we_b", "we_a"]
    assert [(e.action, e.subject, e.detail) for e in store.audit() if e.action.startswith("webhook")] == [
        ("webhook.added", "we_b", "hooks.example"),
        ("webhook.added", "we_a", "hooks.example"),
    ]


def test_another_tenant_s_endpoint_is_told_in_the_same_words_as_one_that_never_was(store):
    acts = [
        lambda: store.webhook("we_a", "acme"),
        lambda: store.end_webhook("we_a", tenant="acme", actor="key_b"),
        lambda: store.add_webhook(a_webhook(tenant="acme"), "key_b"),
    ]
    store.put_tenant(store.tenant("default").evolve(name="acme"), "cli:ann")
    never = [lambda: store.webhook("we_a", "acme"), lambda: store.end_webhook("we_a", tenant="acme", actor="key_b")]
    words = []
    for act in never:
        with pytest.raises(NotFound) as caught:
            act()
        words.append(caught.value.sentence)
    store.add_webhook(a_webhook(), "cli:ann")
    for act in acts:
        with pytest.raises(NotFound) as caught:
            act()
        words.append(caught.value.sentence)
    assert set(words) == {"There is no webhook named we_a. List those there are: nightmill webhooks list"}


def test_the_end_of_a_job_is_told_to_its_tenant_s_endpoints_and_to_the_one_it_names(store, clock):
    store.put_tenant(store.tenant("default").evolve(name="acme"), "cli:ann")
    hooks = [
        a_webhook("we_all"),
        a_webhook("we_failed", events=("job.failed", "batch.failed")),
        a_webhook("we_removed"),
        a_webhook("we_other", tenant="acme"),
        a_webhook("we_named", standing=False),
        a_webhook("we_unnamed", standing=False),
    ]
    for hook in hooks:
        store.add_webhook(hook, "cli:ann")
    store.end_webhook("we_removed", tenant=None, actor="cli:ann")
    assert told(store) == []
    ended(store, spec=a_spec(webhook="we_named"))
    ended(store, "job-b", to=JobState.FAILED)
    ended(store, "job-c", spec=a_spec(webhook="we_other"))
    assert sorted(told(store)) == [
        ("we_all", "job-a", "job.completed", ""),
        ("we_all", "job-b", "job.failed", ""),
        ("we_all", "job-c", "job.completed", ""),
        ("we_failed", "job-b", "job.failed", ""),
        ("we_named", "job-a", "job.completed", ""),
    ]
    first = next(d for d in store.deliveries() if d.subject == "job-b" and d.webhook == "we_all")
    assert (first.id, first.next_at, json.loads(first.body)["data"]) == (
        delivery_id("we_all", "job-b"), clock.now(), {"id": "job-b"},
    )  # fmt: skip


def test_the_end_of_a_batch_is_told_once_and_its_job_s_is_not(store):
    store.add_webhook(a_webhook(), "cli:ann")
    store.add_webhook(a_webhook("we_b", standing=False), "cli:ann")
    store.add_file(a_file())
    batch = store.add_batch(a_batch(webhook="we_b"))
    ended(store, idempotency_key="batch:batch_a")
    batch = store.change_batch(batch.evolve(status=BatchStatus.FINALIZING))
    assert told(store) == []
    assert store.change_batch(batch.evolve(status=BatchStatus.COMPLETED)) is not None
    assert store.change_batch(batch.evolve(status=BatchStatus.FAILED)) is None
    assert sorted(told(store)) == [
        ("we_a", "batch_a", "batch.completed", ""),
        ("we_b", "batch_a", "batch.completed", ""),
    ]


def test_a_job_whose_key_only_looks_like_a_batch_s_is_told(store):
    store.add_webhook(a_webhook(), "cli:ann")
    ended(store, idempotency_key="batch:of-cookies")
    assert told(store) == [("we_a", "job-a", "job.completed", "")]


def test_an_end_that_is_carried_out_twice_is_told_once(store):
    store.add_webhook(a_webhook(), "cli:ann")
    job = store.create_job(a_job(id="job-a", tenant="default"), [])
    assert finish(twice(store), job)
    assert told(store) == [("we_a", "job-a", "job.completed", "")]


def test_what_is_taken_is_nobody_else_s_until_it_is_settled_or_the_time_is_up(store, clock):
    store.add_webhook(a_webhook(), "cli:ann")
    ended(store)
    (taken,) = store.take_deliveries(**TAKE)
    assert (taken.attempts, taken.next_at, store.take_deliveries(**TAKE)) == (1, clock.now() + 60, [])
    clock.advance(60)
    (again,) = store.take_deliveries(**TAKE)
    store.settle_delivery(taken.evolve(outcome="delivered", next_at=None, status=200))  # too late: another one began
    assert (again.id, again.attempts, told(store, outcome="")) == (
        taken.id, 2, [("we_a", "job-a", "job.completed", "")],
    )  # fmt: skip
    store.settle_delivery(again.evolve(outcome="delivered", next_at=None, status=200))
    clock.advance(600)
    assert (store.take_deliveries(**TAKE), [(d.outcome, d.status) for d in store.deliveries()]) == (
        [], [("delivered", 200)],
    )  # fmt: skip


def test_one_tenant_s_deliveries_do_not_take_all_the_room(store, clock):
    store.put_tenant(store.tenant("default").evolve(name="acme"), "cli:ann")
    store.add_webhook(a_webhook(), "cli:ann")
    store.add_webhook(a_webhook("we_b", tenant="acme"), "cli:ann")
    for number in range(5):
        ended(store, f"job-{number}")
    clock.advance(1)
    ended(store, "job-x", tenant="acme")
    first = store.take_deliveries(limit=4, each=2, hold_s=60.0)
    second = store.take_deliveries(limit=4, each=2, hold_s=60.0, skip=["default"])
    third = store.take_deliveries(limit=4, each=9, hold_s=60.0)
    assert [[d.tenant for d in taken] for taken in (first, second, third)] == [
        ["default", "default", "acme"], [], ["default"] * 3,
    ]  # fmt: skip


def test_a_removed_endpoint_s_open_deliveries_fail_and_are_not_sent_again(store):
    store.add_webhook(a_webhook(), "cli:ann")
    ended(store)
    store.end_webhook("we_a", tenant="default", actor="cli:ann")
    (left,) = store.deliveries()
    assert (left.outcome, left.next_at, left.reason, store.take_deliveries(**TAKE)) == (
        "failed", None, "the webhook was removed", [],
    )  # fmt: skip
    with pytest.raises(Conflict, match="Webhook we_a was removed"):
        store.resend(left.id)
    assert [e.action for e in store.audit()][:2] == ["webhook.removed", "webhook.added"]


def test_a_settled_delivery_is_sent_again_on_request_under_its_id(store, clock):
    store.add_webhook(a_webhook(), "cli:ann")
    ended(store)
    (taken,) = store.take_deliveries(**TAKE)
    store.settle_delivery(taken.evolve(outcome="failed", next_at=None, reason="x"))
    for act in (lambda: store.resend(taken.id, "acme"), lambda: store.resend("msg_never")):
        with pytest.raises(NotFound):
            act()
    assert store.resend(taken.id, "default").next_at == clock.now()
    (again,) = store.take_deliveries(**TAKE)
    assert (again.id, again.attempts, again.body) == (taken.id, 1, taken.body)


def test_old_settled_deliveries_are_forgotten_with_the_endpoints_of_single_jobs(store, clock):
    for hook in (a_webhook(), a_webhook("we_b", standing=False), a_webhook("we_c", standing=False)):
        store.add_webhook(hook.evolve(created_at=clock.now()), "cli:ann")
    ended(store, spec=a_spec(webhook="we_b"))
    for taken in store.take_deliveries(**TAKE):
        store.settle_delivery(taken.evolve(outcome="delivered", next_at=None))
    ended(store, "job-b", spec=a_spec(webhook="we_c"))
    clock.advance(100)
    assert (store.forget_deliveries(101.0), store.forget_deliveries(99.0)) == (0, 2)
    assert sorted(told(store)) == [
        ("we_a", "job-b", "job.completed", ""),
        ("we_c", "job-b", "job.completed", ""),
    ]
    with pytest.raises(NotFound):
        store.webhook("we_b")
    assert [store.webhook(name).id for name in ("we_a", "we_c")] == ["we_a", "we_c"]
