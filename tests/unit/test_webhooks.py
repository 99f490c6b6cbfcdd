"""jobs/webhooks.py, jobs/delivering.py: messages, signatures, and what becomes of an attempt."""

import json

import openai
import pytest

from infra.clocks import ManualClock, SystemClock
from infra.seals import AesSeal, SealedElsewhere, seal_key
from jobs.delivering import Deliverer, new_webhook
from jobs.errors import BadInput, BadSetting, NotFound, Unavailable
from jobs.webhooks import (
    EVENTS,
    WAITS_S,
    Attempt,
    after,
    delivery_id,
    event_body,
    headers_of,
    key_of,
    secret_of,
)
from tests.support.hooks import SECRET, PaperSeal, a_delivery, a_webhook

pytestmark = pytest.mark.unit

NOW = 1_700_000_000.0


def test_a_message_is_signed_as_the_standard_s_own_example():
    message = a_delivery(id="msg_p5jXN8AQM9LWM0D4loKWxJek", body='{"test": 2432232314}')
    assert headers_of(SECRET, message, 1614265330.7) == {
        "content-type": "application/json",
        "user-agent": "nightmill-webhooks/1",
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_the_stock_client_unwraps_the_end_of_a_batch():
    clock = ManualClock(SystemClock().now())
    body = event_body("batch.completed", "batch_a", clock.now())
    message = a_delivery(body=body)
    client = openai.OpenAI(api_key="x", webhook_secret=SECRET)
    found = client.webhooks.unwrap(body, headers_of(SECRET, message, clock.now()))
    assert (found.type, found.data.id, found.object) == ("batch.completed", "batch_a", "event")
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(f"{body} ", headers_of(SECRET, message, clock.now()))
    client.close()


def test_a_message_names_what_ended_and_no_more():
    assert json.loads(event_body("job.failed", "job-a", 1_700_000_000.25)) == {
        "id": "evt_" + delivery_id("job.failed", "job-a").removeprefix("msg_"),
        "object": "event",
        "type": "job.failed",
        "created_at": 1_700_000_000,
        "timestamp": "2023-11-14T22:13:20.250Z",
        "data": {"id": "job-a"},
    }


def test_a_delivery_s_id_follows_from_whom_and_what():
    ids = {delivery_id(hook, subject) for hook in ("we_a", "we_b") for subject in ("job-a", "job-b", "job-a")}
    assert (len(ids), {len(name) for name in ids}) == (4, {36})


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_!", "whsec_c2hvcnQ=", SECRET.removeprefix("whsec_"), "whsec_" + "A" * 88]
)
def test_what_is_no_secret_is_refused(text):
    with pytest.raises(BadInput, match="it is not whsec_ and the Base64 of 24 to 64 bytes"):
        key_of(text)


def test_a_secret_is_its_bytes():
    assert key_of(secret_of(bytes(range(32)))) == bytes(range(32))


# ---- what becomes of an attempt ---------------------------------------------------------------------


def stands(delivery, attempt, chance=0.0):
    found = after(delivery, attempt, now=NOW, chance=chance)
    return found.outcome, found.status, None if found.next_at is None else found.next_at - NOW, found.reason


@pytest.mark.parametrize(
    ("attempt", "found"),
    [
        (Attempt(status=200), ("delivered", 200, None, "")),
        (Attempt(status=204), ("delivered", 204, None, "")),
        (Attempt(status=302, reason="r"), ("", 302, 5.0, "r")),
        (Attempt(status=404, reason="r"), ("", 404, 5.0, "r")),
        (Attempt(status=410, reason="r"), ("failed", 410, None, "r")),
        (Attempt(status=503, reason="r"), ("", 503, 5.0, "r")),
        (Attempt(reason="r"), ("", None, 5.0, "r")),
    ],
)
def test_only_a_success_is_one_and_only_gone_is_the_end(attempt, found):
    assert stands(a_delivery(), attempt) == found


def test_it_is_tried_ten_times_in_three_days():
    waits, delivery = [], a_delivery(attempts=0)
    while not delivery.outcome:
        delivery = after(delivery.evolve(attempts=delivery.attempts + 1), Attempt(reason="no"), now=NOW, chance=0.0)
        waits += [] if delivery.next_at is None else [delivery.next_at - NOW]
    assert (tuple(waits), delivery.outcome, delivery.attempts) == (WAITS_S, "failed", 10)
    assert 3 * 86_400 < sum(waits) < 4 * 86_400


def test_many_do_not_come_back_at_once():
    found = [stands(a_delivery(attempts=2), Attempt(), chance)[2] for chance in (0.0, 0.5, 0.999)]
    assert found == [300.0, 330.0, pytest.approx(359.94)]


# ---- a delivery is tried ----------------------------------------------------------------------------


class Outbox:
    """The part of a webhook store that a deliverer needs."""

    def __init__(self, *hooks):
        self.hooks = {hook.id: hook for hook in hooks}
        self.settled, self.ended = [], []

    def webhook(self, name, tenant):
        if name not in self.hooks:
            raise NotFound(kind="webhook", name=name, hint="")
        assert self.hooks[name].tenant == tenant
        return self.hooks[name]

    def settle_delivery(self, delivery):
        self.settled.append((delivery.outcome, delivery.status, delivery.reason))

    def end_webhook(self, name, *, tenant, actor, reason):
        self.ended.append((name, tenant, actor, reason))


def tried(post, *hooks, **changes):
    """What was settled and ended after one attempt, and what was posted."""
    posted, clock, store = [], ManualClock(NOW), Outbox(*hooks)

    def call(url, headers, body):
        posted.append((url, headers["webhook-signature"], headers["webhook-timestamp"], body))
        return post()

    deliverer = Deliverer(store=store, post=call, seal=PaperSeal(), clock=clock, now=clock.now, chance=lambda: 0.0)
    deliverer.deliver(a_delivery(**changes))
    return store.settled, store.ended, posted


def away():
    raise Unavailable(reason="nobody is there")


def test_an_attempt_is_signed_with_the_endpoint_s_own_secret():
    settled, ended, posted = tried(lambda: 200, a_webhook())
    wanted = headers_of(SECRET, a_delivery(), NOW)
    assert (settled, ended) == ([("delivered", 200, "")], [])
    assert posted == [
        ("https://hooks.example/x", wanted["webhook-signature"], str(int(NOW)), a_delivery().body.encode())
    ]


def test_an_endpoint_that_is_away_is_called_again_and_one_that_is_gone_never():
    found = [tried(post, a_webhook())[:2] for post in (away, lambda: 500, lambda: 410)]
    assert found == [
        ([("", None, "A backend does not answer: nobody is there. Try again.")], []),
        ([("", 500, "it answered with status 500")], []),
        (
            [("failed", 410, "it answered with status 410")],
            [("we_a", "default", "we_a", "it answered with status 410")],
        ),
    ]


def test_one_that_was_removed_meanwhile_is_not_called_and_one_that_is_forgotten_neither():
    removed = tried(lambda: 200, a_webhook(ended_at=4.0))
    assert (removed, tried(lambda: 200)) == (([("failed", 410, "the webhook was removed")], [], []), ([], [], []))


# ---- seals ------------------------------------------------------------------------------------------


def test_a_sealed_secret_opens_with_the_same_key_for_the_same_thing_only():
    seal, other = AesSeal(b"k" * 32), AesSeal(b"o" * 32)
    hook = new_webhook("we_a", tenant="acme", url="https://x.example", secret=SECRET, seal=seal)
    assert SECRET.removeprefix("whsec_") not in hook.sealed
    assert seal.open(hook.sealed, ("acme", "we_a")) == SECRET
    cut = hook.sealed[:-4]
    for opens, text, about in [
        (other, hook.sealed, ("acme", "we_a")),
        (seal, hook.sealed, ("acme", "we_b")),
        (seal, hook.sealed, ("zoo", "we_a")),
        (seal, cut, ("acme", "we_a")),
        (seal, "v2" + hook.sealed[2:], ("acme", "we_a")),
        (seal, "", ("acme", "we_a")),
    ]:
        with pytest.raises(SealedElsewhere):
            opens.open(text, about)


def test_the_same_secret_is_sealed_otherwise_each_time():
    seal = AesSeal(b"k" * 32)
    assert seal.seal(SECRET, ("a",)) != seal.seal(SECRET, ("a",))


@pytest.mark.parametrize("text", ["x", "c2hvcnQ=", "!"])
def test_a_key_that_is_none_is_a_fault_of_the_settings_that_does_not_repeat_it(text):
    with pytest.raises(BadSetting) as caught:
        seal_key(text)
    assert f"'{text}'" not in caught.value.sentence
    assert "seal_key: it is not the Base64 of 32 bytes" in caught.value.sentence


def test_the_events_are_those_of_openai_s_batches_and_our_own():
    assert EVENTS[4:] == ("batch.completed", "batch.failed", "batch.cancelled", "batch.expired")
