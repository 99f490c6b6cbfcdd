"""What the API does beside a request's way: rate headers, faults, what it hears from threads, what it remembers."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from api.rest.auth import Caller
from api.rest.hearing import Break, Hearing
from api.rest.holding import taken
from api.rest.known import Known, Recent
from api.rest.live import Answering, _Events
from api.rest.parts import Limits
from api.rest.rated import duration, rate_headers, retry_headers
from api.rest.replay import StillUnderWay, take_turn
from api.rest.told import fault_of
from infra.clocks import ManualClock
from jobs.errors import KeyRefused
from jobs.model import Price, Usage
from jobs.ports.engine import EngineResult, RequestProfile
from jobs.ports.filing import Replay
from jobs.ports.limiting import Standing
from jobs.requests import End, Ended, LiveRequest, Piece
from jobs.tenancy import MEMBER_SCOPES, ApiKey, Tenant

pytestmark = pytest.mark.unit
REQUEST = LiveRequest(
    id="r",
    tenant="t",
    model="m",
    asked_model="alias",
    endpoint="/v1/completions",
    price=Price(version="1", model="m", currency="USD", input_micro=1, cached_micro=1, output_micro=1),
    profile=RequestProfile(key="k", kind="completion"),
    prompt="x",
)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.0121, "13ms"), (1, "1s"), (59.2, "1m0s"), (366, "6m6s"), (3725, "1h2m5s")]
)
def test_a_duration_is_written_as_openai_does(seconds, text):
    assert duration(seconds) == text


def test_what_has_no_limit_has_no_header():
    standing = Standing(limit_tokens=10, remaining_tokens=-2, reset_tokens_s=0.5)
    assert rate_headers(standing) == {
        "x-ratelimit-limit-tokens": "10",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "500ms",
    }


def test_a_retry_is_told_in_whole_seconds_and_exactly():
    assert retry_headers(0.2) == {"retry-after": "1", "retry-after-ms": "200"}


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (Ended(end=End.REFUSED, retry_after_s=0.2), "overloaded"),
        (Ended(end=End.REFUSED), "no_worker"),
        (Ended(end=End.LOST), "interrupted"),
        (Ended(end=End.ABORTED), "interrupted"),
        (Ended(end=End.DONE), "broken"),
        (Ended(end=End.DONE, result=EngineResult(1, "error", error_code="engine_error")), "broken"),
        (Ended(end=End.DONE, result=EngineResult(1, "error", error_code="invalid_request")), "invalid_request"),
    ],
)
def test_each_end_without_an_answer_is_an_error(ended, code):
    assert fault_of(ended, REQUEST, 0).code == code


def test_an_end_with_an_answer_is_none():
    assert fault_of(Ended(end=End.DONE, result=EngineResult(1, "length")), REQUEST, 0) is None


# ---- hearing ------------------------------------------------------------------------------------


class Hold:
    standing = Standing()

    def __init__(self):
        self.told = []

    def settle(self, tokens):
        self.told.append(tokens)

    def release(self):
        self.told.append("released")


async def never():
    await asyncio.Event().wait()


def test_pieces_from_another_thread_come_in_order_and_the_end_with_the_last():
    async def listen():
        hold = Hold()
        hearing = Hearing(hold)
        usage = Usage(input_tokens=3, cached_tokens=2, output_tokens=100)

        def talk():
            for number in range(100):
                hearing.hear(Piece(0, f"{number} ", 1))
            hearing.hear(Ended(end=End.DONE, usage=usage))

        thread = threading.Thread(target=talk)
        thread.start()
        text = ""
        while hearing.ended is None:
            text += "".join(piece.text for piece in await hearing.pieces())
        thread.join()
        return text, hearing.output_tokens, hearing.close(), hold.told

    assert asyncio.run(listen()) == ("".join(f"{number} " for number in range(100)), 100, False, [105])


@pytest.mark.parametrize(("end", "told"), [(End.REFUSED, "released"), (End.LOST, "released"), (End.ABORTED, 0)])
def test_what_was_held_is_given_back_where_nobody_pays(end, told):
    async def listen():
        hold = Hold()
        Hearing(hold).hear(Ended(end=end))
        return hold.told

    assert asyncio.run(listen()) == [told]


def test_the_prompt_of_one_that_pays_nothing_counts_towards_the_rate_all_the_same():
    async def listen():
        hold = Hold()
        Hearing(hold, 7).hear(Ended(end=End.ABORTED))
        Hearing(hold, 7).hear(Ended(end=End.DONE, usage=Usage(input_tokens=2, output_tokens=1)))
        Hearing(hold, 7).hear(Ended(end=End.REFUSED))
        return hold.told

    assert asyncio.run(listen()) == [7, 3, "released"]


def test_who_is_cancelled_while_its_limits_are_asked_holds_nothing():
    async def ask():
        asked, answer, released = threading.Event(), threading.Event(), asyncio.Event()

        def take():
            asked.set()
            answer.wait(10)
            return SimpleNamespace(release=released.set)

        asking = asyncio.ensure_future(taken(take))
        await asyncio.to_thread(asked.wait, 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        answer.set()
        return await asyncio.wait_for(released.wait(), 10)

    assert asyncio.run(ask())


def test_a_stream_that_cannot_even_begin_is_over_all_the_same():
    over = []

    async def events():
        yield b""

    async def send(_):
        raise OSError

    with pytest.raises(OSError):
        asyncio.run(_Events(events(), {}, lambda: over.append(True))({}, never, send))
    assert over == [True]


def test_a_cancelled_request_leaves_its_idempotency_key_free(monkeypatch):
    forgotten = []
    store = SimpleNamespace(
        begin=lambda tenant, key, digest, new_id, stale_s: Replay(digest=digest, resource=new_id, claim="c", mine=True),
        forget=lambda tenant, key, claim: forgotten.append((tenant, key, claim)),
    )
    ids = SimpleNamespace(new=lambda prefix: f"{prefix}1")
    parts = SimpleNamespace(store=store, ids=ids, clock=ManualClock(), limits=Limits())
    caller = Caller(
        key=ApiKey(id="k", tenant="t", digest="d", shown="nm_", scopes=MEMBER_SCOPES), tenant=Tenant(name="t")
    )
    app = SimpleNamespace(state=SimpleNamespace(parts=parts, known=None))
    monkeypatch.setattr(Answering, "_body", lambda _: asyncio.sleep(0, b"{}"))

    async def ask():
        begun = asyncio.Event()

        async def served(*_, keeps):
            begun.set()
            await never()

        monkeypatch.setattr(Answering, "_served", served)
        request = SimpleNamespace(app=app, state=SimpleNamespace(caller=caller))
        asking = asyncio.ensure_future(Answering(request, "/v1/x", "x-").answer("mine"))
        await asyncio.wait_for(begun.wait(), 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask())
    assert forgotten == [("t", "mine", "c")]


def test_one_that_waits_for_another_s_answer_looks_ever_more_seldom(monkeypatch):
    looks, clock = [], ManualClock()

    def begin(tenant, key, digest, new_id, stale_s):
        looks.append(clock.monotonic())
        return Replay(digest=digest, resource="first's", claim="its")

    async def pause(seconds):
        clock.advance(seconds)

    parts = SimpleNamespace(
        store=SimpleNamespace(begin=begin), ids=SimpleNamespace(new=str), clock=clock, limits=Limits(wait_s=20.0)
    )

    async def wait():
        async with take_turn(parts, SimpleNamespace(name="t"), "mine", "d", "x-"):
            pass

    monkeypatch.setattr("api.rest.replay.asyncio.sleep", pause)
    with pytest.raises(StillUnderWay):
        asyncio.run(wait())
    assert (len(looks) < 25, looks[1] - looks[0]) == (True, 0.05)


def test_a_client_that_leaves_and_a_time_that_is_up_end_the_wait():
    async def listen():
        async def gone():
            return {"type": "http.disconnect"}

        left, late = Hearing(Hold()), Hearing(Hold())
        left.watch(gone, 60)
        late.watch(never, 0)
        await left.end()
        await late.end()
        return (left.broken, left.close()), (late.broken, late.close())

    assert asyncio.run(listen()) == ((Break.GONE, True), (Break.LATE, True))


# ---- memory -------------------------------------------------------------------------------------


def test_an_answer_is_remembered_for_its_time_and_a_failure_not_at_all():
    async def ask():
        now, asked = [0.0], []
        recent = Recent(lambda: now[0], kept_s=2.0, most=1)

        def answer():
            asked.append(now[0])
            if now[0] == 9.0:
                raise ValueError
            return now[0]

        found = [await recent.of("a", answer)]
        for moment in (1.9, 2.0, 3.9):
            now[0] = moment
            found.append(await recent.of("a", answer))
        now[0] = 9.0
        failed = await asyncio.gather(recent.of("a", answer), recent.of("a", answer), return_exceptions=True)
        return found, [type(one) for one in failed], asked

    assert asyncio.run(ask()) == ([0.0, 0.0, 2.0, 2.0], [ValueError, ValueError], [0.0, 2.0, 9.0])


def test_a_key_that_expires_meanwhile_opens_nothing_though_it_is_remembered():
    key = ApiKey(id="key_1", tenant="acme", digest="d", shown="nm_x", expires_at=10.0)
    clock = ManualClock(9.0)
    store = SimpleNamespace(key_by_digest=lambda _: (key, Tenant(name="acme")))

    async def ask():
        known = Known(SimpleNamespace(store=store, clock=clock))
        found = await known.caller("nm_x")
        clock.advance(1.5)
        with pytest.raises(KeyRefused, match="it has expired"):
            await known.caller("nm_x")
        return found.name

    assert asyncio.run(ask()) == "acme"


def test_the_oldest_is_forgotten_where_there_are_too_many():
    async def ask():
        asked = []
        recent = Recent(lambda: 0.0, most=1)
        for key in ("a", "b", "a"):
            await recent.of(key, lambda key=key: asked.append(key))
        return asked

    assert asyncio.run(ask()) == ["a", "b", "a"]
