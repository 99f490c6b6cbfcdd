"""Opening tasks and writing parts: prompts, profiles, outcomes, columns, usage, and what is left."""

from __future__ import annotations

import errno
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data.frozen import JobFolder, salt
from infra.data.parquet import disk_errors
from jobs.errors import InputChanged, StorageFull, Unavailable
from jobs.model import Outcome, Usage
from jobs.ports.engine import EngineResult
from jobs.ports.rows import Results
from jobs.pricing import amount
from jobs.ranges import Range
from tests.support.data import PRICE, Kit, text

pytestmark = pytest.mark.unit


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    yield made
    made.close()


@pytest.fixture
def cars(kit):
    return kit.parquet("in.parquet", {"id": [f"c{n}" for n in range(10)], "Name": [f"car {n}" for n in range(10)]})


ASK = (("system", "Be short."), ("user", "Describe {{ Name }}."))


def submit(kit, cars, **options):
    return kit.submit(cars, **{"messages": ASK, "id_column": "id", **options})


def table(settled):
    return pq.read_table(settled.part.uri)


def invalid(*values):
    return pa.array([v if isinstance(v, bytes) else v.encode() for v in values], pa.binary()).view(pa.string())


def test_a_part_holds_every_column_of_the_frozen_schema(kit, cars):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    settled = kit.do(job, task)
    found = table(settled)
    assert found.schema.equals(kit.results().schema(job))
    assert found.slice(3, 1).drop_columns(["request_hash"]).to_pylist() == [
        {
            "row": 3,
            "input_row": 3,
            "custom_id": "c3",
            "id": "c3",
            "Name": "car 3",
            "output": "echo Describe car 3.",
            "outcome": "ok",
            "error_code": None,
            "error_message": None,
            "finish_reason": "stop",
            "input_tokens": 40,
            "cached_tokens": 32,
            "output_tokens": 7,
            "amount_pico": amount(PRICE, input_tokens=8, cached_tokens=32, output_tokens=7),
        }
    ]
    data = (kit.root / "out/job1/_parts/job1.s00000.00000-tok.parquet").read_bytes()
    part = settled.part
    assert (part.size, part.checksum) == (len(data), hashlib.sha256(data).hexdigest())
    assert (part.rows, part.first_row, part.last_row, part.ascending) == (10, 0, 9, True)
    assert settled.usage == Usage(rows=10, input_tokens=80, cached_tokens=320, output_tokens=70, outcomes={"ok": 10})
    assert settled.left == ()


def test_parts_that_are_written_together_are_those_of_each_and_only_in_the_database(kit, cars):
    job = submit(kit, cars, rows_per_task=5)
    tasks, side = kit.plan(job), kit.side()
    alone = [kit.do(job, task, side=side) for task in tasks]
    found = [side.source.open(job, task) for task in tasks]
    results = [[text(n, p) for n, p in enumerate(rows.prompts)] for rows in found]
    works = [Results(job, task.evolve(token="tok"), *one) for task, *one in zip(tasks, found, results, strict=True)]
    assert (side.sink.write_all(works), len(alone)) == (alone, 2)
    small = job.evolve(spec=job.spec.evolve(output="db:///out"))
    assert (side.sink.shares(job), side.sink.shares(small)) == (False, True)


def test_amounts_of_rows_add_up_to_the_amount_of_the_task(kit, cars):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    settled = kit.do(job, task, lambda n, p: EngineResult(n, "stop", "x", None, 40 + n, 32, n))
    usage = settled.usage
    total = amount(
        PRICE,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )
    assert sum(table(settled)["amount_pico"].to_pylist()) == total


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (EngineResult(0, "stop", "x"), ("ok", None, None, "stop", "x")),
        (EngineResult(0, "stop", ""), ("ok", None, None, "stop", "")),
        (EngineResult(0, "length", "x"), ("truncated", None, None, "length", "x")),
        (
            EngineResult(0, "error", error_code="context_length_exceeded", error_message="too long"),
            ("error", "context_length_exceeded", "too long", "error", None),
        ),
        (EngineResult(0, "error"), ("error", "engine_error", None, "error", None)),
    ],
)
def test_results_become_outcomes(kit, cars, result, expected):
    job = submit(kit, cars, limit=1)
    (task,) = kit.plan(job)
    row = table(kit.do(job, task, lambda *_: result)).to_pylist()[0]
    assert tuple(row[n] for n in ("outcome", "error_code", "error_message", "finish_reason", "output")) == expected


def test_rows_without_a_result_are_left_for_a_child(kit, cars):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    settled = kit.do(job, task, lambda n, p: text(n, p) if n not in {2, 3, 9} else None)
    assert settled.left == (Range(2, 4), Range(9, 10))
    assert table(settled)["row"].to_pylist() == [0, 1, 4, 5, 6, 7, 8]
    child = task.evolve(id="job1.s00000.00000.0", ranges=settled.left, rows=3)
    assert table(kit.do(job, child))["custom_id"].to_pylist() == ["c2", "c3", "c9"]


def test_left_rows_of_a_staged_task_are_ranges_of_its_row_group(kit):
    path = kit.parquet("in.parquet", {"doc": ["b" * 900, "a" * 900] * 20})
    job = kit.submit(path)
    task = kit.plan(job)[-1]
    assert task.source.staged
    settled = kit.do(job, task, lambda n, p: text(n, p) if n % 2 else None)
    child = task.evolve(id=f"{task.id}.0", ranges=settled.left, rows=len(settled.left))
    rest = kit.do(job, child)
    both = sorted(table(settled)["row"].to_pylist() + table(rest)["row"].to_pylist())
    assert both == sorted(kit.open(job, task).table.rows.to_pylist())


def test_no_finished_row_is_no_part(kit, cars):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    settled = kit.do(job, task, lambda *_: None)
    assert (settled.part, settled.usage, settled.left) == (None, Usage(), task.ranges)


def test_an_aborted_row_of_a_drain_is_left(kit, cars):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    settled = kit.do(job, task, lambda n, p: EngineResult(n, "abort") if n == 4 else text(n, p))
    assert settled.left == (Range(4, 5),)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.EXPIRED])
def test_unfinished_rows_of_an_ending_job_have_its_outcome(kit, cars, outcome):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    answers = {0: None, 1: EngineResult(1, "abort", "half", None, 40, 0, 2)}
    settled = kit.do(job, task, lambda n, p: answers.get(n, text(n, p)), unfinished=outcome)
    assert settled.left == ()
    assert table(settled)["outcome"].to_pylist() == [outcome, outcome, *["ok"] * 8]
    assert settled.usage.outcomes == {str(outcome): 2, "ok": 8}


def test_faults_are_error_rows_and_cost_nothing(kit):
    path = kit.parquet("in.parquet", {"n": [1, 0, 2], "t": ["a", "b", ""]})
    job = kit.submit(path, messages=(("user", "{% if t %}{{ 4 // n }}{% endif %}"),))
    (task,) = kit.plan(job)
    settled = kit.do(job, task)
    rows = table(settled).to_pylist()
    assert [(r["outcome"], r["error_code"], r["output"]) for r in rows] == [
        ("ok", None, "echo 4"),
        ("error", "template_error", None),
        ("error", "empty_prompt", None),
    ]
    assert "ZeroDivisionError" in rows[1]["error_message"]
    assert [r["amount_pico"] > 0 for r in rows] == [True, False, False]
    assert [r["t"] for r in rows] == ["a", "b", ""]


def test_invalid_utf8_costs_its_row_and_is_null_in_the_result(kit):
    names = invalid("fine", b"\xff\xfe", "ok")
    tags = pa.array([["a"], ["b"], ["c"]])
    path = kit.parquet("in.parquet", {"Name": names, "tags": tags, "other": invalid("x", "y", b"z\x80")})
    job = kit.submit(path, messages=(("user", "{{ Name }}"),))
    (task,) = kit.plan(job)
    rows = table(kit.do(job, task)).to_pylist()
    assert [(r["Name"], r["other"], r["error_code"]) for r in rows] == [
        ("fine", "x", None),
        (None, "y", "invalid_utf8"),
        ("ok", None, "invalid_utf8"),
    ]
    assert "column other" in rows[2]["error_message"]


def test_invalid_utf8_inside_a_list_is_found(kit):
    inner = pa.ListArray.from_arrays(pa.array([0, 1, 2]), invalid("a", b"\xff"))
    job = kit.submit(kit.parquet("in.parquet", {"x": ["p", "q"], "l": inner}))
    (task,) = kit.plan(job)
    rows = table(kit.do(job, task)).to_pylist()
    assert [(r["l"], r["error_code"]) for r in rows] == [(["a"], None), (None, "invalid_utf8")]


# ---- ids, copies --------------------------------------------------------------------------------


def test_ids_are_the_row_number_unless_there_is_a_column(kit, cars):
    job = submit(kit, cars, id_column=None)
    assert kit.open(job, kit.plan(job)[0]).table.custom_ids.to_pylist() == [str(n) for n in range(10)]


def test_copies_have_ids_of_their_own(kit):
    path = kit.parquet("in.parquet", {"id": [7, 8]})
    job = kit.submit(path, id_column="id", vary={"lang": ("de", "fr")}, messages=(("user", "{{ id }} {{ lang }}"),))
    (task,) = kit.plan(job)
    rows = table(kit.do(job, task)).to_pylist()
    assert [(r["row"], r["input_row"], r["custom_id"], r["lang"], r["output"]) for r in rows] == [
        (0, 0, "7:de", "de", "echo 7 de"),
        (1, 0, "7:fr", "fr", "echo 7 fr"),
        (2, 1, "8:de", "de", "echo 8 de"),
        (3, 1, "8:fr", "fr", "echo 8 fr"),
    ]


def test_several_varied_values_multiply_the_last_fastest(kit):
    job = kit.submit(
        kit.parquet("in.parquet", {"x": ["a"]}),
        vary={"p": ("1", "2"), "q": ("u", "v", "w")},
        messages=(("user", "{{ x }}{{ p }}{{ q }}"),),
    )
    prompts = [prompt[0][1] for prompt in kit.open(job, kit.plan(job)[0]).prompts]
    assert prompts == ["a1u", "a1v", "a1w", "a2u", "a2v", "a2w"]


# ---- structured output --------------------------------------------------------------------------

SCHEMA = (
    '{"type":"object","required":["score"],"properties":{"score":{"type":"integer","maximum":10},'
    '"tags":{"type":"array","items":{"type":"string"}},"output":{"type":"string"}}}'
)


def test_typed_columns_stand_beside_the_raw_output(kit, cars):
    job = submit(kit, cars, schema=SCHEMA, limit=5)
    (task,) = kit.plan(job)
    outputs = ['{"score":7,"tags":["a"],"output":"o"}', '{"score":70}', "no json", '{"score":3', '{"score":4.0}']
    reasons = ["stop", "stop", "stop", "length", "stop"]
    settled = kit.do(job, task, lambda n, _: EngineResult(n, reasons[n], outputs[n]))
    rows = table(settled).to_pylist()
    assert [(r["outcome"], r["error_code"], r["score"], r["tags"], r["output_output"]) for r in rows] == [
        ("ok", None, 7, ["a"], "o"),
        ("error", "schema_mismatch", 70, None, None),
        ("error", "schema_mismatch", None, None, None),
        ("truncated", None, None, None, None),
        ("ok", None, 4, None, None),
    ]
    assert [r["output"] for r in rows] == outputs


def test_embeddings_are_one_fixed_size_list_column(kit):
    path = kit.parquet("in.parquet", {"t": ["a", "b", "", "d"]})
    job = kit.submit(path, model_kind="embedding", text="{{ t }}", sampling="{}", embedding_size=3)
    (task,) = kit.plan(job)
    answers = {0: [1.0, 2.0, 3.0], 1: [0.5], 3: [0.25] * 3}
    settled = kit.do(job, task, lambda n, _: EngineResult(n, "stop", "", answers[n], 4))
    found = table(settled)
    assert found.schema.field("output").type == pa.list_(pa.field("element", pa.float32()), 3)
    assert found["output"].to_pylist() == [[1.0, 2.0, 3.0], None, None, [0.25] * 3]
    assert found["error_code"].to_pylist() == [None, "engine_error", "empty_prompt", None]


# ---- profiles and hashes ------------------------------------------------------------------------


def test_one_profile_serves_a_templates_rows(kit, cars):
    job = submit(kit, cars, sampling='{"max_tokens":16,"temperature":0.5}', schema='{"type":"object"}')
    (profile,) = kit.open(job, kit.plan(job)[0]).profiles
    assert (profile.kind, profile.sampling, profile.schema) == (
        "chat",
        '{"max_tokens":16,"temperature":0.5}',
        '{"type":"object"}',
    )
    assert (profile.cache_salt, profile.priority) == (salt("t", b"s" * 32), 2)


def test_salts_keep_tenants_and_homes_apart():
    assert len({salt("a", b"1" * 32), salt("b", b"1" * 32), salt("a", b"2" * 32)}) == 3
    assert salt("a", b"1" * 32) == salt("a", b"1" * 32)


def test_lines_with_their_own_sampling_have_their_own_profiles(kit):
    ask = {"messages": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hi"}]}
    bodies = [
        ask,
        {**ask, "temperature": 0},
        {**ask, "max_completion_tokens": 5},
        {**ask, "temperature": 0, "response_format": {"type": "json_object"}},
        ask,
    ]
    job = kit.submit(kit.jsonl("in.jsonl", bodies), sampling='{"max_tokens":16,"top_p":0.5}')
    opened = kit.open(job, kit.plan(job)[0])
    assert [opened.profile(n).sampling for n in range(5)] == [
        '{"max_tokens":16,"top_p":0.5}',
        '{"max_tokens":16,"temperature":0,"top_p":0.5}',
        '{"max_tokens":5,"top_p":0.5}',
        '{"max_tokens":16,"temperature":0,"top_p":0.5}',
        '{"max_tokens":16,"top_p":0.5}',
    ]
    assert opened.profile(3).schema == '{"type":"object"}'
    assert len({profile.key for profile in opened.profiles}) == len(opened.profiles) == 4
    assert opened.prompts[0] == (("system", "Be kind."), ("user", "hi"))


def test_each_line_is_held_against_its_own_schema(kit):
    def schema(kind):
        return {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": kind}}}

    bodies = [{"response_format": schema("object")}, {"response_format": schema("array")}, {}]
    job = kit.submit(kit.jsonl("in.jsonl", bodies))
    settled = kit.do(job, kit.plan(job)[0], lambda n, _: EngineResult(n, "stop", "{}"))
    assert table(settled)["error_code"].to_pylist() == [None, "schema_mismatch", None]


def test_a_line_without_user_text_is_an_empty_prompt(kit):
    bodies = [{"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": " "}]}, {}]
    job = kit.submit(kit.jsonl("in.jsonl", bodies))
    (task,) = kit.plan(job)
    assert table(kit.do(job, task))["error_code"].to_pylist() == ["empty_prompt", None]


def test_hashes_say_what_a_request_was_made_of(kit, cars):
    def hashes(job_id, **options):
        job = submit(kit, cars, job_id=job_id, **options)
        return table(kit.do(job, kit.plan(job)[0]))["request_hash"].to_pylist()

    first = hashes("a")
    assert len(set(first)) == 10
    assert all(len(value) == 32 for value in first)
    assert hashes("b") == first
    assert hashes("c", rows_per_task=3)[:3] == first[:3]
    assert set(hashes("d", sampling='{"max_tokens":17}')).isdisjoint(first)
    assert set(hashes("e", schema='{"type":"object"}')).isdisjoint(first)


def test_a_tenants_name_leads_nowhere_else():
    folders = {
        JobFolder(home="h", tenant=name, job="j").uri for name in ("a", "../a", "a/b", "", "..", "x-a", "A" * 99)
    }
    assert len(folders) == 7
    assert all(uri.startswith("h/tenants/") and ".." not in uri and uri.count("/") == 4 for uri in folders)


def test_a_full_disk_is_said_so():
    with pytest.raises(StorageFull, match="the staged file"), disk_errors("the staged file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(Unavailable, match="the staged file"), disk_errors("the staged file"):
        raise OSError(errno.EIO, "Input/output error")


# ---- tasks that were given up -------------------------------------------------------------------


def void(kit, job, task, **options):
    how = {"outcome": Outcome.CANCELLED, "code": None, "message": None, **options}
    return kit.side().sink.write_void(job, task, **how)


def test_a_void_part_has_all_rows_with_what_stood_in_them(kit, cars):
    job = submit(kit, cars, schema=SCHEMA)
    (task,) = kit.plan(job)
    settled = void(kit, job, task)
    rows = table(settled).to_pylist()
    assert settled.part.uri.endswith("/_parts/job1.s00000.00000-void.parquet")
    assert [r["Name"] for r in rows] == [f"car {n}" for n in range(10)]
    assert {(r["outcome"], r["output"], r["amount_pico"], r["score"]) for r in rows} == {("cancelled", None, 0, None)}
    assert settled.usage == Usage(rows=10, outcomes={"cancelled": 10})
    assert void(kit, job, task) == settled


def test_a_row_that_killed_its_engine_says_so(kit, cars):
    job = submit(kit, cars, limit=1)
    settled = void(kit, job, kit.plan(job)[0], outcome=Outcome.ERROR, code="engine_died", message="it died")
    row = table(settled).to_pylist()[0]
    assert (row["outcome"], row["error_code"], row["error_message"]) == ("error", "engine_died", "it died")


def test_rows_are_accounted_for_even_when_the_input_is_gone(kit, cars):
    job = submit(kit, cars)
    (task,) = kit.plan(job)
    (kit.root / "in.parquet").unlink()
    with pytest.raises(InputChanged):
        kit.do(job, task)
    settled = void(kit, job, task)
    assert table(settled)["row"].to_pylist() == list(range(10))
    assert table(settled)["Name"].null_count == 10
