"""One job on the fake engine, with its error and its truncated rows, looked at in every way there is."""

import json
from collections import Counter
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import Done
from tests.acceptance.goods import CUT, FAULTY, ROWS, catalog

pytestmark = pytest.mark.acceptance

OUTCOMES = ["truncated" if n in CUT else "error" if n in FAULTY else "ok" for n in range(ROWS)]
COUNTS = dict(Counter(OUTCOMES))


@pytest.fixture(scope="module")
def ran(shared, inputs):
    return shared.run(
        inputs / "goods.parquet",
        *("--id", "sku", "--output", "out", "--rows-per-task", 16),
        *("--system", "You sell lamps to people who have none. " * 4, "--prompt", "Sell {{ name }} for {{ price }}."),
        *("--tenant", "acme", "--project", "spring", "--tag", "team=web", "--tag", "run=1"),
        *("--engine-arg", "length_on=LONG", "--engine-arg", "error_on=FAULTY"),
        code=Exit.SOME_ERRORS,
    )


@pytest.fixture(scope="module")
def job(ran):
    return ran.job


@pytest.fixture(scope="module")
def folder(shared, job):
    return shared.folder / "out" / job


@pytest.fixture(scope="module")
def table(folder):
    return pq.read_table(folder).sort_by("row")


# ---- what it writes -----------------------------------------------------------------------------


def test_a_run_says_what_it_did_on_stderr_and_its_job_on_stdout(ran, job, folder):
    assert ran.out == f"{job}\n"
    said = ran.err.splitlines()
    assert said[0].startswith(f"Job {job}: 60 rows of ")
    assert said[1].startswith("FAKE ENGINE: ")
    names = ["job", "rows", "tokens", "prefix cache", "speed", "cost", "results"]
    end = {line[:13].strip(): line[14:].strip() for line in said[-len(names) :]}
    assert list(end) == names
    assert (end["job"], end["rows"], end["results"]) == (
        f"{job}  (completed)",
        "60 of 60: 55 ok, 3 truncated, 2 error",
        str(folder),
    )
    assert end["cost"].endswith(" USD  (example price)")


def test_the_folder_has_parts_a_manifest_and_the_mark_of_success_and_nothing_unfinished(folder):
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    parts = len(files) - 2
    assert files == ["_SUCCESS", "_manifest.json", *(f"part-{n:05d}.parquet" for n in range(parts))]
    assert parts > 1


def test_the_schema_is_place_kept_columns_output_and_what_became_of_the_row(table):
    text, number = pa.string(), pa.int64()
    kept = catalog().schema
    assert table.schema.remove_metadata() == pa.schema(
        [
            ("row", number),
            ("input_row", number),
            ("custom_id", text),
            ("sku", text),
            ("name", text),
            ("price", kept.field("price").type),
            ("tags", kept.field("tags").type),
            ("made", kept.field("made").type),
            ("input_output", text),
            ("input_Row_", pa.int32()),
            ("output", text),
            ("outcome", text),
            ("error_code", text),
            ("error_message", text),
            ("finish_reason", text),
            ("input_tokens", number),
            ("cached_tokens", number),
            ("output_tokens", number),
            ("amount_pico", number),
            ("request_hash", text),
        ]
    )


def test_every_row_is_there_once_with_its_place_and_its_id(table):
    assert table.select(["row", "input_row", "custom_id"]).to_pydict() == {
        "row": list(range(ROWS)),
        "input_row": list(range(ROWS)),
        "custom_id": [f"sku-{n:04d}" for n in range(ROWS)],
    }


def test_the_input_is_kept_unchanged_and_a_column_with_a_reserved_name_is_renamed_not_lost(table):
    kept = table.select(["sku", "name", "price", "tags", "made", "input_output", "input_Row_"])
    assert kept.rename_columns(catalog().column_names).to_pylist() == catalog().to_pylist()


def test_each_row_says_what_became_of_it(table):
    found = table.select(["outcome", "error_code", "error_message", "finish_reason"]).to_pylist()
    message = "the prompt holds 'FAULTY' (error_on)"
    ends = {
        "ok": {"error_code": None, "error_message": None, "finish_reason": "stop"},
        "truncated": {"error_code": None, "error_message": None, "finish_reason": "length"},
        "error": {"error_code": "engine_error", "error_message": message, "finish_reason": "error"},
    }
    assert found == [{"outcome": outcome, **ends[outcome]} for outcome in OUTCOMES]
    assert [text is None for text in table["output"].to_pylist()] == [o == "error" for o in OUTCOMES]
    assert all(table["request_hash"].to_pylist())
    assert len(set(table["request_hash"].to_pylist())) == ROWS


def test_each_row_is_priced_by_its_tokens(table):
    rows = table.select(["input_tokens", "cached_tokens", "output_tokens", "amount_pico"]).to_pylist()
    assert [row["amount_pico"] for row in rows] == [
        100_000 * (row["input_tokens"] - row["cached_tokens"])
        + 50_000 * row["cached_tokens"]
        + 400_000 * row["output_tokens"]
        for row in rows
    ]
    assert all(row["cached_tokens"] > 0 for row, outcome in zip(rows, OUTCOMES, strict=True) if outcome != "error")


def test_the_tools_of_the_readme_read_the_folder_as_one_table(folder, table):
    expected = table.select(["row", "custom_id", "outcome"]).to_pylist()
    columns = "row, custom_id, outcome"
    by_duckdb = duckdb.sql(f"select {columns} from '{folder}/*.parquet' order by row").fetchall()
    read = {
        "pyarrow": ds.dataset(folder).to_table().sort_by("row").select(["row", "custom_id", "outcome"]).to_pylist(),
        "duckdb": [dict(zip(["row", "custom_id", "outcome"], row, strict=True)) for row in by_duckdb],
        "pandas": pd.read_parquet(folder).sort_values("row")[["row", "custom_id", "outcome"]].to_dict("records"),
        "polars": pl.read_parquet(folder / "*.parquet").sort("row").select(["row", "custom_id", "outcome"]).to_dicts(),
    }
    assert read == dict.fromkeys(read, expected)


def test_the_manifest_adds_up_to_the_rows(folder, table, job):
    manifest = json.loads((folder / "_manifest.json").read_text())
    parts = manifest.pop("parts")
    assert {name: manifest[name] for name in ("job", "state", "rows", "outcomes", "part_count")} == {
        "job": job,
        "state": "completed",
        "rows": ROWS,
        "outcomes": dict(sorted(COUNTS.items())),
        "part_count": len(parts),
    }
    sums = ["input_tokens", "cached_tokens", "output_tokens", "amount_pico"]
    assert {name: manifest[name] for name in sums} == {name: sum(table[name].to_pylist()) for name in sums}
    assert sum(part["rows"] for part in parts) == ROWS


# ---- looking at it ------------------------------------------------------------------------------


def test_status_jobs_and_wait_tell_the_same_of_it(shared, job, folder, table):
    sums = {name: sum(table[name].to_pylist()) for name in ("input_tokens", "cached_tokens", "output_tokens")}
    expected = {
        "job": job,
        "state": "completed",
        "reason": "",
        "model": "fake",
        "tenant": "acme",
        "project": "spring",
        "tags": {"team": "web", "run": "1"},
        "parent": None,
        "total_rows": ROWS,
        "rows": ROWS,
        "outcomes": COUNTS,
        **sums,
        "amount_pico": sum(table["amount_pico"].to_pylist()),
        "currency": "USD",
        "output": str(folder),
    }
    times = {"created_at", "finished_at"}
    status = shared.status(job)
    assert {k: v for k, v in status.items() if k in expected} == expected
    assert (status["process"], {k for k, n in status["tasks"].items() if n}) == (None, {"done"})
    listed = shared("jobs", "--tenant", "acme", "--json").json
    assert [{k: v for k, v in one.items() if k not in times} for one in listed] == [expected]
    waited = shared("wait", job, "--json", code=Exit.SOME_ERRORS).json
    assert {k: v for k, v in waited.items() if k not in times} == expected


def test_a_job_is_found_by_the_beginning_or_the_end_of_its_id(shared, job):
    assert [shared.status(text)["job"] for text in (job, job[:12], job[-8:], "last")] == [job] * 4


def test_an_unknown_job_is_told_where_to_find_the_known(shared):
    assert shared("status", "job-0000", code=Exit.REFUSED).err == (
        "Error: There is no job named job-0000. List the jobs there are: nightmill jobs\n"
    )


def test_results_shows_the_first_rows_and_where_the_files_lie(shared, job, folder):
    shown = shared("results", job, "--outcome", "error").out.splitlines()
    assert shown[0].split() == ["ROW", "CUSTOM_ID", "OUTCOME", "ERROR_MESSAGE", "OUTPUT_TOKENS"]
    assert [line.split()[:3] for line in shown[1:3]] == [["13", "sku-0013", "error"], ["33", "sku-0033", "error"]]
    assert shown[3:] == ["", f"Parquet: {folder}"]


@pytest.mark.parametrize(
    ("options", "rows"), [((), 10), (("--head",), 10), (("--head", 3), 3), (("--head", 999), ROWS)]
)
def test_results_head_is_as_long_as_asked(shared, job, options, rows):
    assert len(shared("results", job, *options, "--json").json) == rows


def test_an_outcome_that_does_not_exist_is_told_the_nearest(shared, job):
    assert shared("results", job, "--outcome", "eror", code=Exit.REFUSED).err == (
        "Error: --outcome: 'eror' is none of ok, truncated, refused, error, cancelled, expired; did you mean error?\n"
    )


def test_jsonl_has_an_output_or_an_error_line_in_openais_shape_for_each_row(shared, job, table):
    lines = sorted(shared("results", job, "--jsonl").lines, key=lambda line: line["custom_id"])
    assert [line["custom_id"] for line in lines] == table["custom_id"].to_pylist()
    row = {name: table[name][0].as_py() for name in table.column_names}
    created = lines[0]["response"]["body"].pop("created")
    assert (isinstance(created, int), lines[0]) == (
        True,
        {
            "id": f"batch_req_{job}_0",
            "custom_id": "sku-0000",
            "response": {
                "status_code": 200,
                "request_id": f"req_{job}_0",
                "body": {
                    "id": f"chatcmpl-{job}-0",
                    "object": "chat.completion",
                    "model": "fake",
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": row["output"], "refusal": None},
                            "logprobs": None,
                            "finish_reason": "stop",
                        }
                    ],
                    "usage": {
                        "prompt_tokens": row["input_tokens"],
                        "completion_tokens": row["output_tokens"],
                        "total_tokens": row["input_tokens"] + row["output_tokens"],
                        "prompt_tokens_details": {"cached_tokens": row["cached_tokens"]},
                    },
                },
            },
            "error": None,
        },
    )
    assert lines[13] == {
        "id": f"batch_req_{job}_13",
        "custom_id": "sku-0013",
        "response": None,
        "error": {"code": "engine_error", "message": "the prompt holds 'FAULTY' (error_on)"},
    }


# ---- what it cost -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "label"),
    [("job", None), ("project", "spring"), ("model", "fake"), ("tag:team", "web"), ("tag:none", "(without)")],
)
def test_the_statement_groups_the_same_amount_by_whatever_the_job_bore(shared, job, table, by, label):
    said = shared("ledger", "statement", "--tenant", "acme", "--by", by, "--json").json
    amount, cached = sum(table["amount_pico"].to_pylist()), sum(table["cached_tokens"].to_pylist())
    tokens = {
        "input": sum(table["input_tokens"].to_pylist()) - cached,
        "cached": cached,
        "output": sum(table["output_tokens"].to_pylist()),
    }
    assert said["groups"] == [
        {
            "label": label or job,
            "models": ["fake"],
            "tokens": tokens,
            "amounts_pico": {
                "input": 100_000 * tokens["input"],
                "cached": 50_000 * tokens["cached"],
                "output": 400_000 * tokens["output"],
            },
            "amount_pico": amount,
            "amount": f"{Decimal(amount).scaleb(-12).normalize():f} USD",
            "currency": "USD",
            "example_price": True,
        }
    ]


def test_another_tenant_owes_nothing(shared, job):
    assert shared("ledger", "statement", "--tenant", "other").out == "Tenant other has no costs in this time.\n"


def test_what_the_tenant_owes_is_what_the_platform_earned(shared, job, table):
    found = {line["account"]: line["amount_pico"] for line in shared("ledger", "balance", "--json").json}
    amount = sum(table["amount_pico"].to_pylist())
    assert (sorted(found.values()), [a for a in found if "acme" in a]) == ([-amount, amount], ["tenant:acme:usage"])


def test_the_book_is_sound(shared, job):
    assert shared("ledger", "verify", "--json").json["sound"]


# ---- going on from it ---------------------------------------------------------------------------


def test_what_is_finished_can_be_neither_paused_cancelled_nor_resumed(shared, job):
    said = {verb: shared(verb, job, code=None) for verb in ("pause", "cancel", "resume")}
    needed = {"pause": "running", "cancel": "running or paused", "resume": "running or paused"}
    assert said == {
        verb: Done(code=2, err=f"Error: Job {job} is completed; {verb} needs a job that is {needed[verb]}.\n")
        for verb in said
    }


def test_a_retry_runs_exactly_the_spoiled_rows_again_and_latest_reads_both_as_one(shared, job, table):
    """Both faults lie in the engine's arguments, so the child takes others."""
    child = shared(
        "retry",
        job,
        "--outcome",
        "error,truncated",
        "--max-tokens",
        99,
        "--quiet",
        "--engine-arg",
        "error_on=",
        "--engine-arg",
        "length_on=",
    ).job
    status = shared.status(child)
    assert (status["parent"], status["outcomes"], status["tags"]) == (job, {"ok": 5}, {"team": "web", "run": "1"})
    spoiled = sorted([*CUT, *FAULTY])
    again = shared.results(child)
    assert (again["row"].to_pylist(), again.schema) == (spoiled, table.schema)
    assert again["custom_id"].to_pylist() == [f"sku-{n:04d}" for n in spoiled]
    latest = shared("results", job, "--latest", "--head", 999, "--json").json
    alone = shared("results", job, "--head", 999, "--json").json
    assert sorted(row["row"] for row in latest) == list(range(ROWS))
    assert {row["outcome"] for row in latest} == {"ok"}
    assert [row for row in latest if row["row"] not in spoiled] == [row for row in alone if row["row"] not in spoiled]
    assert len(shared("results", job, "--latest", "--jsonl").lines) == ROWS
    assert shared("retry", child, code=Exit.REFUSED).err == (
        f"Error: Job {child} has no row of outcome error,truncated; nothing to retry.\n"
    )
