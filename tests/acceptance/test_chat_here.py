"""`nightmill chat` beside `nightmill up`: it finds it, has a key while it lasts, and says what an answer cost."""

import pytest

from tests.acceptance.conftest import refused, wait_for

pytestmark = pytest.mark.acceptance


@pytest.fixture
def up(nightmill):
    nightmill.env["NIGHTMILL_API_PORT"] = "0"
    with nightmill.started("up", "--model", "fake") as running:
        wait_for(lambda: "Nightmill is up" in running.out, "word that it is up", running)
        yield running
        running.interrupt()
        running.wait()


def test_a_message_is_answered_with_its_usage_and_price(nightmill, up):
    done = nightmill("chat", "Name three rivers.", "--max-tokens", 6)
    assert done.out.startswith("fake ")
    assert done.err.splitlines()[-1] == "(7 tokens in (0 cached), 6 out, cut by its limit, 0.0000031 USD)"


def test_a_machine_gets_json(nightmill, up):
    found = nightmill("chat", "Name three rivers.", "--max-tokens", 6, "--json").json
    usage = found["usage"]
    assert (found["model"], found["finish_reason"], found["cost"]) == ("fake", "length", "0.0000031 USD")
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (7, 6)


def test_its_key_ends_with_it(nightmill, up):
    nightmill("chat", "Hello.", "--max-tokens", 2)
    keys = [key for key in nightmill("keys", "list", "--json").json if key["name"] == "chat"]
    assert [(key["scopes"], key["revoked_at"] is not None) for key in keys] == [(["inference", "jobs.read"], True)]


def test_a_key_and_an_address_of_ones_own_are_taken(nightmill, up):
    key = nightmill("keys", "create", "--name", "mine", "--json").json["key"]
    url = next(line for line in up.out.splitlines() if "REST API" in line).split()[-1].removesuffix("/v1")
    done = nightmill("chat", "Hello.", "--url", url, "--key", key, "--model", "fake", "--max-tokens", 2)
    assert done.err.splitlines()[-1] == "(4 tokens in (0 cached), 2 out, cut by its limit)"


def test_where_nothing_runs_it_says_what_to_do_and_makes_no_key(nightmill):
    nightmill.env["NIGHTMILL_API_PORT"] = "1"
    assert nightmill("chat", "Hello.", code=7) == refused(
        "Nothing answers at http://127.0.0.1:1. Run `nightmill up` in another terminal, or name one that runs with "
        "--url and --key.",
        code=7,
    )
    assert nightmill("keys", "list", "--json").json == []


def test_an_unknown_model_is_named_with_those_that_are_served(nightmill, up):
    done = nightmill("chat", "Hello.", "--model", "gpt-9", code=2)
    assert done.err == "Error: There is no model gpt-9 for requests here. Served are: fake.\n"


@pytest.mark.parametrize("url", ["localhost:8000", "http://[", "http://127.0.0.1:99999", "ftp://127.0.0.1"])
def test_what_is_no_address_is_refused(nightmill, url):
    assert nightmill("chat", "Hello.", "--url", url, "--key", "nm_x", code=2) == refused(
        f"--url: {url!r} is no address; one looks like http://127.0.0.1:8000.", code=2
    )


@pytest.mark.parametrize("key", ["", "nm_a\nb", "nm_ü"])
def test_what_is_no_key_is_refused_and_not_said_back(nightmill, key):
    assert nightmill("chat", "Hello.", "--url", "http://127.0.0.1:1/v1", "--key", key, code=2) == refused(
        "--key: this is no API key; one looks like nm_….", code=2
    )
