"""Rate limits of requests through whole servers: one over SQLite, and three over one PostgreSQL database."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.support.postgres import ServersClock
from tests.support.upped import until, upped

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ASKS, LIMIT, MORE = 200, 10, 40
UNIT_S = 60 / LIMIT
"""Within it a unit of a limit a minute flows back."""
SETTINGS = """
api_port = 0
drain_grace_s = 1
{database}
[pools.talk-{number}]
model = "fake"
purpose = "interactive"
min_workers = 1
engine_args = {{ token_latency_s = 0.1, max_model_len = 8192, max_num_seqs = 64 }}
"""
TOKENS = 4000
"""Of an answer: it goes on until its client leaves. A request is estimated at up to 99 more."""
LONG = {"type": "object", "properties": {"text": {"type": "string", "minLength": 5 * TOKENS}}, "required": ["text"]}
BODY = {
    "model": "fake",
    "messages": [{"role": "user", "content": "Tell me a tale."}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "tale", "schema": LONG}},
    "max_tokens": TOKENS,
    "stream": True,
}
WIDE = {"requests_per_minute": LIMIT + 5, "tokens_per_minute": (LIMIT + 5) * TOKENS, "concurrent_requests": LIMIT + 5}
NARROW = {
    "requests_per_minute": LIMIT,
    "tokens_per_minute": LIMIT * (TOKENS + 99),
    "concurrent_requests": LIMIT,
}
PLACES = "concurrent_requests"
REFUSED = {(429, "rate_limit_exceeded", True)}


@pytest.fixture(scope="module", params=["one on SQLite", "three on PostgreSQL"])
def servers(request, tmp_path_factory):
    """The clock of PostgreSQL stands still: nothing flows back. Each server has a pool of its own."""
    with ExitStack() as opened:
        database, count = "", 1
        if request.param == "three on PostgreSQL":
            made = opened.enter_context(request.getfixturevalue("postgres").database())
            database, count = f'database_url = "{made.url_of_clock(ServersClock())}"', 3
        folder = tmp_path_factory.mktemp("servers")

        def start(number):
            settings = SETTINGS.format(database=database, number=number)
            return opened.enter_context(upped(folder / str(number), settings))

        with ThreadPoolExecutor(count) as threads:
            servers = [*threads.map(start, range(count))]
        for server in servers:
            server.ready(server.client(server.key("other")), "fake")
        yield servers


@pytest.fixture
def still(servers):
    """Whether no time goes by for the limits."""
    return bool(servers[0].home.settings.database_url)


@contextmanager
def asked(servers, key, asks):
    """The answers to so many requests at the same moment, spread over the servers. Streams stand open inside."""
    gate, heads = threading.Barrier(asks), {"authorization": f"Bearer {key}"}
    with httpx.Client(limits=httpx.Limits(max_connections=asks), headers=heads, timeout=60) as client:

        def ask(number):
            request = client.build_request("POST", f"{servers[number % len(servers)].url}/chat/completions", json=BODY)
            gate.wait()
            return client.send(request, stream=True)

        with ThreadPoolExecutor(asks) as threads:
            answers = [*threads.map(ask, range(asks))]
        yield answers
        for answer in answers:
            answer.close()


def refusal_of(answer):
    """(status, code, whether it says when to come again)."""
    return answer.status_code, json.loads(answer.read())["error"]["code"], int(answer.headers["retry-after"]) >= 1


def limits_at(server, key):
    """What is left of each limit, and in how many seconds all of it is there again."""
    found = httpx.get(f"{server.url}/limits", headers={"authorization": f"Bearer {key}"}, timeout=60).json()
    return {one["limit"]: (one["remaining"], one["reset_s"] or 0.0) for one in found["rate_limits"]}


@pytest.mark.parametrize("narrow", NARROW)
def test_of_200_requests_at_a_limit_of_10_units_exactly_10_pass_and_the_others_take_nothing(servers, still, narrow):
    limits = {**WIDE, narrow: NARROW[narrow]}
    key = servers[0].key(tenant := narrow.replace("_", "-"), **limits)
    began = time.monotonic()
    with asked(servers, key, ASKS) as answers:
        passed = sum(answer.status_code == 200 for answer in answers)
        flowed = 0 if still or narrow == PLACES else int((time.monotonic() - began) / UNIT_S)
        assert LIMIT <= passed <= LIMIT + flowed
        assert {refusal_of(one) for one in answers if one.status_code != 200} == REFUSED
        if still or narrow == PLACES:
            before = limits_at(servers[0], key)
            with asked(servers, key, MORE) as more:
                assert {refusal_of(one) for one in more} == REFUSED
            after = [limits_at(server, key) for server in servers]
            assert all(one == before if still else nothing_was_taken(before, one) for one in after), (before, after)
            assert before[narrow][0] * LIMIT < limits[narrow], "not a tenth of it is left"
    until(lambda: limits_at(servers[-1], key)[PLACES][0] == limits[PLACES], "the places of those that left")
    assert len(servers[0].records(tenant)) == passed


def nothing_was_taken(before, after):
    """Time goes by: what is left only grows."""
    return all(after[name][0] >= left and after[name][1] <= reset_s for name, (left, reset_s) in before.items())
