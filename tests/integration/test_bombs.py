"""Parquet that is small on disk and large in memory ends in a clear refusal, in a process of its own."""

import os
import resource
import time
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data.bounds import ParquetBounds
from infra.data.inputs import resolve
from infra.data.look import Looker, LookPolicy
from infra.data.parquet import batch_rows, parquet_facts
from infra.objects import open_objects
from infra.objects.local import LocalObjects
from jobs.errors import BadInput, NotFound
from jobs.ports.objects import ObjectFacts
from tests.support import bombs
from tests.support.s3 import BUCKET

pytestmark = pytest.mark.integration

OBJECTS = LocalObjects()


@pytest.fixture
def looked(tmp_path):
    """What a look says of some bytes: the reason of its refusal, or the frozen file."""

    def look(*contents, id_column=None, **policy):
        paths = [tmp_path / f"{number}.parquet" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        looker = Looker(objects=OBJECTS, scratch=tmp_path / "scratch", policy=LookPolicy(**policy))
        try:
            files, _ = looker.look("in", [OBJECTS.facts(str(path)) for path in paths], id_column)
        except BadInput as refused:
            return refused.data["reason"]
        return files[0] if len(files) == 1 else files

    return look


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (bombs.many_of_one, "bytes decode to 68,720,525,381 bytes or more; 4,294,967,296 are taken"),
        (bombs.shared_prefixes, "bytes or more; 4,294,967,296 are taken"),
        (bombs.large_dictionary, "a dictionary of column 'x' unpacks to 67,109,120 bytes; 16,777,216 are taken"),
        (bombs.large_page, "a page of column 'x' unpacks to"),
        (bombs.one_row_of_all, "to look at it takes more than 1024 MiB of memory"),
        (bombs.deep, "too deeply nested"),
        (lambda: bombs.deep(20), "levels of nesting; 32 are taken"),
        (bombs.broad, "it has 5,000 columns; 2,000 are taken"),
    ],
)
def test_a_bomb_is_refused_for_what_it_is_and_costs_the_caller_nothing(looked, make, reason):
    content = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert reason in looked(content)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10 < 64


def test_rows_are_bounded_over_all_files(looked):
    content, bounds = bombs.written(pa.table({"x": range(60)})), ParquetBounds(rows=100)
    assert looked(content, bounds=bounds).rows == 60
    assert looked(content, content, bounds=bounds) == "it has more than 100 rows"
    assert looked(bombs.written(pa.table({"x": range(101)})), bounds=bounds) == "it has 101 rows; 100 are taken"


def test_a_footer_that_is_too_long_is_refused_before_it_is_parsed(looked):
    content = bombs.broad(100)
    length = int.from_bytes(content[-8:-4], "little")
    assert looked(content, bounds=ParquetBounds(footer_bytes=length - 1)) == (
        f"its footer has {length:,} bytes; {length - 1:,} are taken"
    )


def test_what_a_file_unpacks_to_is_bounded(looked):
    content = bombs.written(pa.table({"x": ["y" * 1000] * 5000}), use_dictionary=False)
    assert "it unpacks to" in looked(content, bounds=ParquetBounds(bytes=1_000_000))


def test_a_footer_that_lies_of_its_sizes_is_not_believed(looked, tmp_path):
    """Everything after reads and cuts by these sizes."""
    content = bombs.many_of_one(value_bytes=100_000, rows=1000)
    file = looked(content)
    told, _ = parquet_facts(OBJECTS, OBJECTS.facts(str(tmp_path / "0.parquet")))
    assert (told.row_group_bytes[0] < 200_000, file.row_group_bytes[0] > 100_000_000) == (True, True)
    assert (batch_rows(told), batch_rows(file)) == (16_384, 83)


def test_an_honest_file_is_taken_with_sizes_close_to_its_own(looked, tmp_path):
    table = pa.table(
        {
            "id": range(5000),
            "text": [f"text {n} " * 20 for n in range(5000)],
            "kind": [f"kind {n % 10}" for n in range(5000)],
            "chat": [[{"role": "user", "content": f"hello {n}"}] * 2 for n in range(5000)],
            "vector": pa.array([[0.5] * 4] * 5000, pa.list_(pa.float32(), 4)),
            "nothing": pa.nulls(5000),
        }
    )
    content = bombs.written(table, row_group_size=2000)
    file = looked(content, id_column="id")
    told, _ = parquet_facts(OBJECTS, OBJECTS.facts(str(tmp_path / "0.parquet")))
    assert file.evolve(row_group_bytes=()) == told.evolve(row_group_bytes=())
    ratios = [ours / theirs for ours, theirs in zip(file.row_group_bytes, told.row_group_bytes, strict=True)]
    assert all(0.9 < ratio < 3 for ratio in ratios), ratios


def test_ids_are_checked_in_the_same_look(looked):
    content = bombs.written(pa.table({"id": ["a", "b", "a"]}))
    assert looked(content, id_column="id") == "column 'id' must be unique, but 'a' stands in row 0, row 2"
    assert "there is no column 'key'" in looked(content, id_column="key")


def test_ids_that_are_too_much_end_the_look_and_not_the_caller(looked):
    content = bombs.many_of_one(value_bytes=3 * bombs.MIB, rows=1000)
    assert looked(content, id_column="x", memory_bytes=256 << 20) == "to look at it takes more than 256 MiB of memory"


def test_a_look_that_takes_too_long_is_ended(looked):
    before = time.monotonic()
    assert looked(bombs.broad(10), timeout_s=0.001) == "to look at it takes too long"
    assert time.monotonic() - before < 30


def test_a_file_that_is_gone_or_cannot_be_read_is_told_as_ever(tmp_path):
    looker = Looker(objects=OBJECTS, scratch=tmp_path)
    with pytest.raises(NotFound):
        looker.look("in", [ObjectFacts(uri=str(tmp_path / "none.parquet"), size=100, stamp="x")], None)


def children():
    """Of this process; other tests' services are among them."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_the_process_that_looks_has_no_credentials_and_is_gone_afterwards(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    monkeypatch.setenv("PGPASSWORD", "very-secret")
    (tmp_path / "a.parquet").write_bytes(bombs.written(pa.table({"x": [1]})))
    before, seen = children(), []

    class Spied(LocalObjects):
        def open(self, uri):
            seen.extend((pid, Path(f"/proc/{pid}/environ").read_bytes()) for pid in children() - before)
            return super().open(uri)

    looker = Looker(objects=Spied(), scratch=tmp_path)
    looker.look("in", [OBJECTS.facts(str(tmp_path / "a.parquet"))], None)
    assert seen
    assert [pid for pid, environ in seen if b"very-secret" in environ] == []
    assert [pid for pid, _ in seen if Path(f"/proc/{pid}").exists()] == []


def test_what_it_says_of_which_files_there_are_is_not_taken_from_it(tmp_path):
    """As if it had been taken over by what it read."""
    path = tmp_path / "a.parquet"
    path.write_bytes(bombs.written(pa.table({"x": [1]})))
    facts = OBJECTS.facts(str(path))
    files, _ = Looker(objects=OBJECTS, scratch=tmp_path).look("in", [facts], None)
    assert {name: asdict(files[0])[name] for name in ("uri", "size", "stamp")} == asdict(facts)


def test_what_lies_in_s3_is_looked_at_in_the_same_way(s3, s3_keys, tmp_path):
    objects, prefix = open_objects(scratch=tmp_path, s3=s3.options()), f"s3://{BUCKET}/{tmp_path.name}"
    table = pa.table({"id": range(20_000), "x": [f"row {n} " * 10 for n in range(20_000)]})
    contents = {"good": bombs.written(table, row_group_size=5000), "bomb": bombs.many_of_one()}
    for name, content in contents.items():
        objects.put_if_absent(f"{prefix}/{name}.parquet", content)
    looker = Looker(objects=objects, scratch=tmp_path)
    files, schema = looker.look("in", [objects.facts(f"{prefix}/good.parquet")], "id")
    assert (files[0].rows, files[0].row_groups, schema.names) == (20_000, (5000,) * 4, ["id", "x"])
    with pytest.raises(BadInput, match="decode to"):
        looker.look("in", [objects.facts(f"{prefix}/bomb.parquet")], None)


def test_the_same_input_looked_at_here_and_there_has_the_same_schema(tmp_path):
    for name, table in (("a", pa.table({"x": [1], "y": ["a"]})), ("b", pa.table({"x": [2], "z": [0.5]}))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    looker = Looker(objects=OBJECTS, scratch=tmp_path)
    here = resolve(OBJECTS, f"{tmp_path}/*.parquet", scratch=tmp_path)
    there = resolve(
        OBJECTS, f"{tmp_path}/*.parquet", scratch=tmp_path, tables=lambda s, f: looker.look(s, f, id_column=None)
    )
    strip = [[file.evolve(row_group_bytes=()) for file in inputs.files] for inputs in (here, there)]
    assert (there.schema, strip[1]) == (here.schema, strip[0])
