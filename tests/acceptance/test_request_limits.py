"""Limits of interactive requests at the command line: of tenants and of keys."""

import re

import pytest

from tests.acceptance.conftest import refused

pytestmark = pytest.mark.acceptance

FIELDS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")


def limits_of(record):
    return tuple(record[field] for field in FIELDS)


def last(nightmill):
    event = nightmill("audit", "--json").json[0]
    return event["action"], event["detail"]


def test_a_tenant_s_limits_are_set_one_by_one_and_each_change_is_logged(nightmill):
    nightmill("tenants", "add", "acme", "--requests-per-minute", 600)
    assert last(nightmill) == ("tenant.created", "requests_per_minute=600")
    said = nightmill("tenants", "limit", "acme", "--tokens-per-minute", "100_000", "--concurrent-requests", 8).out
    assert said == (
        "Tenant acme is limited; it may have any number of tokens enqueued, 600 requests a minute, "
        "100,000 tokens a minute, 8 requests at a time.\n"
    )
    assert last(nightmill) == ("tenant.changed", "tokens_per_minute=100000, concurrent_requests=8")
    shown = nightmill("tenants", "limit", "acme", "5000", "--requests-per-minute", "none", "--json").json
    assert (limits_of(shown), shown["enqueued_tokens_limit"]) == ((None, 100_000, 8), 5000)
    assert re.search(r"^acme .* 5,000 +- +100,000 +8 ", nightmill("tenants", "list").out, re.MULTILINE)


def test_a_key_s_limits_are_its_own_and_go_on_to_the_key_in_its_place(nightmill):
    made = nightmill("keys", "create", "--requests-per-minute", 60, "--tokens-per-minute", "none", "--json").json
    assert limits_of(made) == (60, None, None)
    said = nightmill("keys", "limit", made["id"], "--concurrent-requests", 4).out
    assert (
        said == f"Key {made['id']} ({made['shown']}…) of default may have 60 requests a minute, 4 requests at a time.\n"
    )
    assert last(nightmill) == ("key.limited", f"{made['shown']}… concurrent_requests=4")
    new = nightmill("keys", "rotate", made["id"], "--json").json
    assert limits_of(new) == (60, None, 4)
    free = nightmill("keys", "limit", new["id"], "--requests-per-minute", "none", "--concurrent-requests", "none").out
    assert free == f"Key {new['id']} ({new['shown']}…) of default may have any number of requests.\n"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["tenants", "limit", "default"],
            "Say which limit: TOKENS, or an option. See: nightmill tenants limit --help",
        ),
        (["keys", "limit", "key_x"], "Say which limit, by an option. See: nightmill keys limit --help"),
        (
            ["keys", "limit", "key_x", "--concurrent-requests", "4"],
            "There is no API key named key_x. List the keys there are: nightmill keys list",
        ),
        (
            ["keys", "create", "--requests-per-minute", "0"],
            (
                "Invalid value for '--requests-per-minute': '0' is no limit: write a whole number from 1, or none. "
                "See: nightmill keys create --help"
            ),
        ),
    ],
)
def test_a_limit_that_is_none_is_refused_in_a_sentence(shared, argv, sentence):
    assert shared(*argv, code=None) == refused(sentence, code=2)
