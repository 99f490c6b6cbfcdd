"""Rows by number: the right ones, whatever the files, the groups and the cursors; broken pages cost their rows."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data.index import InputIndex
from infra.data.read import RowReader, TooMuch
from jobs.errors import InputChanged, Unavailable
from jobs.ranges import Range
from tests.support.data import Kit

pytestmark = pytest.mark.unit


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    yield made
    made.close()


@pytest.fixture
def reader(kit):
    found = RowReader(kit.objects)
    yield found
    found.close()


def read(kit, reader, path, ranges, columns, **options):
    found = kit.resolve(path)
    return reader.rows(InputIndex(found.files), found.schema, ranges, columns, **options)


def test_ranges_over_groups_and_files(kit, reader):
    kit.parquet("in/a.parquet", {"x": range(10)}, row_group_size=3)
    kit.parquet("in/b.parquet", {"x": pa.array([], pa.int64())})
    kit.parquet("in/c.parquet", {"x": range(10, 20)}, row_group_size=100)
    ranges = (Range(1, 2), Range(5, 13), Range(19, 20))
    rows = read(kit, reader, str(kit.root / "in"), ranges, ["x"])
    assert rows.columns["x"].to_pylist() == [1, *range(5, 13), 19] == rows.rows.to_pylist()


def test_copies_repeat_an_input_row(kit, reader):
    path = kit.parquet("a.parquet", {"x": ["a", "b", "c"]})
    rows = read(kit, reader, path, (Range(1, 5), Range(8, 9)), ["x"], copies=3)
    assert rows.rows.to_pylist() == [1, 2, 3, 4, 8]
    assert rows.input_rows.to_pylist() == [0, 0, 1, 1, 2]
    assert rows.columns["x"].to_pylist() == ["a", "a", "b", "b", "c"]


def test_a_column_that_a_file_lacks_is_null(kit, reader):
    kit.parquet("in/a.parquet", {"x": [1]})
    kit.parquet("in/b.parquet", {"x": [2], "y": ["b"]})
    folder = str(kit.root / "in")
    assert read(kit, reader, folder, (Range(0, 2),), ["y"]).columns["y"].to_pylist() == [None, "b"]
    assert read(kit, reader, folder, (Range(0, 2),), ["y", "x"]).columns["x"].to_pylist() == [1, 2]


def test_a_column_all_null_in_the_first_100k_rows_and_text_later(kit, reader):
    values = pa.array([None] * 100_000 + ["late"] * 10, pa.string())
    path = kit.parquet("a.parquet", {"x": values}, row_group_size=50_000)
    rows = read(kit, reader, path, (Range(99_998, 100_002),), ["x"])
    assert rows.columns["x"].to_pylist() == [None, None, "late", "late"]


def test_columns_with_dots_in_their_names_are_not_mixed_up(kit, reader):
    path = kit.parquet("a.parquet", {"a.b": [1], "a": [{"b": 2}], "a.b.c": [3]})
    rows = read(kit, reader, path, (Range(0, 1),), ["a", "a.b"])
    assert {name: column.to_pylist() for name, column in rows.columns.items()} == {"a": [{"b": 2}], "a.b": [1]}


def test_no_columns_still_have_rows(kit, reader):
    path = kit.parquet("a.parquet", {"x": range(5)})
    assert read(kit, reader, path, (Range(1, 4),), []).rows.to_pylist() == [1, 2, 3]


def test_tasks_that_follow_each_other_decode_a_row_group_once(kit, reader, monkeypatch):
    path = kit.parquet("a.parquet", {"x": range(40_000)})
    started = []
    plain = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *a, **k: started.append(1) or plain(*a, **k))
    for start in range(0, 40_000, 4000):
        rows = read(kit, reader, path, (Range(start, start + 4000),), ["x"])
        assert rows.columns["x"].to_pylist() == list(range(start, start + 4000))
    assert len(started) == 1


def test_two_readers_each_keep_their_place(kit, reader, monkeypatch):
    path = kit.parquet("a.parquet", {"x": range(40_000)})
    started = []
    plain = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *a, **k: started.append(1) or plain(*a, **k))
    for step in range(0, 20_000, 2000):
        for base in (20_000, 0):
            rows = read(kit, reader, path, (Range(base + step, base + step + 2000),), ["x"])
            assert rows.columns["x"][0].as_py() == base + step
    assert len(started) == 2


def test_many_threads_read_the_right_rows(kit, reader):
    path = kit.parquet("a.parquet", {"x": range(30_000)}, row_group_size=7000)
    found = kit.resolve(path)
    index = InputIndex(found.files)
    wrong = []

    def work(offset):
        for start in range(offset, 30_000 - 500, 1500):
            got = reader.rows(index, found.schema, (Range(start, start + 500),), ["x"]).columns["x"].to_pylist()
            wrong.extend([] if got == list(range(start, start + 500)) else [start])

    threads = [threading.Thread(target=work, args=(n * 500,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_cursors_are_bounded(kit):
    reader = RowReader(kit.objects, cursors=3)
    for n in range(8):
        path = kit.parquet(f"{n}.parquet", {"x": [n]})
        read(kit, reader, path, (Range(0, 1),), ["x"])
    assert len(reader._pool._rest) == 3
    reader.close()


def test_more_bytes_than_there_is_room_for(kit, reader):
    path = kit.parquet("a.parquet", {"x": ["y" * 1000] * 5000})
    with pytest.raises(TooMuch):
        read(kit, reader, path, (Range(0, 5000),), ["x"], limit_bytes=1 << 20)


def damaged(kit, column=b"NEEDLE", **options):
    """A file with one spoilt page: 10,000 rows, small pages, a recognisable value in the middle."""
    values = [f"value number {n}" for n in range(10_000)]
    values[6000] = column.decode() * 4
    return kit.parquet(
        "a.parquet",
        {"x": values, "y": range(10_000)},
        compression="none",
        use_dictionary=False,
        data_page_size=4096,
        write_page_checksum=True,
        **options,
    )


def spoil(path):
    """Overwrite the length in front of the needle, so that the page cannot be decoded."""
    with Path(path).open("r+b") as file:
        data = file.read()
        at = data.index(b"NEEDLE")
        file.seek(at - 4)
        file.write(b"\xff\xff\xff\x7f")


def test_a_broken_page_costs_its_rows_and_those_behind_it_in_the_group(kit, reader):
    path = damaged(kit, row_group_size=8000)
    spoil(path)
    rows = read(kit, reader, path, (Range(0, 10_000),), ["x", "y"])
    bad = sorted(rows.faults)
    assert bad == list(range(bad[0], 8000))
    assert 5000 < bad[0] <= 6000
    assert {fault.code for fault in rows.faults.values()} == {"input_unreadable"}
    assert "row group 0" in rows.faults[bad[0]].message
    assert rows.columns["x"][bad[0] - 1].as_py() == f"value number {bad[0] - 1}"
    assert rows.columns["x"][8000].as_py() == "value number 8000"
    assert rows.columns["x"][bad[0]].as_py() is None
    again = read(kit, reader, path, (Range(7000, 7010), Range(9000, 9001)), ["x"])
    assert sorted(again.faults) == list(range(10))


def test_a_broken_column_that_nobody_reads_costs_nothing(kit, reader):
    path = damaged(kit)
    spoil(path)
    assert read(kit, reader, path, (Range(0, 10_000),), ["y"]).faults == {}


def test_a_fault_of_the_disk_is_not_the_rows_fault(kit, reader):
    path = kit.parquet("a.parquet", {"x": range(10)})
    found = kit.resolve(path)

    def broken(*_):
        raise OSError(5, "Input/output error")

    class Bad(type(kit.objects)):
        def open(self, uri):
            return Wrapped(super().open(uri))

    class Wrapped:
        def __init__(self, inner):
            self.inner = inner
            self.close = inner.close

        def __getattr__(self, name):
            return getattr(self.inner, name)

        closed = False
        read = broken

    sick = RowReader(Bad())
    with pytest.raises(Unavailable, match="cannot be read"):
        sick.rows(InputIndex(found.files), found.schema, (Range(0, 1),), ["x"])


def test_a_changed_file_stops_the_task(kit, reader):
    path = kit.parquet("a.parquet", {"x": range(10)})
    found = kit.resolve(path)
    index = InputIndex(found.files)
    reader.rows(index, found.schema, (Range(0, 5),), ["x"])
    kit.parquet("a.parquet", {"x": range(11)})
    with pytest.raises(InputChanged):
        reader.rows(index, found.schema, (Range(5, 10),), ["x"])
