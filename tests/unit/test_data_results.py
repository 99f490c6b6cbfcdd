"""Reading results: while a job runs and after, as OpenAI's lines, with its retries as one."""

from __future__ import annotations

import orjson
import pyarrow.parquet as pq
import pytest

from jobs.errors import NotFound
from jobs.model import Outcome
from jobs.ports.engine import EngineResult
from tests.support.data import Kit, text

pytestmark = pytest.mark.unit


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    yield made
    made.close()


def cars(kit, count=20, **options):
    path = kit.parquet("in.parquet", {"id": [f"c{n}" for n in range(count)]})
    return kit.submit(path, id_column="id", rows_per_task=8, **options)


def moody(n, prompt):
    number = int(prompt[-1][1].split("c")[-1])
    if number % 5 == 0:
        return EngineResult(n, "error", "", None, 0, 0, 0, "engine_error", "boom")
    return text(n, prompt) if number % 5 != 1 else EngineResult(n, "length", "cut", None, 40, 32, 16)


def test_the_first_rows_are_there_while_the_job_runs(kit):
    job = cars(kit)
    kit.run(job)
    rows = list(kit.results().rows(job, limit=3))
    assert [(row["row"], row["custom_id"], row["output"]) for row in rows] == [
        (0, "c0", "echo Say c0"),
        (1, "c1", "echo Say c1"),
        (2, "c2", "echo Say c2"),
    ]
    kit.parts[job.id] = kit.parts[job.id][1:]
    assert next(kit.results().rows(job))["row"] == 8


def test_the_same_rows_are_there_after_the_end(kit):
    job = cars(kit)
    settled = kit.run(job)
    before = list(kit.results().rows(job))
    kit.publish(job, settled)
    assert list(kit.results().rows(job)) == before
    assert len(before) == 20


def test_parts_that_are_published_while_they_are_read_are_found(kit):
    job = cars(kit)
    settled = kit.run(job)
    rows = kit.results().rows(job)
    seen = [next(rows)["row"]]
    kit.publish(job, settled)
    assert seen + [row["row"] for row in rows] == list(range(20))


def test_a_part_that_vanished_is_an_error(kit):
    job = cars(kit)
    settled = kit.run(job)
    kit.objects.delete(settled[1].part.uri)
    with pytest.raises(NotFound):
        list(kit.results().rows(job))


def test_rows_are_chosen_by_outcome(kit):
    job = cars(kit)
    kit.run(job, moody)
    found = list(kit.results().rows(job, outcomes={"error", "truncated"}))
    assert [row["row"] for row in found] == [0, 1, 5, 6, 10, 11, 15, 16]


# ---- OpenAI's lines -----------------------------------------------------------------------------


def lines(kit, job, **options):
    return [orjson.loads(line) for line in kit.results().jsonl(job, **options)]


def test_lines_have_openais_shape(kit):
    job = cars(kit, count=2).evolve(finished_at=1700000000.5)
    kit.run(job, moody)
    error, answer = lines(kit, job)
    assert error == {
        "id": "batch_req_job1_0",
        "custom_id": "c0",
        "response": None,
        "error": {"code": "engine_error", "message": "boom"},
    }
    assert answer == {
        "id": "batch_req_job1_1",
        "custom_id": "c1",
        "response": {
            "status_code": 200,
            "request_id": "req_job1_1",
            "body": {
                "id": "chatcmpl-job1-1",
                "object": "chat.completion",
                "created": 1700000000,
                "model": "fake",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "cut", "refusal": None},
                        "logprobs": None,
                        "finish_reason": "length",
                    }
                ],
                "usage": {
                    "prompt_tokens": 40,
                    "completion_tokens": 16,
                    "total_tokens": 56,
                    "prompt_tokens_details": {"cached_tokens": 32},
                },
            },
        },
        "error": None,
    }


def test_lines_are_split_into_output_and_error(kit):
    job = cars(kit)
    kit.run(job, moody)
    output, error = (lines(kit, job, which=which) for which in ("output", "error"))
    assert (len(output), len(error)) == (16, 4)
    assert all(line["error"] is None for line in output)
    assert all(line["response"] is None for line in error)


@pytest.mark.parametrize(("outcome", "code"), [("cancelled", "batch_cancelled"), ("expired", "batch_expired")])
def test_rows_that_never_ran_have_openais_codes(kit, outcome, code):
    job = cars(kit, count=1)
    side = kit.side()
    (task,) = kit.plan(job, side=side)
    kit.parts[job.id] = [side.sink.write_void(job, task, Outcome(outcome), None, None).part]
    assert [line["error"]["code"] for line in lines(kit, job)] == [code]


def test_an_output_against_its_schema_is_shown_with_its_error(kit):
    job = cars(kit, count=1, schema='{"type":"object"}')
    kit.run(job, lambda n, _: EngineResult(n, "stop", "no json"))
    (line,) = lines(kit, job)
    assert line["error"]["code"] == "schema_mismatch"
    assert line["response"]["body"]["choices"][0]["message"]["content"] == "no json"


def test_embeddings_and_completions_have_bodies_of_their_own(kit):
    path = kit.parquet("in.parquet", {"t": ["a"]})
    job = kit.submit(path, "e", model_kind="embedding", text="{{ t }}", sampling="{}", embedding_size=2)
    kit.run(job, lambda n, _: EngineResult(n, "stop", "", [1.0, 2.0], 3))
    assert lines(kit, job)[0]["response"]["body"] == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [1.0, 2.0]}],
        "model": "fake",
        "usage": {"prompt_tokens": 3, "total_tokens": 3},
    }
    job = kit.submit(path, "c", model_kind="completion", text="{{ t }}")
    kit.run(job)
    body = lines(kit, job)[0]["response"]["body"]
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", "echo a")


# ---- retries ------------------------------------------------------------------------------------


def retry(kit, parent, outcomes, child_id):
    uri, count = kit.results().select_rows(parent, outcomes, child_id)
    kit.files[child_id] = kit.files[parent.id]
    return parent.evolve(id=child_id, spec=parent.spec.evolve(select=uri), parent=parent.id, total_rows=count)


def test_a_retry_is_exactly_the_failed_rows(kit):
    job = cars(kit)
    kit.publish(job, kit.run(job, moody))
    child = retry(kit, job, {"error", "truncated"}, "child")
    assert child.total_rows == 8
    assert kit.finish(child)["row"].to_pylist() == [0, 1, 5, 6, 10, 11, 15, 16]


def test_parent_and_retries_are_read_as_one(kit):
    job = cars(kit)
    kit.publish(job, kit.run(job, moody))
    first = retry(kit, job, {"error", "truncated"}, "first")
    kit.publish(first, kit.run(first, lambda n, p: EngineResult(n, "stop", "first") if n % 2 else moody(n, p)))
    second = retry(kit, first, {"error"}, "second")
    kit.run(second, lambda n, _: EngineResult(n, "stop", "second"))
    rows = list(kit.results().rows(job, family=[first, second]))
    assert sorted(row["row"] for row in rows) == list(range(20))
    outputs = {row["row"]: row["output"] for row in rows}
    assert {row: outputs[row] for row in (0, 1, 2, 5, 6, 10)} == {
        0: "second", 1: "first", 2: "echo Say c2", 5: "second", 6: "first", 10: "second",
    }  # fmt: skip
    assert list(kit.results().rows(job, family=[first, second], outcomes={"error"})) == []
    assert len(list(kit.results().jsonl(job, family=[first, second]))) == 20


def test_a_retry_of_nothing_selects_nothing(kit):
    job = cars(kit)
    kit.publish(job, kit.run(job))
    uri, count = kit.results().select_rows(job, {"refused"}, "child")
    assert count == 0
    assert pq.read_table(uri).num_rows == 0
