"""The README's promise: pyarrow, DuckDB, pandas and polars each read a result folder as one data set."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pyarrow.dataset
import pytest

from jobs.plan import PlanPolicy
from jobs.ports.engine import EngineResult
from tests.support.data import Kit

pytestmark = pytest.mark.integration

SCHEMA = '{"type":"object","properties":{"score":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}}}'
ROWS = 90


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished job with typed columns, nulls, every kind of kept column, errors, and two neighbours in `out/`."""
    kit = Kit(tmp_path_factory.mktemp("readers"), policy=PlanPolicy(min_rows=16, max_rows=32))
    table = pa.table(
        {
            "id": range(ROWS),
            "name": [None if n % 7 == 0 else f"näme {n}" for n in range(ROWS)],
            "nothing": pa.nulls(ROWS),
            "price": pa.array([decimal.Decimal("1.50")] * ROWS),
            "when": pa.array([10**9 * n for n in range(ROWS)], pa.timestamp("us", "UTC")),
            "tags": [["a", None], []] * (ROWS // 2),
            "struct": [{"a": n, "b": None} for n in range(ROWS)],
            "kind": pa.array(["x", "y"] * (ROWS // 2)).dictionary_encode(),
            "blob": [b"\xff"] * ROWS,
            "output": ["mine"] * ROWS,
        }
    )
    path = kit.parquet("in.parquet", table)

    def answer(n, _):
        if n % 9 == 0:
            return EngineResult(n, "error", error_code="engine_error", error_message="boom")
        return EngineResult(n, "stop", f'{{"score":{n},"tags":["t"]}}', None, 40, 32, 7)

    job = kit.submit(path, id_column="id", messages=(("user", "{{ id }} {{ name }}"),), schema=SCHEMA)
    kit.publish(job, kit.run(job, answer))
    other = kit.submit(path, "job2", id_column="id")
    kit.run(other)  # still running: its parts lie under _parts/
    kit.close()
    return job.folder


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory):
    kit = Kit(tmp_path_factory.mktemp("embeddings"))
    path = kit.parquet("in.parquet", {"t": ["a", "", "c"]})
    job = kit.submit(path, model_kind="embedding", text="{{ t }}", sampling="{}", embedding_size=4)
    kit.publish(job, kit.run(job, lambda n, _: EngineResult(n, "stop", "", [float(n)] * 4, 3)))
    kit.close()
    return job.folder


def test_pyarrow(folder, embeddings):
    found = pa.dataset.dataset(folder).to_table()
    assert found["row"].to_pylist() == list(range(ROWS))
    assert found["input_output"].to_pylist() == ["mine"] * ROWS
    assert found.schema.field("kind").type == pa.dictionary(pa.int32(), pa.string())
    assert pa.dataset.dataset(embeddings).to_table()["output"].to_pylist() == [[0.0] * 4, None, [2.0] * 4]


def test_duckdb(folder, embeddings):
    duckdb = pytest.importorskip("duckdb")
    files = f"{folder}/*.parquet"
    with duckdb.connect() as database:
        found = database.execute(
            f"select outcome, count(*), sum(amount_pico), max(score) from '{files}' group by 1 order by 1"
        ).fetchall()
        assert [row[:2] for row in found] == [("error", found[0][1]), ("ok", ROWS - found[0][1])]
        assert found[1][2] > 0
        everything = database.execute(f"select * from '{files}' order by row").fetchall()
        assert len(everything) == ROWS
        vectors = database.execute(f"select output from '{embeddings}/*.parquet' order by row").fetchall()
        assert [None if v is None else list(v) for (v,) in vectors] == [[0.0] * 4, None, [2.0] * 4]


def test_pandas(folder, embeddings):
    pandas = pytest.importorskip("pandas")
    found = pandas.read_parquet(folder)
    assert list(found["row"]) == list(range(ROWS))
    assert found["outcome"].value_counts()["ok"] + found["outcome"].value_counts()["error"] == ROWS
    assert list(pandas.read_parquet(embeddings)["output"][2]) == [2.0] * 4


def test_polars(folder, embeddings):
    polars = pytest.importorskip("polars")
    # polars takes every file of a bare folder for data, `_manifest.json` too: it needs the pattern.
    found = polars.scan_parquet(f"{folder}/*.parquet").collect()
    assert found["row"].to_list() == list(range(ROWS))
    assert found["tags"].to_list()[0] == ["a", None]
    assert polars.read_parquet(f"{embeddings}/*.parquet")["output"].to_list()[1] is None
