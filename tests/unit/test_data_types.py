"""Kept columns come through unchanged, whatever their type, staged or pointed at."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.plan import PlanPolicy
from tests.support.data import Kit

pytestmark = pytest.mark.unit

SAMPLES = {
    pa.null(): None,
    pa.bool_(): True,
    pa.int8(): -5,
    pa.uint64(): 2**63,
    pa.float16(): 1.5,
    pa.float32(): 0.25,
    pa.float64(): float("inf"),
    pa.string(): "ä",
    pa.large_string(): "b",
    pa.string_view(): "c",
    pa.binary(): b"\xff",
    pa.large_binary(): b"\x00",
    pa.binary(3): b"abc",
    pa.date32(): dt.date(2024, 5, 1),
    pa.date64(): dt.date(2024, 5, 1),
    pa.time32("ms"): dt.time(1, 2, 3),
    pa.time64("ns"): dt.time(1, 2, 3),
    pa.timestamp("s"): 10**11,
    pa.timestamp("ns"): 1714566600000000123,
    pa.timestamp("us", "Europe/Berlin"): 1714566600000000,
    pa.duration("ns"): 5,
    pa.decimal128(9, 2): decimal.Decimal("1.50"),
    pa.decimal256(60, 5): decimal.Decimal("1.50000"),
    pa.list_(pa.string()): ["a", None],
    pa.large_list(pa.int8()): [1],
    pa.list_(pa.float32(), 2): [1.0, 2.0],
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]): {"a": 1, "b": ["x"]},
    pa.map_(pa.string(), pa.int64()): [("k", 1)],
    pa.dictionary(pa.int32(), pa.string()): "d",
    pa.list_(pa.struct([("when", pa.timestamp("ns"))])): [{"when": 5}],
    pa.uuid(): b"0123456789abcdef",
}
ROWS = 60


def column(kind, value):
    if kind == pa.date64():
        return pa.array([value, None] * (ROWS // 2), pa.date32()).cast(kind)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_dictionary(kind):
        texts = [None if n % 4 == 0 else f"{value}{n // 20}" for n in range(ROWS)]
        return pa.array(texts, kind.value_type).dictionary_encode()
    made = pa.array([value, None] * (ROWS // 2), storage)
    return pa.ExtensionArray.from_storage(kind, made) if storage != kind else made


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    kit = Kit(tmp_path_factory.mktemp("types"))
    columns = {f"c{n}": column(kind, value) for n, (kind, value) in enumerate(SAMPLES.items())}
    return kit.parquet("in.parquet", {"doc": ["x" * 900, "y" * 900] * (ROWS // 2), **columns}, row_group_size=20)


@pytest.mark.parametrize("staged", [True, False])
def test_every_type_is_kept(tmp_path, path, staged):
    kit = Kit(tmp_path, policy=PlanPolicy(min_rows=7, min_gain=0.02 if staged else 2.0))
    job = kit.submit(path, messages=(("user", "{{ doc }}"),), order="input")
    assert {task.source.staged is not None for task in kit.plan(job)} == {staged}
    found = kit.finish(job)
    kit.close()
    given = pq.read_table(path)
    for name in given.column_names:
        assert found[name].type == (pa.string() if given[name].type == pa.string_view() else given[name].type), name
        assert found[name].cast(given[name].type).combine_chunks().equals(given[name].combine_chunks()) or (
            found[name].to_pylist() == given[name].to_pylist()
        ), name


@pytest.mark.parametrize("number", range(len(SAMPLES)))
def test_every_type_can_be_rendered(tmp_path, path, number):
    kit = Kit(tmp_path)
    job = kit.submit(
        path, messages=(("user", f"{{{{ c{number} }}}}|{{% if true %}}{{{{ c{number} }}}}{{% endif %}}."),)
    )
    (task, *_) = kit.plan(job)
    rows = kit.open(job, task)
    kit.close()
    shown = [prompt[0][1] for prompt in rows.prompts if prompt is not None]
    assert all(a == b for a, b in (text.rstrip(".").split("|") for text in shown))
    assert shown
