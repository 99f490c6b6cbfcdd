"""From what a user typed to the frozen input, and what is refused on the way."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data.inputs import check_ids, verify_unchanged
from jobs.errors import BadInput, InputChanged
from tests.support.data import Kit

pytestmark = pytest.mark.unit


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    yield made
    made.close()


def refused(kit, path, **options):
    with pytest.raises(BadInput) as caught:
        kit.resolve(path, **options)
    return str(caught.value)


def test_one_file_has_its_rows_groups_and_stamp(kit):
    path = kit.parquet("a.parquet", {"x": range(10)}, row_group_size=4)
    found = kit.resolve(path)
    (file,) = found.files
    assert (found.format, found.rows, file.row_groups, file.first_row) == ("parquet", 10, (4, 4, 2), 0)
    assert len(file.row_group_bytes) == 3
    assert file.stamp.startswith("mtime_ns:")


def test_a_folder_is_its_sorted_data_files(kit):
    kit.parquet("in/b.parquet", {"x": [1]})
    kit.parquet("in/a.parquet", {"x": [2, 3]})
    kit.parquet("in/_parts/c.parquet", {"x": [4]})
    kit.write("in/_SUCCESS", b"")
    found = kit.resolve(str(kit.root / "in"))
    assert [(f.uri.rsplit("/", 1)[1], f.first_row) for f in found.files] == [("a.parquet", 0), ("b.parquet", 2)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("in/*.parquet", ["a", "b"]),
        ("in/?.parquet", ["a", "b"]),
        ("in/[!a].parquet", ["b"]),
        ("in/**/*.parquet", ["a", "b", "c"]),
        ("in/*/*.parquet", ["c"]),
    ],
)
def test_a_glob_matches_as_in_a_shell(kit, pattern, names):
    for name in ("in/a", "in/b", "in/deep/c"):
        kit.parquet(f"{name}.parquet", {"x": [1]})
    kit.parquet("other.parquet", {"x": [1]})
    found = kit.resolve(str(kit.root / pattern))
    assert [f.uri.rsplit("/", 1)[1][0] for f in found.files] == names


def test_a_file_is_known_by_how_it_begins(kit):
    kit.parquet("table", {"x": [1]})
    assert kit.resolve(str(kit.root / "table")).format == "parquet"


def test_a_file_whose_name_looks_like_a_glob_is_found(kit):
    path = kit.parquet("a[1].parquet", {"x": [1]})
    assert kit.resolve(path).rows == 1


def test_an_empty_file_among_others_is_no_fault(kit):
    kit.parquet("in/a.parquet", {"x": pa.array([], pa.int64())})
    kit.parquet("in/b.parquet", {"x": [1]})
    assert kit.resolve(str(kit.root / "in")).rows == 1


def test_nothing_there(kit):
    assert "there is no such file" in refused(kit, str(kit.root / "none.parquet"))
    assert "no file matches" in refused(kit, str(kit.root / "*.parquet"))


def test_not_a_parquet_file(kit):
    path = kit.write("cars.parquet", b"id,name\n1,Ford\n")
    message = refused(kit, path)
    assert path in message
    assert "not a Parquet file" in message


def test_an_empty_file(kit):
    assert "the file is empty" in refused(kit, kit.write("cars.parquet", b""))


@pytest.mark.parametrize("keep", [-1, -9, 200, 10, 4])
def test_a_truncated_parquet_file(kit, keep):
    whole = (kit.root / "a.parquet", kit.parquet("a.parquet", {"x": range(1000)}))[0].read_bytes()
    message = refused(kit, kit.write("cut.parquet", whole[:keep]))
    assert "truncated" in message
    assert "cut.parquet" in message


def test_a_parquet_file_with_a_damaged_footer(kit):
    whole = bytearray((kit.root / "a.parquet", kit.parquet("a.parquet", {"x": range(1000)}))[0].read_bytes())
    size = int.from_bytes(whole[-8:-4], "little")
    whole[-8 - size : -8] = b"\xff" * size
    assert "damaged" in refused(kit, kit.write("bad.parquet", bytes(whole)))


def test_zero_rows(kit):
    path = kit.parquet("a.parquet", {"x": pa.array([], pa.int64())})
    assert refused(kit, path) == f"{path}: it has no rows."


def test_zero_columns(kit):
    path = str(kit.root / "a.parquet")
    pq.write_table(pa.table({}), path)
    assert refused(kit, path) == f"{path}: it has no columns."


def test_kinds_do_not_mix(kit):
    kit.parquet("in/a.parquet", {"x": [1]})
    kit.jsonl("in/b.jsonl", [{}])
    assert "b.jsonl: it is jsonl, but" in refused(kit, str(kit.root / "in"))


def test_a_file_of_neither_kind_is_named(kit):
    kit.parquet("in/a.parquet", {"x": [1]})
    kit.write("in/notes.txt", b"hello")
    kit.write("in/z.jsonl.gz", gzip.compress(b"{}"))
    assert "notes.txt: it is neither Parquet nor JSONL" in refused(kit, str(kit.root / "in"))


def test_two_columns_of_one_name(kit):
    path = str(kit.root / "a.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"]), path)
    assert "two columns named 'x'" in refused(kit, path)


def test_files_are_unified_where_only_nulls_differ(kit):
    kit.parquet("in/a.parquet", pa.table({"x": pa.nulls(2), "l": pa.array([[], []], pa.list_(pa.null()))}))
    kit.parquet("in/b.parquet", {"x": ["text"], "l": [["a"]], "more": [1.5]})
    assert kit.resolve(str(kit.root / "in")).schema == pa.schema(
        [
            ("x", pa.string()),
            ("l", pa.list_(pa.string())),
            ("more", pa.float64()),
        ]
    )


def test_types_that_disagree_are_named(kit):
    kit.parquet("in/a.parquet", {"x": [1]})
    kit.parquet("in/b.parquet", {"x": ["1"]})
    message = refused(kit, str(kit.root / "in"))
    assert "b.parquet: column 'x' is string here but int64 in" in message
    assert "a.parquet" in message


def test_a_changed_input_is_named(kit):
    path = kit.parquet("a.parquet", {"x": [1]})
    (file,) = kit.resolve(path).files
    verify_unchanged(kit.objects, file)
    kit.parquet("a.parquet", {"x": [1, 2]})
    with pytest.raises(InputChanged, match=r"a\.parquet changed"):
        verify_unchanged(kit.objects, file)
    (kit.root / "a.parquet").unlink()
    with pytest.raises(InputChanged, match="it is gone"):
        verify_unchanged(kit.objects, file)


# ---- ids ----------------------------------------------------------------------------------------


def bad_ids(kit, path, column="id"):
    with pytest.raises(BadInput) as caught:
        check_ids(kit.objects, kit.resolve(path), column, scratch=kit.scratch)
    return str(caught.value)


@pytest.fixture(params=[1_000_000, 8])
def held(request, monkeypatch):
    """In memory, and in buckets on disk."""
    monkeypatch.setattr("infra.data.ids.IN_MEMORY", request.param)
    monkeypatch.setattr("infra.data.ids._BUCKET_ROWS", request.param // 2)


@pytest.mark.parametrize(
    "ids", [range(100), [f"r{n}" for n in range(100)], pa.array([f"r{n}" for n in range(100)]).dictionary_encode()]
)
def test_unique_ids_are_fine(kit, held, ids):
    path = kit.parquet("a.parquet", {"id": ids}, row_group_size=7)
    check_ids(kit.objects, kit.resolve(path), "id", scratch=kit.scratch)
    assert not list(kit.scratch.glob("*")) if kit.scratch.exists() else True


def test_duplicate_ids_are_named_with_their_rows(kit, held):
    kit.parquet("in/a.parquet", {"id": list(range(40))}, row_group_size=7)
    kit.parquet("in/b.parquet", {"id": [100, 17, 101]})
    message = bad_ids(kit, str(kit.root / "in"))
    assert f"column 'id' must be unique, but '17' stands in row 17 of {kit.root}/in/a.parquet, row 1 of" in message


def test_null_ids_are_named_with_their_rows(kit, held):
    path = kit.parquet("a.parquet", {"id": [*range(50), None, 7, None]}, row_group_size=7)
    assert "column 'id' is null in row 50, row 52; every row needs an id" in bad_ids(kit, path)


def test_missing_id_column(kit):
    path = kit.parquet("a.parquet", {"x": [1], "y": [2]})
    assert "there is no column 'id' for --id; it has x, y" in bad_ids(kit, path)


def test_an_id_column_that_one_file_lacks(kit):
    kit.parquet("in/a.parquet", {"id": [1]})
    kit.parquet("in/b.parquet", {"x": [2]})
    assert "b.parquet: it has no column 'id'" in bad_ids(kit, str(kit.root / "in"))


@pytest.mark.parametrize("values", [[1.5], [[1]], [True], [b"x"]])
def test_ids_are_whole_numbers_or_text(kit, values):
    assert "ids are whole numbers or text" in bad_ids(kit, kit.parquet("a.parquet", {"id": values}))


def test_an_id_that_is_not_utf8_is_named(kit):
    bad = pa.array([b"fine", b"\xff\xfe"]).cast(pa.binary()).view(pa.string())
    assert "column 'id' is not valid UTF-8 in row 1" in bad_ids(kit, kit.parquet("a.parquet", {"id": bad}))
