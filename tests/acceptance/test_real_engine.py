"""The command line with vLLM and the two shipped models: one engine start for each kind of model."""

import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from tests.support.prepared import prepared_model

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.timeout(600)]

PATIENCE_S = 300.0
SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "good": {"type": "boolean"},
    },
    "required": ["colour", "stars", "good"],
    "additionalProperties": False,
}


@pytest.fixture
def shipped(nightmill):
    """Puts a shipped model's prepared files where `nightmill models prepare` would."""

    def put(name):
        folder = nightmill.home / "models"
        folder.mkdir(exist_ok=True)
        (folder / name).symlink_to(prepared_model(name), target_is_directory=True)
        return name

    nightmill.env["NIGHTMILL_KV_CACHE_GIB"] = "1"
    return put


def run(nightmill, *argv, code=Exit.OK):
    with nightmill.started("run", *argv) as running:
        done = running.wait(PATIENCE_S)
    assert done.code == code, done.err
    return done


def test_a_small_chat_model_fills_typed_columns_and_a_prompt_too_long_for_it_costs_only_its_row(
    nightmill, shipped, tmp_path
):
    texts = [f"car number {n}" for n in range(12)]
    texts[5] = "word " * 9000
    pq.write_table(pa.table({"id": [f"car-{n}" for n in range(12)], "text": texts}), tmp_path / "cars.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    system = "You describe cars for an online catalog, in a few words, as JSON with colour, stars and good. " * 3
    options = (
        *("--model", shipped("smollm2"), "--id", "id", "--keep", "", "--schema", tmp_path / "schema.json"),
        *("--system", system, "--prompt", "Describe {{ text }}.", "--max-tokens", 64, "--temperature", 0),
    )
    quote = nightmill("quote", tmp_path / "cars.parquet", *options, "--json").json
    done = run(nightmill, tmp_path / "cars.parquet", *options, "--rows-per-task", 6, code=Exit.SOME_ERRORS)
    assert "FAKE" not in done.err
    table = nightmill.results(done.job)
    assert [(name, table.schema.field(name).type) for name in SCHEMA["properties"]] == [
        ("colour", pa.string()),
        ("stars", pa.int64()),
        ("good", pa.bool_()),
    ]
    rows = table.to_pylist()
    assert [row["custom_id"] for row in rows if row["outcome"] == "ok"] == [f"car-{n}" for n in range(12) if n != 5]
    for row in rows:
        typed = {name: row[name] for name in SCHEMA["properties"]}
        assert typed == (json.loads(row["output"]) if row["output"] else dict.fromkeys(typed))
    bad = {name: rows[5][name] for name in ("outcome", "error_code", "output", "output_tokens", "amount_pico")}
    assert bad == {
        "outcome": "error",
        "error_code": "context_length_exceeded",
        "output": None,
        "output_tokens": 0,
        "amount_pico": 0,
    }
    assert "8192 tokens" in rows[5]["error_message"]
    good = [row for row in rows if row["outcome"] == "ok"]
    assert sum(row["cached_tokens"] for row in good) > 0  # the system message is shared
    book = nightmill("ledger", "statement", "--json").json["totals"][0]
    assert book["amount_pico"] == sum(row["amount_pico"] for row in rows)
    # What the quote counted without the engine is what the engine counted, but for the row that it did not take.
    counted = quote["usage"]["input_tokens"] + quote["usage"]["cached_tokens"]
    assert counted - sum(row["input_tokens"] for row in rows) == int(
        re.search(r"has (\d+) tokens", rows[5]["error_message"])[1]
    )


def test_an_embedding_model_gives_a_column_of_vectors_of_its_size(nightmill, shipped, tmp_path):
    texts = ["a red car", "a scarlet automobile", "the tax return of a bank", " "]
    pq.write_table(pa.table({"text": texts}), tmp_path / "texts.parquet")
    done = run(
        nightmill,
        tmp_path / "texts.parquet",
        *("--model", shipped("minilm"), "--prompt", "{{ text }}", "--quiet"),
        code=Exit.SOME_ERRORS,
    )
    table = nightmill.results(done.job)
    assert table.schema.field("output").type == pa.list_(pa.field("element", pa.float32()), 384)
    assert table["outcome"].to_pylist() == ["ok", "ok", "ok", "error"]
    assert table["error_code"].to_pylist() == [None, None, None, "empty_prompt"]
    red, scarlet, tax, nothing = table["output"].to_pylist()
    assert nothing is None
    assert [round(sum(x * x for x in v), 3) for v in (red, scarlet, tax)] == [1.0, 1.0, 1.0]
    assert (
        sum(a * b for a, b in zip(red, scarlet, strict=True)) > 0.5 > sum(a * b for a, b in zip(red, tax, strict=True))
    )
    assert table["output_tokens"].to_pylist() == [0, 0, 0, 0]
    line = nightmill("results", done.job, "--jsonl").lines[0]
    assert (line["response"]["body"]["data"][0]["embedding"], line["response"]["body"]["object"]) == (red, "list")
    refused = nightmill(
        "run", tmp_path / "texts.parquet", "--model", "minilm", "--prompt", "x", "--max-tokens", 3, code=Exit.REFUSED
    )
    assert refused.err == "Error: --max-tokens: minilm is an embedding model; it generates no text.\n"
