"""What goes wrong with a request that somebody waits for, as the stock client sees it."""

import json
import threading

import openai
import orjson
import pytest

from infra.data.live_reading import BodyReading
from infra.data.live_writing import WholeWriter
from jobs.model import Price
from jobs.tenancy import Alias, Scope, digest_of
from tests.support.api import talking, until
from tests.support.front import SmallFront
from tests.support.limiter import SmallLimiter

pytestmark = pytest.mark.acceptance
CHAT = "/v1/chat/completions"


def said(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def front():
    return SmallFront()


@pytest.fixture(scope="module")
def limiter():
    return SmallLimiter()


@pytest.fixture(scope="module")
def town(tmp_path_factory, front, limiter):
    folder = tmp_path_factory.mktemp("errors")
    with talking(folder, front=front, limiter=limiter, generation_timeout_s=1.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(town):
    return town.openai()


@pytest.fixture(scope="module")
def http(town):
    return town.http(town.key())


def chat(text, **more):
    return {"model": "fake", "messages": said(text), "max_tokens": 8, **more}


TOO_MANY = chat("x", max_tokens=3000, n=2)


# ---- the client's own classes and retries -------------------------------------------------------


def test_a_busy_model_is_a_rate_limit_error_that_says_when_to_come_back(client):
    with pytest.raises(openai.RateLimitError, match="All workers of model fake are busy") as caught:
        client.chat.completions.create(**chat("[busy]"))
    headers = caught.value.response.headers
    assert (caught.value.code, headers["retry-after"], headers["retry-after-ms"]) == ("overloaded", "3", "2500")


@pytest.mark.parametrize("stream", [False, True])
def test_the_client_tries_again_by_itself_when_it_was_told_to(town, front, stream):
    text = f"[busy-once] {stream}"
    made = town.openai(max_retries=2).chat.completions.create(**chat(text, stream=stream))
    words = "".join(chunk.choices[0].delta.content or "" for chunk in made) if stream else made.choices
    assert words
    assert sum(text in str(request.prompt) for request in front.asked) == 2


def test_an_unknown_model_is_not_found_and_those_that_are_served_are_named(client):
    with pytest.raises(openai.NotFoundError, match="Served are: fake, embedder") as caught:
        client.chat.completions.create(model="gpt-9", messages=said("Hello"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


def test_a_name_as_long_as_a_body_is_not_said_back_whole(http):
    answer = http.post(CHAT, json={**chat("x"), "model": "m" * 100_000})
    assert (answer.status_code, len(answer.content) < 1000) == (404, True)


def test_a_model_without_a_worker_is_unavailable(client):
    with pytest.raises(openai.InternalServerError, match="No worker of model fake takes requests") as caught:
        client.chat.completions.create(**chat("[nobody]"))
    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "5")


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"messages": said("x")}, "missing_required_parameter", "model"),
        ({"model": "fake", "messages": []}, "invalid_request", "messages"),
        (chat("x", temperature=3), "invalid_request", "temperature"),
        (chat("x", tempratur=1), "unsupported_parameter", "tempratur"),
        (chat("x", stream="yes"), "invalid_request", "stream"),
        (chat("x", stream_options={"include_usage": True}), "invalid_request", "stream_options"),
        (chat("x", stream=True, stream_options={"usage": True}), "invalid_request", "stream_options"),
        (chat("x", n=200), "invalid_request", "n"),
        (
            chat("x", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "oops"}}}),
            "invalid_request",
            "response_format",
        ),
        (chat("x" * 40_000), "context_length_exceeded", None),
        ({"model": "embedder", "messages": said("x")}, "invalid_request", "model"),
    ],
)
def test_what_cannot_be_done_is_a_bad_request_that_names_the_field(http, body, code, param):
    answer = http.post(CHAT, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"", b'{"model": NaN}'])
def test_a_body_that_is_no_object_is_a_bad_request(http, body):
    answer = http.post(CHAT, content=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")


def test_a_body_of_nothing_but_brackets_is_refused_before_it_is_parsed(http):
    answer = http.post(CHAT, content=b'{"model":"fake","messages":[' + b",".join([b"[]"] * 600_000) + b"]}")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "body: it has more than 524,288 lists and objects.",
    )


def test_a_model_without_a_price_is_refused(town, http):
    town.home.registry.add("unpriced", None, kind="chat", engine="fake")
    pools = town.home.pools
    town.home.__dict__["pools"] = (*pools, pools[0].evolve(name="unpriced", model="unpriced"))
    answer = http.post(CHAT, json={**chat("x"), "model": "unpriced"})
    town.home.__dict__["pools"] = pools
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_price")


def test_the_price_of_the_moment_goes_with_the_request(town, http, front):
    price = Price(version="dear", model="embedder", currency="USD", input_micro=7, cached_micro=7, output_micro=0)
    town.home.store.set_price(price)
    town.home.store.put_alias(Alias(alias="not-asked-for-yet", model="embedder"), "test")
    http.post("/v1/embeddings", json={"model": "not-asked-for-yet", "input": "a lamp"})
    assert front.asked[-1].price.version == "dear"


def test_a_key_needs_the_scope(town):
    answer = town.http(town.key(scopes=frozenset({Scope.JOBS_READ}))).post(CHAT, json=chat("x"))
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        403,
        "This API key may not do that: it lacks the scope inference.",
    )


def test_a_revoked_key_opens_nothing_after_a_moment(town):
    http = town.http(key := town.key())
    assert http.post(CHAT, json=chat("x")).status_code == 200
    record, _ = town.home.store.key_by_digest(digest_of(key))
    town.home.store.end_key(record.id, tenant=None, at=None, actor="test")
    until(lambda: http.post(CHAT, json=chat("x")).status_code == 401, "the end of the key")


def test_a_body_with_a_schema_is_read_beside_the_event_loop_however_it_is_spelled(http, monkeypatch):
    threads, read = [], BodyReading.read

    def noted(self, asking, body):
        threads.append(threading.current_thread().name)
        return read(self, asking, body)

    monkeypatch.setattr(BodyReading, "read", noted)
    plain = orjson.dumps(chat("x"))
    for body in (plain, plain[:-1] + rb',"respons\u0065_format":{"type":"json_object"}}'):
        assert http.post(CHAT, content=body).status_code == 200
    assert [name == "api" for name in threads] == [True, False]


def test_a_long_answer_is_written_beside_the_event_loop(http, monkeypatch):
    threads, whole = [], WholeWriter.whole

    def noted(self, result):
        threads.append(threading.current_thread().name)
        return whole(self, result)

    monkeypatch.setattr(WholeWriter, "whole", noted)
    for inputs in (1, 1000):
        body = {"model": "embedder", "input": ["a lamp"] * inputs}
        assert len(http.post("/v1/embeddings", json=body).json()["data"]) == inputs
    assert [name == "api" for name in threads] == [True, False]


# ---- what breaks on the way ---------------------------------------------------------------------


def test_an_answer_that_breaks_off_says_so_and_what_it_cost(http):
    answer = http.post(CHAT, json=chat("[stopped]"))
    assert answer.status_code == 503
    assert "broke off after 2 tokens: its worker had to stop, and what was generated is charged" in answer.text


def test_a_stream_that_breaks_off_ends_with_an_error_that_says_what_was_generated(http):
    with http.stream("POST", CHAT, json=chat("[endless]", stream=True)) as answer:
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    error = json.loads(events[-1])["error"]
    told = [json.loads(event)["choices"][0]["delta"].get("content") for event in events[1:-1]]
    characters = sum(len(text) for text in told)
    assert (error["code"], error["generated"]["characters"]) == ("interrupted", characters)
    assert error["generated"]["output_tokens"] * len("word ") == characters > 0
    assert "it took longer than 1 s" in error["message"]


def test_the_client_raises_what_ends_a_stream(client):
    stream = client.chat.completions.create(**chat("[endless]", stream=True))
    with pytest.raises(openai.APIError, match="it took longer than 1 s"):
        list(stream)


def test_an_answer_that_takes_too_long_is_ended(http, front):
    answer = http.post(CHAT, json=chat("[endless]"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "interrupted")
    assert front.asked[-1].id in front.left


# ---- limits -------------------------------------------------------------------------------------


def test_every_answer_has_the_six_headers(http):
    for body in (chat("x"), chat("x", stream=True), chat("[busy]"), TOO_MANY):
        headers = http.post(CHAT, json=body).headers
        assert {name: headers[name] for name in headers if name.startswith("x-ratelimit-")} == {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-reset-requests": "1s",
            "x-ratelimit-limit-tokens": "1000",
            "x-ratelimit-remaining-tokens": "0" if body == TOO_MANY else "900",
            "x-ratelimit-reset-tokens": "6m6s",
        }


def test_whoever_is_over_the_limit_is_told_when_to_come_back_and_no_worker_is_asked(http, front):
    asked = len(front.asked)
    answer = http.post(CHAT, json=TOO_MANY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("1", "250")
    assert len(front.asked) == asked


def test_what_was_held_is_given_back_where_the_front_fails(http, front, limiter, monkeypatch):
    def fails(request, hear):
        raise RuntimeError

    monkeypatch.setattr(front, "ask", fails)
    monkeypatch.setattr(limiter, "told", [])
    assert (http.post(CHAT, json=chat("x")).status_code, [how for how, *_ in limiter.told]) == (500, ["released"])


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_held_is_settled_with_what_was_used_or_given_back(http, limiter, at_once, monkeypatch):
    monkeypatch.setattr(limiter, "at_once", at_once)
    monkeypatch.setattr(limiter, "told", [])
    http.post(CHAT, json=chat("A few words."))
    http.post(CHAT, json=chat("[busy]"))
    http.post(CHAT, json=chat("[endless]", stream=True))
    until(lambda: len(limiter.told) == 3, "the end of the last one")
    (done, held, used), (refused, *_), (left, _, generated) = limiter.told
    assert (done, refused, left) == ("settled", "released", "settled")
    assert held == used == 4 + 8 + 3 + 4 or held >= used > 0
    assert generated > 0


# ---- idempotency --------------------------------------------------------------------------------


def test_the_same_key_gets_the_same_answer_and_is_charged_once(http, front):
    asked = len(front.asked)
    first, again = (http.post(CHAT, json=chat("Once."), headers={"idempotency-key": "one"}) for _ in range(2))
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert len(front.asked) == asked + 1


def test_a_key_of_a_request_that_was_refused_is_free_again(http):
    found = [
        http.post(CHAT, json=chat("[busy-once] by key"), headers={"idempotency-key": "two"}).status_code
        for _ in range(2)
    ]
    assert found == [429, 200]


def test_a_stream_takes_no_idempotency_key(http):
    answer = http.post(CHAT, json=chat("x", stream=True), headers={"idempotency-key": "three"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream")
