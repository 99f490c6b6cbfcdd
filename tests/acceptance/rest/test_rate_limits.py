"""Limits of keys and tenants, as the stock client and its six headers see them."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from jobs.tenancy import RequestLimits, Tenant
from tests.support.api import talking
from tests.support.front import SmallFront

pytestmark = pytest.mark.acceptance
CHAT = {"model": "fake", "messages": [{"role": "user", "content": "[x] y"}], "max_tokens": 8}


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    with talking(tmp_path_factory.mktemp("rates"), front=SmallFront()) as opened:
        yield opened


def limited(town, tenant, **limits):
    """A new key of a tenant, with limits."""
    text = town.key(tenant)
    key = town.home.store.keys(tenant, limit=1)[0]
    town.home.store.limit_key(key.id, RequestLimits(**limits), tenant=None, actor="cli:test")
    return text


def test_of_200_requests_at_once_a_limit_of_10_a_minute_lets_10_through(town):
    client = town.openai(limited(town, "busy", requests_per_minute=10))

    def ask(_):
        try:
            return client.chat.completions.create(**CHAT).object
        except openai.RateLimitError as error:
            return error.code

    began = time.monotonic()
    with ThreadPoolExecutor(50) as threads:
        answers = Counter(threads.map(ask, range(200)))
    flowed_off = (time.monotonic() - began) / 6
    assert 10 <= answers["chat.completion"] <= 10 + flowed_off
    assert answers.total() == 200 == answers["chat.completion"] + answers["rate_limit_exceeded"]


def test_a_refusal_has_the_six_headers_and_says_when_to_come_back(town):
    http = town.http(limited(town, "calm", requests_per_minute=2, tokens_per_minute=40))
    answers = [http.post("/v1/chat/completions", json=CHAT) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    error, headers = answers[2].json()["error"], answers[2].headers
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "may have 2 requests a minute; this asks for 1 more, for which there is room in" in error["message"]
    assert 1 <= int(headers["retry-after"]) <= 30
    assert (headers["x-ratelimit-limit-requests"], headers["x-ratelimit-limit-tokens"]) == ("2", "40")
    assert (headers["x-ratelimit-remaining-requests"], headers["x-ratelimit-reset-requests"][-1]) == ("0", "s")


def test_what_can_never_be_granted_is_not_worth_a_retry(town):
    http = town.http(limited(town, "small", tokens_per_minute=5))
    answer = http.post("/v1/chat/completions", json=CHAT)
    assert (answer.status_code, answer.headers["x-should-retry"], "retry-after" in answer.headers) == (
        429, "false", False,
    )  # fmt: skip
    assert "which can never be granted" in answer.json()["error"]["message"]


def test_limits_show_those_of_key_and_tenant_as_they_stand(town):
    text = limited(town, "shown", requests_per_minute=10, concurrent_requests=3)
    town.home.store.put_tenant(Tenant(name="shown", tokens_per_minute=6000), "cli:test")
    http = town.http(text)
    before = http.get("/v1/limits").json()["rate_limits"]
    assert before == [
        {"of": "key", "limit": "requests_per_minute", "value": 10, "remaining": 10, "reset_s": 0.0},
        {"of": "key", "limit": "concurrent_requests", "value": 3, "remaining": 3, "reset_s": None},
        {"of": "tenant", "limit": "tokens_per_minute", "value": 6000, "remaining": 6000, "reset_s": 0.0},
    ]
    assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
    after = http.get("/v1/limits").json()["rate_limits"]
    assert (after[0]["remaining"], 0 < after[0]["reset_s"] <= 6, after[2]["remaining"] < 6000) == (9, True, True)
