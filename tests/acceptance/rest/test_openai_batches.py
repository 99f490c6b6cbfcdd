"""A program written for OpenAI's Batch API, with only `base_url` and the key changed."""

import json

import openai
import pytest
import sqlalchemy as sa

from jobs.tenancy import Alias, Tenant
from tests.support.api import a_line, lines_of, some_lines, town, until

pytestmark = pytest.mark.acceptance
ENDED = {"completed", "failed", "expired", "cancelled"}


def uploaded(client, content, name="requests.jsonl", **options):
    return client.files.create(file=(name, content), purpose="batch", **options)


def created(client, content, **options):
    given = {"endpoint": "/v1/chat/completions", "completion_window": "24h", **options}
    return client.batches.create(input_file_id=uploaded(client, content).id, **given)


def ended(client, batch):
    return until(lambda: (b := client.batches.retrieve(batch.id)).status in ENDED and b, f"the end of {batch.id}")


def answers(client, file_id):
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


def test_a_batch_goes_from_upload_to_results(api):
    client = api.openai()
    batch = ended(client, created(client, some_lines(20), metadata={"customer": "catalog"}))
    found = answers(client, batch.output_file_id)
    assert (
        batch.status,
        batch.request_counts.to_dict(),
        batch.error_file_id,
        batch.metadata,
        batch.model,
        sorted(line["custom_id"] for line in found),
        {line["response"]["body"]["model"] for line in found},
        batch.usage.output_tokens > 0,
    ) == (
        "completed",
        {"total": 20, "completed": 20, "failed": 0},
        None,
        {"customer": "catalog"},
        "fake",
        sorted(f"line-{n}" for n in range(20)),
        {"fake"},
        True,
    )


def test_an_alias_is_echoed_in_every_answer_and_the_served_model_is_paid(api):
    key = api.key("alias-user")
    api.home.store.put_alias(Alias(alias="gpt-4o-mini", model="fake", tenant="alias-user"), "test")
    client = api.openai(key)
    batch = ended(client, created(client, some_lines(3, model="gpt-4o-mini")))
    found = answers(client, batch.output_file_id)
    statement = api.home.store.statement("alias-user")
    names = [model.id for model in client.models.list()]
    assert (
        batch.model,
        {line["response"]["body"]["model"] for line in found},
        {line.model for line in statement},
        names,
        client.models.retrieve("gpt-4o-mini").id,
    ) == ("gpt-4o-mini", {"gpt-4o-mini"}, {"fake"}, ["fake", "gpt-4o-mini"], "gpt-4o-mini")


def test_what_is_wrong_with_lines_fails_the_batch_with_their_numbers(api):
    client = api.openai()
    content = lines_of(
        a_line(0),
        "this is no JSON",
        {**a_line(2), "method": "GET"},
        {**a_line(3), "url": "/v1/embeddings"},
        a_line(4, model="other"),
        a_line(5, tools_of_the_trade=[]),
        {"custom_id": "six"},
    )
    batch = ended(client, created(client, content))
    assert (
        batch.status,
        batch.failed_at is not None,
        [(one.line, one.code, one.param) for one in batch.errors.data],
    ) == (
        "failed",
        True,
        [
            (2, "invalid_json_line", None),
            (3, "invalid_method", "method"),
            (4, "invalid_url", "url"),
            (5, "mismatched_model", "body.model"),
            (6, "unsupported_parameter", "body.tools_of_the_trade"),
            (7, "missing_required_parameter", "method"),
        ],
    )


@pytest.mark.parametrize(
    ("content", "line", "code"),
    [
        (some_lines(2) + some_lines(1), 3, "duplicate_custom_id"),
        (b"\n\n", None, "empty_file"),
        (some_lines(1, model="gpt-9"), 1, "model_not_found"),
        (b"not json at all\n", 1, "invalid_json_line"),
    ],
)
def test_a_file_that_cannot_be_carried_out_fails_the_batch(api, content, line, code):
    client = api.openai()
    batch = ended(client, created(client, content))
    assert (batch.status, [(one.line, one.code) for one in batch.errors.data]) == ("failed", [(line, code)])


def test_lists_go_on_by_cursor_newest_first(api):
    client = api.openai(api.key("lister"))
    made = [created(client, some_lines(1)).id for _ in range(5)]
    first = client.batches.list(limit=2)
    files = client.files.list(limit=3, purpose="batch")
    assert (
        [batch.id for batch in first.data],
        first.has_more,
        [batch.id for batch in client.batches.list(limit=2)],
        [file.id for file in files],
        [file.filename for file in client.files.list(order="asc", limit=1).data],
    ) == (
        made[::-1][:2],
        True,
        made[::-1],
        [file.id for file in client.files.list(purpose="batch")],
        ["requests.jsonl"],
    )


def test_a_cancelled_batch_accounts_for_every_line(api):
    client = api.openai()
    batch = created(client, some_lines(3000, max_tokens=64))
    client.batches.cancel(batch.id)
    batch = ended(client, batch)
    done = answers(client, batch.output_file_id) if batch.output_file_id else []
    left = answers(client, batch.error_file_id)
    assert (
        batch.status,
        batch.cancelling_at is not None,
        batch.cancelled_at is not None,
        sorted([line["custom_id"] for line in done + left]),
        {line["error"]["code"] for line in left},
    ) == ("cancelled", True, True, sorted(f"line-{n}" for n in range(3000)), {"batch_cancelled"})


@pytest.mark.parametrize("paused", [False, True])
def test_an_expired_batch_accounts_for_every_line_also_where_its_job_was_paused(tmp_path, paused):
    with town(tmp_path, engine_args={"rows_per_s": 50}) as slow:
        client, store = slow.openai(slow.key()), slow.home.store
        batch = created(client, some_lines(400))
        until(lambda: client.batches.retrieve(batch.id).request_counts.completed, "the first answers")
        job = store.batch(batch.id, "acme").job
        if paused:
            slow.http(client.api_key).post(f"/v1/jobs/{job}/pause")
        past = sa.text("UPDATE jobs SET deadline_at = 1 WHERE id = :id")
        store._db.write(lambda connection: connection.execute(past, {"id": job}))
        batch = ended(client, batch)
        done, left = answers(client, batch.output_file_id), answers(client, batch.error_file_id)
        assert (
            batch.status,
            batch.expired_at is not None,
            sorted(line["custom_id"] for line in done + left),
            {line["error"]["code"] for line in left},
            batch.request_counts.total - batch.request_counts.completed - batch.request_counts.failed,
        ) == ("expired", True, sorted(f"line-{n}" for n in range(400)), {"batch_expired"}, 0)


def test_results_keep_the_order_of_the_input_where_that_is_asked_for(api):
    client = api.openai()
    batch = ended(client, created(client, some_lines(300), extra_headers={"x-nightmill-order": "input"}))
    found = [line["custom_id"] for line in answers(client, batch.output_file_id)]
    assert found == [f"line-{n}" for n in range(300)]


def test_faults_are_the_clients_own_classes(api):
    client = api.openai()
    file = uploaded(client, some_lines(1))

    def raised(call):
        with pytest.raises(openai.APIStatusError) as caught:
            call()
        return type(caught.value).__name__, caught.value.code, caught.value.param

    def create(**changes):
        given = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return lambda: client.batches.create(**{**given, **changes})

    assert [
        raised(api.openai("nm_nobody").files.list),
        raised(api.openai(api.key(scopes=frozenset())).files.list),
        raised(lambda: client.batches.retrieve("batch_nothing")),
        raised(lambda: client.files.content("file-nothing")),
        raised(create(input_file_id="file-nothing")),
        raised(create(completion_window="soon")),
        raised(create(endpoint="/v1/images")),
        raised(create(metadata={str(n): "x" for n in range(17)})),
        raised(create(metadata={"key": "x" * 513})),
        raised(create(extra_body={"priority": "high"})),
        raised(lambda: uploaded(client, b"")),
        raised(lambda: client.files.create(file=("a", b"x"), purpose="fine-tune")),
    ] == [
        ("AuthenticationError", "invalid_api_key", None),
        ("PermissionDeniedError", "not_allowed", None),
        ("NotFoundError", "not_found", None),
        ("NotFoundError", "not_found", None),
        ("NotFoundError", "not_found", "input_file_id"),
        ("BadRequestError", "bad_input", "completion_window"),
        ("BadRequestError", "bad_input", "endpoint"),
        ("BadRequestError", "bad_input", "metadata"),
        ("BadRequestError", "bad_input", "metadata.key"),
        ("BadRequestError", "bad_input", "priority"),
        ("BadRequestError", "bad_input", "file"),
        ("BadRequestError", "bad_input", "purpose"),
    ]


def test_a_file_is_read_whole_or_by_range_and_is_gone_when_it_is_deleted(api):
    client = api.openai()
    content = some_lines(4)
    file = uploaded(client, content, extra_body={"expires_after": {"anchor": "created_at", "seconds": 3600}})
    tail = client.files.with_raw_response.content(file.id, extra_headers={"Range": "bytes=100-"})
    outside = api.http(client.api_key).get(f"/v1/files/{file.id}/content", headers={"Range": f"bytes={len(content)}-"})
    deleted = client.files.delete(file.id)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)
    assert (
        file.bytes,
        file.expires_at - file.created_at,
        tail.status_code,
        tail.content,
        tail.headers["content-range"],
        outside.status_code,
        deleted.deleted,
    ) == (len(content), 3600, 206, content[100:], f"bytes 100-{len(content) - 1}/{len(content)}", 416, True)


def test_a_tenant_has_so_many_tokens_enqueued_and_no_more(api):
    client = api.openai(api.key("poor"))
    api.home.store.put_tenant(Tenant(name="poor", enqueued_tokens_limit=100), "test")
    with pytest.raises(openai.RateLimitError) as caught:
        created(client, some_lines(100))
    ended(client, created(client, some_lines(1)))
    assert (caught.value.code, api.home.store.enqueued_tokens("poor")) == ("token_limit_exceeded", 0)


def test_completions_and_responses_are_batches_too_and_a_model_of_another_kind_is_a_failed_one(api):
    client = api.openai()

    def lines(url, **body):
        return lines_of({"custom_id": "one", "method": "POST", "url": url, "body": {"model": "fake", **body}})

    asked = {
        "/v1/completions": lines("/v1/completions", prompt="Once upon", max_tokens=4),
        "/v1/responses": lines("/v1/responses", input="Once upon", max_output_tokens=64),
        "/v1/embeddings": lines("/v1/embeddings", input="Once upon"),
        "/v1/chat/completions": lines("/v1/completions", prompt="Once upon"),
    }
    found = {url: ended(client, created(client, content, endpoint=url)) for url, content in asked.items()}
    kinds = {
        url: answers(client, batch.output_file_id)[0]["response"]["body"]["object"]
        for url, batch in found.items()
        if batch.output_file_id
    }
    assert ({url: batch.status for url, batch in found.items()}, kinds) == (
        {
            "/v1/completions": "completed",
            "/v1/responses": "completed",
            "/v1/embeddings": "failed",
            "/v1/chat/completions": "failed",
        },
        {"/v1/completions": "text_completion", "/v1/responses": "response"},
    )
