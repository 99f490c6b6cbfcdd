"""Webhooks from a terminal: an endpoint, its secret shown once, and what was sent to it."""

import re

import openai
import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import refused, wait_for
from tests.acceptance.goods import ROWS
from tests.acceptance.test_going_on import PROMPT
from tests.support.hooks import receiver

pytestmark = pytest.mark.acceptance


@pytest.fixture
def there():
    with receiver() as found:
        yield found


@pytest.fixture
def mill(nightmill):
    """May call this machine."""
    (nightmill.home / "nightmill.toml").write_text('private_hosts = ["127.0.0.1"]\n[pools.batch]\nmodel = "fake"\n')
    return nightmill


def test_what_up_runs_is_told_and_the_secret_is_nowhere_but_where_it_was_shown(mill, there, inputs):
    made = mill("webhooks", "add", f"{there.url}/hook?token=of-mine", "--name", "nightly", "--json").json
    other = mill("webhooks", "add", there.url, "--event", "job.failed", "--json").json
    with mill.started("up") as up:
        asked = [
            "submit",
            inputs / "goods.parquet",
            "--model",
            "fake",
            "--prompt",
            PROMPT,
            "--output",
            mill.folder / "out",
        ]
        job = mill(*asked, "--json").json["job"]
        wait_for(lambda: there.got, "the message", up, every_s=0.1)
        wait_for(lambda: mill("webhooks", "deliveries", "--state", "delivered", "--json").json, "its note", up)
        up.interrupt()
        assert up.wait().code == Exit.OK
    (got,) = there.got
    with openai.OpenAI(api_key="x", webhook_secret=made["secret"]) as client:
        event = client.webhooks.unwrap(got.body, got.headers)
    (sent,) = mill("webhooks", "deliveries", "--json").json
    assert (event.type, event.data.id, got.path) == ("job.completed", job, "/hook?token=of-mine")
    assert (sent["id"], sent["webhook"], sent["subject"], sent["state"], sent["attempts"], sent["status"]) == (
        got.headers["webhook-id"], made["id"], job, "delivered", 1, 204,
    )  # fmt: skip
    assert mill.results(job).num_rows == ROWS
    kept = {path.name: path.read_bytes() for path in mill.home.rglob("*") if path.is_file()}
    hidden = made["secret"].removeprefix("whsec_").encode()
    assert [name for name, content in kept.items() if hidden in content] == []
    assert [name for name, content in kept.items() if b"of-mine" in content and name.endswith(".log")] == []
    assert {w["id"] for w in mill("webhooks", "list", "--json").json} == {made["id"], other["id"]}


def test_an_endpoint_is_listed_removed_and_logged(mill, there):
    said = mill("webhooks", "add", there.url).out
    name = re.search(r"we_\w+", said)[0]
    assert re.search(r"^    whsec_[A-Za-z0-9+/=]{44}$", said, re.MULTILINE)
    listed = mill("webhooks", "list").out
    assert (name in listed, "whsec" in listed) == (True, False)
    assert mill("webhooks", "remove", name).out == f"Webhook {name} of default is removed.\n"
    assert (mill("webhooks", "list", "--json").json, mill("webhooks", "deliveries", "--json").json) == ([], [])
    events = [(e["action"], e["subject"]) for e in mill("audit", "--json").json if "webhook" in e["action"]]
    assert events == [("webhook.removed", name), ("webhook.added", name)]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["webhooks", "add", "http://localhost:1/x"],
            "localhost:1 cannot be called: it is, or resolves to, an address that is not public.",
        ),
        (
            ["webhooks", "add", "ftp://example.com"],
            "ftp://example.com cannot be called: only http:// and https:// can.",
        ),
        (
            ["webhooks", "remove", "we_x"],
            "There is no webhook named we_x. List those there are: nightmill webhooks list.",
        ),
        (
            ["webhooks", "resend", "msg_x"],
            "There is no delivery named msg_x. List those there are: nightmill webhooks deliveries.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(nightmill, argv, sentence):
    done = nightmill(*argv, code=None)
    assert (done.code != 0, done.err.rstrip(".\n")) == (True, refused(sentence).err.rstrip(".\n"))
