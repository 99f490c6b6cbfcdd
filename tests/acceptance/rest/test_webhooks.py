"""Whoever is to be told of an end is told, once it is an end: by endpoint, and by the job or batch itself."""

from itertools import count

import openai
import pytest

from jobs.tenancy import Role, Scope
from tests.support.api import some_lines, until
from tests.support.hooks import SECRET, receiver

pytestmark = pytest.mark.acceptance

LINES = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
NUMBERS = count()
JOB = {"model": "fake", "rows": [{"a": "x"}], "prompt": "say {{ a }}", "max_tokens": 4}


@pytest.fixture
def there():
    with receiver() as found:
        yield found


@pytest.fixture
def admin(api):
    return api.key(f"hooks-{next(NUMBERS)}", role=Role.ADMIN, scopes=frozenset(Scope))


def events(there, secret):
    """What came, as OpenAI's own client reads it, its signature checked."""
    with openai.OpenAI(api_key="x", webhook_secret=secret) as client:
        return sorted(
            (event.type, event.data.id)
            for event in (client.webhooks.unwrap(got.body, got.headers) for got in there.got)
        )


def test_the_stock_client_adds_an_endpoint_and_reads_what_it_is_sent(api, there, admin):
    client = api.openai(admin)
    made = client.webhooks.create(event_types=["batch.completed"], name="nightly", url=f"{there.url}/hook")
    batch = client.batches.create(
        input_file_id=client.files.create(file=("in.jsonl", some_lines(2)), purpose="batch").id, **LINES
    )
    until(lambda: there.got, "the message")
    assert (events(there, made.signing_secret), client.batches.retrieve(batch.id).status) == (
        [("batch.completed", batch.id)],
        "completed",
    )
    listed = [one.to_dict() for one in client.webhooks.list()]
    assert (listed, client.webhooks.retrieve(made.id).to_dict()) == ([listed[0]], listed[0])
    assert (listed[0]["url"], listed[0]["name"], listed[0].get("signing_secret")) == (
        f"{there.url}/hook",
        "nightly",
        None,
    )
    assert client.webhooks.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.webhooks.retrieve(made.id)
    kept = (api.home.settings.home / "nightmill.db-wal").read_bytes() + (
        api.home.settings.home / "nightmill.db"
    ).read_bytes()
    logged = api.home.settings.log_file.read_bytes()
    assert [made.signing_secret.removeprefix("whsec_").encode() in where for where in (kept, logged)] == [False, False]


def test_a_batch_and_a_job_tell_whom_they_name_and_nobody_else(api, there):
    client, key = api.openai(), api.key("one-off")
    ask = {"webhook": {"url": there.url, "secret": SECRET}}
    file = client.files.create(file=("in.jsonl", some_lines(2)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, extra_body=ask, **LINES)
    client.batches.create(input_file_id=file.id, **LINES)
    http = api.http(key)
    job = http.post("/v1/jobs", json={**JOB, **ask}, headers={"idempotency-key": "a"}).json()
    again = http.post("/v1/jobs", json={**JOB, **ask}, headers={"idempotency-key": "a"}).json()
    until(lambda: len(there.got) >= 2, "two messages")
    assert again["id"] == job["id"]
    assert events(there, SECRET) == [("batch.completed", batch.id), ("job.completed", job["id"])]


def test_a_receiver_that_failed_gets_the_same_message_again(api, there, admin):
    there.answer = lambda _: (503 if len(there.got) == 1 else 200, {}, b"")
    made = api.openai(admin).webhooks.create(event_types=["job.completed"], name="x", url=there.url)
    api.http(admin).post("/v1/jobs", json=JOB)
    until(lambda: there.got, "the first try")
    (delivery,) = until(lambda: [d for d in api.home.store.deliveries(webhook=made.id) if d.reason], "its failure")
    assert (delivery.reason, delivery.status, delivery.outcome) == ("it answered with status 503", 503, "")
    api.home.store.resend(delivery.id)
    until(lambda: len(there.got) == 2, "the second try")
    assert len(set(there.ids())) == 1
    assert [got.body for got in there.got] == [delivery.body.encode()] * 2


@pytest.mark.parametrize(
    ("webhook", "code", "param"),
    [
        ({"url": "http://10.0.0.1/", "secret": SECRET}, "address_refused", None),
        ({"url": "http://localhost:1/", "secret": SECRET}, "address_refused", None),
        ({"url": "ftp://example.com/", "secret": SECRET}, "address_refused", None),
        ({"url": "http://127.0.0.1/", "secret": "short"}, "bad_input", "webhook.secret"),
        ({"url": "http://127.0.0.1/"}, "bad_input", "webhook.secret"),
    ],
)
def test_what_may_not_be_called_is_refused_before_anything_is_made(api, webhook, code, param):
    answer = api.http(api.key("refused")).post("/v1/jobs", json={**JOB, "webhook": webhook})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param)
    assert api.home.store.jobs(tenant="refused") == []


def test_endpoints_are_an_admin_s_business_and_name_events_that_there_are(api, there, admin):
    body = {"url": there.url, "name": "x", "event_types": ["batch.completed"]}
    member = api.http(api.key("members")).post("/v1/webhook_endpoints", json=body)
    unknown = api.http(admin).post("/v1/webhook_endpoints", json={**body, "event_types": ["batch.done"]})
    assert [(a.status_code, a.json()["error"]["code"]) for a in (member, unknown)] == [
        (403, "not_allowed"),
        (400, "bad_input"),
    ]


def test_a_repeated_create_makes_one_endpoint_and_shows_no_secret_again(api, there, admin):
    body = {"url": there.url, "name": "x", "event_types": ["batch.completed"]}
    http = api.http(admin)
    first, second = (
        http.post("/v1/webhook_endpoints", json=body, headers={"idempotency-key": "k"}).json() for _ in range(2)
    )
    assert (second, first["signing_secret"][:6]) == ({**first, "signing_secret": None}, "whsec_")
    assert len(http.get("/v1/webhook_endpoints").json()["data"]) == 1
