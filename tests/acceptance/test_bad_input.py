"""What a user sees of bad input: a sentence that names the file, row, column or line, and no job left behind.

What is wrong with single rows only costs those rows.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import refused
from tests.acceptance.goods import a_line, catalog, lines

pytestmark = pytest.mark.acceptance

PROMPT = ("--prompt", "Sell {{ name }}", "--quiet")
TOO_LONG = (
    "the prompt has 6252 tokens; with at least 1 output token that is more than the 4096 tokens of the model's context"
)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "bad"
    made.mkdir()
    return made


@pytest.fixture
def refusing(shared, folder):
    """Runs what must be refused: exit code 2, one sentence, and no job left behind."""

    def run(source, *options, prompt=PROMPT):
        before = shared.jobs()
        done = shared.run(source, *prompt, *options, code=None, cwd=folder)
        assert shared.jobs() == before
        return done

    return run


# ---- files --------------------------------------------------------------------------------------


def test_a_file_that_is_not_parquet_is_refused(refusing, folder):
    (folder / "a.parquet").write_text("name,price\nLamp,3\n")
    assert refusing("a.parquet") == refused(
        f"{folder}/a.parquet: it is not a Parquet file (it begins with b'name', Parquet begins with b'PAR1')."
    )


def test_a_file_of_an_unknown_kind_is_refused(refusing, folder):
    (folder / "a.csv").write_text("name,price\nLamp,3\n")
    assert refusing("a.csv") == refused(
        f"{folder}/a.csv: it is neither Parquet nor JSONL (known by .parquet or .jsonl, or by how it begins); "
        "use a glob such as FOLDER/*.parquet to leave files out."
    )


def test_a_truncated_file_is_refused(refusing, inputs, folder):
    whole = (inputs / "goods.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(whole[: len(whole) // 2])
    done = refusing("a.parquet")
    assert (done.code, done.err.startswith(f"Error: {folder}/a.parquet: the Parquet file is truncated: its last")) == (
        2,
        True,
    )


def test_a_file_with_a_damaged_footer_is_refused(refusing, inputs, folder):
    whole = bytearray((inputs / "goods.parquet").read_bytes())
    whole[-200:-8] = b"\xff" * 192
    (folder / "a.parquet").write_bytes(whole)
    done = refusing("a.parquet")
    assert (done.code, done.err.startswith(f"Error: {folder}/a.parquet: the Parquet file is damaged: ")) == (2, True)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a"])
def test_an_empty_file_is_refused(refusing, folder, name):
    (folder / name).touch()
    reason = {"a.parquet": "the file is empty", "a.jsonl": "it has no rows", "a": "the file is empty"}[name]
    assert refusing(name, prompt=("--quiet",) if name == "a.jsonl" else PROMPT) == refused(
        f"{folder}/{name}: {reason}."
    )


def test_a_file_without_rows_is_refused(refusing, folder):
    pq.write_table(catalog(0), folder / "a.parquet")
    assert refusing("a.parquet") == refused(f"{folder}/a.parquet: it has no rows.")


def test_a_file_without_columns_is_refused(refusing, folder):
    pq.write_table(catalog(3).select([]), folder / "a.parquet")
    assert refusing("a.parquet") == refused(f"{folder}/a.parquet: it has no columns.")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("no.parquet", "there is no such file, and no folder with data files in it"),
        ("nowhere/*.parquet", "no file matches"),
        (".", "there is no such file, and no folder with data files in it"),
    ],
)
def test_a_file_a_folder_or_a_glob_of_nothing_is_refused(refusing, folder, source, reason):
    where = folder if source == "." else f"{folder}/{source}"
    assert refusing(source) == refused(f"{where}: {reason}.")


def test_files_of_two_kinds_are_refused_naming_one_of_each(refusing, inputs, folder):
    pq.write_table(catalog(1), folder / "a.parquet")
    (folder / "b.jsonl").write_bytes((inputs / "goods.jsonl").read_bytes())
    assert refusing(".") == refused(
        f"{folder}/b.jsonl: it is jsonl, but {folder}/a.parquet is parquet; a job takes files of one kind."
    )


def test_files_whose_columns_have_two_types_are_refused_naming_the_column_and_both_files(refusing, folder):
    pq.write_table(pa.table({"name": ["a"], "n": [1]}), folder / "a.parquet")
    pq.write_table(pa.table({"name": ["a"], "n": ["one"]}), folder / "b.parquet")
    assert refusing(".") == refused(
        f"{folder}/b.parquet: column 'n' is string here but int64 in {folder}/a.parquet; give it one type in all files."
    )


def test_two_columns_of_one_name_are_refused(refusing, folder):
    columns = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.table(columns, names=["name", "name"]), folder / "a.parquet")
    assert refusing("a.parquet") == refused(f"{folder}/a.parquet: it has two columns named 'name'; rename one.")


# ---- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (["a", "b", "a", "c", "a"], "column 'id' must be unique, but 'a' stands in row 0, row 2, row 4"),
        (["a", None, "c", None], "column 'id' is null in row 1, row 3; every row needs an id"),
        ([7, 8, 7], "column 'id' must be unique, but '7' stands in row 0, row 2"),
        ([1.5, 2.5], "column 'id' is double; ids are whole numbers or text"),
    ],
)
def test_ids_that_are_null_twice_there_or_of_no_use_are_refused_naming_id_and_row(refusing, folder, ids, reason):
    pq.write_table(pa.table({"id": ids, "name": ["x"] * len(ids)}), folder / "a.parquet")
    assert refusing("a.parquet", "--id", "id") == refused(f"{folder}/a.parquet: {reason}.")


def test_an_id_column_that_is_not_there_is_refused_naming_those_that_are(refusing, folder):
    pq.write_table(pa.table({"idd": [1], "name": ["x"]}), folder / "a.parquet")
    assert refusing("a.parquet", "--id", "id") == refused(
        f"{folder}/a.parquet: there is no column 'id' for --id; it has idd, name."
    )


def test_an_id_that_stands_in_two_files_is_refused_with_the_rows_numbered_through_both(refusing, folder):
    for number, ids in enumerate([["a", "b"], ["c", "b"]]):
        pq.write_table(pa.table({"id": ids, "name": ids}), folder / f"{number}.parquet")
    assert refusing(".", "--id", "id") == refused(
        f"{folder}: column 'id' must be unique, "
        f"but 'b' stands in row 1 of {folder}/0.parquet, row 1 of {folder}/1.parquet."
    )


# ---- JSONL --------------------------------------------------------------------------------------


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_do_no_harm(shared, folder):
    text = lines(a_line(f"id-{n}", "Sell") for n in range(3)).replace("\n", "\r\n")
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\n   \n")
    job = shared.run(folder / "a.jsonl", "--quiet").job
    assert shared.results(job)["custom_id"].to_pylist() == ["id-0", "id-1", "id-2"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"custom_id": "id-36", "method', "it is not JSON: unexpected end of data, at its character 31"),
        ("[1]", "it is not a JSON object; each line is one request"),
        (json.dumps({"method": "POST", "url": "/v1/chat/completions", "body": {}}), "`custom_id` is missing"),
        (a_line("", "Sell"), "`custom_id` must be a text that is not empty, not ''"),
        (a_line(None, "Sell"), "`custom_id` must be a text that is not empty, not None"),
        ({**a_line("x", "Sell"), "method": "GET"}, "`method` must be POST, not 'GET'"),
        (
            {**a_line("x", "Sell"), "url": "/v1/embeddings"},
            "`url` must be /v1/chat/completions, as the others, not '/v1/embeddings'",
        ),
        (a_line("x", "Sell", model="gpt-4o"), "`model` is 'gpt-4o', but this job runs 'fake'"),
        (
            a_line("x", [{"type": "image_url", "image_url": {"url": "x"}}]),
            "messages[0].content[0] is of type 'image_url'; only text parts are taken",
        ),
        (a_line("x", "Sell", functions=[]), "the body field functions (use tools) cannot be used here; remove it"),
        (a_line("x", "Sell", temperature=9), "temperature must be at least 0 and at most 2, not 9"),
        (a_line("x", "Sell", stream=True), "`stream` can only be false here (a batch answers in its output file)"),
    ],
)
def test_a_broken_line_is_refused_naming_it_and_what_is_wrong(refusing, folder, line, reason):
    good = [json.dumps(a_line(f"id-{n}", "Sell")) for n in range(40)]
    good[36] = line if isinstance(line, str) else json.dumps(line)
    (folder / "a.jsonl").write_text("\n".join(good))
    assert refusing("a.jsonl", prompt=("--quiet",)) == refused(f"{folder}/a.jsonl: line 37: {reason}.")


def test_all_broken_lines_are_named_at_once(refusing, folder):
    (folder / "a.jsonl").write_text('{"custom_id"\n' + lines([a_line("a", "Sell")]) + "x\n")
    assert refusing("a.jsonl", prompt=("--quiet",)) == refused(
        f"{folder}/a.jsonl: line 1: it is not JSON: unexpected end of data, at its character 13; "
        "line 3: it is not JSON: unexpected character, expected a JSON value, at its character 1."
    )


def test_an_id_that_stands_in_two_lines_is_refused_naming_it_and_the_lines(refusing, folder):
    (folder / "a.jsonl").write_text("\n" + lines(a_line(name, "Sell") for name in "abcbd"))
    assert refusing("a.jsonl", prompt=("--quiet",)) == refused(
        f"{folder}/a.jsonl: custom_id must be unique, but 'b' stands in line 3, line 5."
    )


def test_a_line_that_is_not_utf8_is_refused_naming_line_and_byte(refusing, folder):
    (folder / "a.jsonl").write_bytes(lines([a_line("a", "Sell"), a_line("b", "Söll")]).encode("latin-1"))
    place = lines([a_line("b", "Söll")]).encode("latin-1").index(b"\xf6")
    assert refusing("a.jsonl", prompt=("--quiet",)) == refused(
        f"{folder}/a.jsonl: line 2: byte {place} is not valid UTF-8."
    )


@pytest.mark.parametrize("option", ["--prompt", "--system", "--id", "--vary", "--keep"])
def test_what_the_lines_bring_themselves_is_refused_as_an_option(refusing, inputs, option):
    value = "lang=de" if option == "--vary" else "x"
    assert refusing(inputs / "goods.jsonl", option, value, prompt=("--quiet",)) == refused(
        f"{option}: the lines of a JSONL input bring their own; leave it out."
    )


# ---- single rows --------------------------------------------------------------------------------


def test_rows_that_cannot_run_are_error_rows_and_their_neighbours_go_on(shared, folder):
    """Too long for the model, empty, a template that raises, not UTF-8."""
    texts = [f"fine {n}".encode() for n in range(40)]
    texts[3] = b"word " * 5000
    texts[10] = b"  "
    texts[37] = b"bad \xff\xfe bytes"
    numbers = [1] * 40
    numbers[21] = 0
    table = pa.table({"id": [f"r{n}" for n in range(40)], "text": _strings(texts), "n": numbers})
    pq.write_table(table, folder / "a.parquet")
    job = shared.run(
        folder / "a.parquet",
        *("--prompt", "{{ text }}{% if n == 0 %}{{ 1 // n }}{% endif %}", "--id", "id", "--keep", "n", "--quiet"),
        code=Exit.SOME_ERRORS,
    ).job
    rows = (
        shared.results(job)
        .select(["custom_id", "n", "outcome", "error_code", "error_message", "amount_pico"])
        .to_pylist()
    )
    assert [row["custom_id"] for row in rows if row["outcome"] == "ok"] == [
        f"r{n}" for n in range(40) if n not in {3, 10, 21, 37}
    ]
    messages = {
        3: ("context_length_exceeded", TOO_LONG),
        10: ("empty_prompt", "the prompt of this row is empty"),
        21: ("template_error", "ZeroDivisionError: integer division or modulo by zero"),
        37: ("invalid_utf8", "column text is not valid UTF-8 in this row"),
    }
    assert {n: (rows[n]["error_code"], rows[n]["error_message"]) for n in messages} == messages
    assert [rows[n]["amount_pico"] for n in messages] == [0, 0, 0, 0]


def _strings(texts):
    """A string column of these bytes, valid or not."""
    return pa.Array.from_buffers(pa.string(), len(texts), pa.array(texts, pa.binary()).buffers())


def test_a_kept_column_that_is_not_utf8_makes_its_row_an_error_that_names_it(shared, folder):
    """No reader could open the result otherwise."""
    table = pa.table({"name": ["a", "b"], "raw": _strings([b"fine", b"\xff\xfe"])})
    pq.write_table(table, folder / "a.parquet")
    job = shared.run(folder / "a.parquet", *PROMPT, code=Exit.SOME_ERRORS).job
    assert shared.results(job).select(["name", "raw", "outcome", "error_code", "error_message"]).to_pylist() == [
        {"name": "a", "raw": "fine", "outcome": "ok", "error_code": None, "error_message": None},
        {
            "name": "b",
            "raw": None,
            "outcome": "error",
            "error_code": "invalid_utf8",
            "error_message": "column raw is not valid UTF-8 in this row",
        },
    ]


def test_an_id_that_is_not_utf8_is_refused_naming_the_row(refusing, folder):
    pq.write_table(pa.table({"id": _strings([b"a", b"b", b"\xff"]), "name": ["x"] * 3}), folder / "a.parquet")
    assert refusing("a.parquet", "--id", "id") == refused(
        f"{folder}/a.parquet: column 'id' is not valid UTF-8 in row 2."
    )


def test_a_damaged_page_costs_rows_near_it_and_behind_it_in_its_row_group_only(shared, folder):
    table = pa.table({"name": [f"name {n} " + "x" * 50 for n in range(400)]})
    pages = {"compression": "none", "use_dictionary": False, "data_page_size": 512, "write_batch_size": 8}
    pq.write_table(table, folder / "a.parquet", row_group_size=200, **pages)
    damaged = bytearray((folder / "a.parquet").read_bytes())
    place = damaged.index(b"name 150 ")
    damaged[place - 4 : place] = b"\xff\xff\xff\x7f"  # the length of that text
    (folder / "a.parquet").write_bytes(damaged)
    job = shared.run(folder / "a.parquet", *PROMPT, "--pause-on", "never", code=Exit.SOME_ERRORS).job
    rows = shared.results(job).select(["outcome", "error_code", "error_message"]).to_pylist()
    bad = [n for n, row in enumerate(rows) if row["outcome"] == "error"]
    assert (len(rows), 86 < bad[0] <= 150, bad) == (400, True, [*range(bad[0], 200)])
    assert {rows[n]["error_code"] for n in bad} == {"input_unreadable"}
    assert rows[199]["error_message"].startswith(f"{folder}/a.parquet, row group 0: ")


# ---- columns that change their face -------------------------------------------------------------


def test_a_column_that_is_null_for_long_and_text_later_keeps_its_type(shared, folder):
    nulls = 100_000
    table = pa.table({"name": pa.array([None] * nulls + ["late text"] * 3, pa.string()), "n": range(nulls + 3)})
    pq.write_table(table, folder / "a.parquet")
    job = shared.run(
        folder / "a.parquet",
        *(
            "--prompt",
            "{{ n }} {{ name }}",
            "--rows-per-task",
            20_000,
            "--max-tokens",
            1,
            "--pause-on",
            "never",
            "--quiet",
        ),
    ).job
    results = shared.results(job)
    assert (results.schema.field("name").type, results.num_rows) == (pa.string(), nulls + 3)
    assert results["name"].to_pylist()[-4:] == [None, "late text", "late text", "late text"]
    parts = {str(pq.read_schema(path)) for path in (shared.folder / "out" / job).glob("part-*.parquet")}
    assert len(parts) == 1


def test_a_column_without_a_type_in_one_file_takes_that_of_the_others(shared, folder):
    pq.write_table(pa.table({"name": ["a", "b"], "x": pa.nulls(2)}), folder / "a.parquet")
    pq.write_table(pa.table({"name": ["c"], "x": ["text"], "more": [1]}), folder / "b.parquet")
    job = shared.run(folder, *PROMPT).job
    results = shared.results(job)
    assert results.select(["name", "x", "more"]).to_pylist() == [
        {"name": "a", "x": None, "more": None},
        {"name": "b", "x": None, "more": None},
        {"name": "c", "x": "text", "more": 1},
    ]


# ---- schemas, models, outputs -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "it is not JSON: unexpected end of data: line 1 column 2 (char 1)"),
        ("[]", "it must be a JSON object"),
        ('{"type": "objekt"}', "at /type: "),
        ('{"type": "array", "uniqueItems": true}', "at the top: guided decoding cannot keep to uniqueItems"),
        ('{"$ref": "other.json"}', "at the top: $ref points outside the schema; put what it names under $defs"),
    ],
)
def test_a_schema_that_no_engine_takes_is_refused_before_the_first_row(refusing, inputs, folder, schema, reason):
    (folder / "s.json").write_text(schema)
    done = refusing(inputs / "goods.parquet", "--schema", folder / "s.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: The output schema cannot be used: {reason}")


def test_a_schema_that_only_the_engine_finds_out_about_leaves_no_job_behind(refusing, inputs, folder):
    (folder / "s.json").write_text('{"type": "object", "properties": {"a": {"type": "string", "pattern": "^a+$"}}}')
    done = refusing(inputs / "goods.parquet", "--schema", folder / "s.json")
    assert (done.code, done.err.startswith("Error: The output schema cannot be used: ")) == (2, True)


def test_a_schema_or_a_template_file_that_is_not_utf8_is_refused(refusing, inputs, folder):
    (folder / "s.json").write_bytes(b'{"title": "\xff"}')
    assert refusing(inputs / "goods.parquet", "--schema", "s.json") == refused(
        "s.json: it is not UTF-8 text (byte 11)."
    )


def test_an_unknown_model_is_refused_naming_the_known_ones(refusing, inputs):
    assert refusing(inputs / "goods.parquet", "--model", "smollm") == refused(
        "There is no model named smollm. Did you mean smollm2? Known: fake, minilm, smollm2."
    )


def test_a_shipped_model_that_is_not_prepared_is_refused_with_the_command_that_prepares_it(refusing, inputs):
    assert refusing(inputs / "goods.parquet", "--model", "minilm") == refused(
        "Model minilm is shipped, but its files are not there yet. Run: nightmill models prepare minilm."
    )


def test_the_folder_of_a_job_is_no_output_and_a_run_on_it_reads_its_rows(shared, refusing, inputs, folder):
    job = shared.run(inputs / "goods.parquet", *PROMPT, "--limit", 3, "--output", folder / "out").job
    results = folder / "out" / job
    assert refusing(inputs / "goods.parquet", "--output", results) == refused(
        f"The output folder {results} already holds the results of job {job}. Choose another --output."
    )
    again = shared.run(results, "--prompt", "Say it again: {{ output }}", "--output", folder / "out").job
    names = pq.read_schema(folder / "out" / again / "part-00000.parquet").names
    assert {"input_output", "input_custom_id", "input_outcome"} <= set(names)


def test_an_output_that_is_a_file_or_lies_below_one_is_refused(refusing, inputs, folder):
    (folder / "file").touch()
    assert refusing(inputs / "goods.parquet", "--output", folder / "file") == refused(
        f"The output folder {folder}/file already holds a file of that name. Choose another --output."
    )
    assert refusing(inputs / "goods.parquet", "--output", folder / "file/below") == refused(
        f"The output folder {folder}/file/below cannot be written: Not a directory."
    )


def test_an_output_that_cannot_be_written_is_refused(refusing, inputs):
    assert refusing(inputs / "goods.parquet", "--output", "/sys/out") == refused(
        "The output folder /sys/out cannot be written: Operation not permitted."
    )


def test_two_jobs_may_share_an_output_folder_and_other_files_in_it_are_left_alone(shared, inputs, folder):
    out = folder / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "_SUCCESS").touch()
    made = [shared.run(inputs / "goods.parquet", *PROMPT, "--limit", 2, "--output", out).job for _ in range(2)]
    assert sorted(path.name for path in out.iterdir()) == sorted(["_SUCCESS", "notes.txt", *made])
