"""Inputs, ids, prompts and the options that shape an output: what a run makes of each."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from tests.acceptance.goods import ROWS, SCHEMA, a_line, catalog, lines

pytestmark = pytest.mark.acceptance

PROMPT = ("--prompt", "Sell {{ name }}", "--quiet")


def ids_of(table):
    return table.select(["row", "input_row", "custom_id"]).to_pylist()


# ---- Parquet ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source", ["split", "split/", "split/*.parquet", "split/goods-[012].parquet", "**/goods-?.parquet"]
)
def test_a_folder_and_a_glob_of_files_are_read_as_one_table_in_the_order_of_their_names(shared, inputs, source):
    said = shared("quote", source, "--model", "fake", *PROMPT[:2], "--id", "sku", "--json", cwd=inputs).json
    assert (said["rows"], said["sampled"], said["first_prompt"]) == (ROWS, ROWS, [["user", "Sell Lamp 0"]])


def test_the_rows_of_a_folder_are_numbered_through_its_files(shared, inputs):
    job = shared.run(inputs / "split", *PROMPT, "--id", "sku", "--output", "by folder").job
    table = shared.results(job)
    assert ids_of(table) == [{"row": n, "input_row": n, "custom_id": f"sku-{n:04d}"} for n in range(ROWS)]
    assert table["name"].to_pylist() == catalog()["name"].to_pylist()


def test_without_an_id_column_the_row_number_is_the_id(shared, inputs):
    job = shared.run(inputs / "goods.parquet", *PROMPT, "--limit", 3).job
    assert ids_of(shared.results(job)) == [{"row": n, "input_row": n, "custom_id": str(n)} for n in range(3)]


def test_paths_may_be_relative_and_have_spaces_and_any_letters_and_a_job_goes_on_from_elsewhere(
    shared, inputs, tmp_path
):
    folder = tmp_path / "Läden & Söhne"
    folder.mkdir()
    pq.write_table(catalog(4), folder / "güter 100%.parquet")
    options = (*PROMPT, "--output", "die Antworten", "--sample", 2)
    job = shared.run("güter 100%.parquet", *options, cwd=folder, code=Exit.PAUSED).job
    shared("resume", job, "--quiet", cwd=tmp_path)
    assert pq.read_table(folder / "die Antworten" / job).num_rows == 4
    assert shared("results", job, cwd=tmp_path).out.splitlines()[-1] == f"Parquet: {folder}/die Antworten/{job}"


def test_a_file_uri_is_a_path_too(shared, inputs):
    job = shared.run(
        (inputs / "goods.parquet").as_uri(), *PROMPT, "--limit", 2, "--output", (shared.folder / "by uri").as_uri()
    ).job
    assert pq.read_table(shared.folder / "by uri" / job).num_rows == 2


# ---- JSONL --------------------------------------------------------------------------------------


def test_jsonl_lines_bring_their_own_ids_prompts_and_sampling(shared, tmp_path):
    (tmp_path / "in.jsonl").write_text(
        lines([a_line("b", "Sell"), a_line("a", "Sell", max_tokens=2), a_line("c", "Buy", temperature=0.5, seed=7)])
    )
    job = shared.run(tmp_path / "in.jsonl", "--quiet", "--max-tokens", 90).job
    table = shared.results(job)
    rows = table.select(["row", "custom_id", "outcome"]).to_pylist()
    assert rows == [
        {"row": 0, "custom_id": "b", "outcome": "ok"},
        {"row": 1, "custom_id": "a", "outcome": "truncated"},
        {"row": 2, "custom_id": "c", "outcome": "ok"},
    ]
    assert table["output_tokens"].to_pylist()[1] == 2
    assert "sku" not in table.column_names


def test_a_jsonl_line_may_ask_for_an_object(shared, tmp_path):
    form = {"type": "json_schema", "json_schema": {"name": "lamp", "schema": SCHEMA}}
    (tmp_path / "in.jsonl").write_text(lines([a_line("a", "Sell", response_format=form), a_line("b", "Sell")]))
    job = shared.run(tmp_path / "in.jsonl", "--quiet").job
    first, second = shared.results(job)["output"].to_pylist()
    assert sorted(json.loads(first)) == ["stars", "tags", "title"]
    assert second.startswith("fake ")


# ---- vary ---------------------------------------------------------------------------------------


def test_vary_repeats_every_row_once_a_value_with_the_copies_side_by_side(shared, inputs):
    job = shared.run(
        inputs / "goods.parquet",
        *("--vary", "lang=de,fr", "--vary", "tone=dry,warm", "--id", "sku", "--limit", 8, "--quiet"),
        *("--prompt", "Sell {{ name }} in {{ lang }}, {{ tone }}", "--keep", "sku,lang,tone"),
    ).job
    table = shared.results(job).select(["row", "input_row", "custom_id", "sku", "lang", "tone"])
    values = [("de", "dry"), ("de", "warm"), ("fr", "dry"), ("fr", "warm")]
    assert table.to_pylist() == [
        {
            "row": row,
            "input_row": row // 4,
            "custom_id": f"sku-{row // 4:04d}:{values[row % 4][0]}:{values[row % 4][1]}",
            "sku": f"sku-{row // 4:04d}",
            "lang": values[row % 4][0],
            "tone": values[row % 4][1],
        }
        for row in range(8)
    ]
    assert len(set(shared.results(job)["request_hash"].to_pylist())) == 8


@pytest.mark.parametrize(
    ("vary", "sentence"),
    [
        (["name=a,b"], "--vary name: the input has a column of this name; choose another."),
        (["lang"], "Invalid value for '--vary': 'lang' is not COLUMN=VALUE,VALUE See: nightmill run --help"),
        (["lang=de,de"], "--vary lang: the value 'de' is given twice."),
        (["lang="], "--vary lang: a value is empty; write it as --vary lang=de,fr."),
        (["lang=de,,fr"], "--vary lang: a value is empty; write it as --vary lang=de,fr."),
        (
            ["lang=y,x:y"],
            "--vary: with colons in the values, ids that end in ':y' may be made in two ways; use other values.",
        ),
        (["lang=de", "lang=fr"], "Invalid value for '--vary': 'lang' is given twice See: nightmill run --help"),
    ],
)
def test_vary_is_refused_where_it_makes_no_sense(shared, inputs, vary, sentence):
    options = [part for value in vary for part in ("--vary", value)]
    assert shared.run(inputs / "goods.parquet", *PROMPT, *options, code=Exit.REFUSED).err == f"Error: {sentence}\n"


# ---- prompts ------------------------------------------------------------------------------------


def test_a_template_file_may_have_messages_with_logic_over_the_columns(shared, inputs):
    source, template = inputs / "goods.parquet", inputs / "prompt.yaml"
    said = shared("quote", source, "--model", "fake", "--template", template, "--json").json
    assert said["first_prompt"] == [["system", "You sell lamps."], ["user", "Describe Lamp 0."]]
    job = shared.run(source, "--template", template, "--limit", 2, "--quiet").job
    assert shared.results(job)["outcome"].to_pylist() == ["ok", "ok"]


def test_every_type_of_column_has_a_defined_rendering(shared, inputs, tmp_path):
    table = pa.table(
        {"i": [1], "n": pa.array([None], pa.string()), "l": [["a", "b"]], "s": [{"x": 1}], "b": [b"\x00\xff"]}
    )
    goods = catalog(2).slice(1)
    pq.write_table(
        pa.table({**{c: goods[c] for c in ("price", "made")}, **{c: table[c] for c in table.column_names}}),
        tmp_path / "t.parquet",
    )
    prompt = "{{ i }}|{{ n }}|{{ l }}|{{ s }}|{{ b }}|{{ price }}|{{ made }}"
    said = shared("quote", tmp_path / "t.parquet", "--model", "fake", "--prompt", prompt, "--json").json
    assert said["first_prompt"] == [["user", '1||["a","b"]|{"x":1}|AP8=|0.25|2026-01-02T00:00:00+00:00']]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--prompt", "Sell {{ nmae }}"],
            (
                "the user text, line 1: there is no column 'nmae'; did you mean 'name'? "
                "The columns are: sku, name, price, tags, made, output, Row"
            ),
        ),
        (
            ["--prompt", "Sell {{ name "],
            "the user text, line 1: unexpected end of template, expected 'end of print statement'",
        ),
        (["--prompt", ""], "the user text is empty"),
        ([], "give --prompt or --template; columns are mentioned as {{ column }}"),
        (["--prompt", "x", "--template", "PROMPT"], "give --template, or --prompt and --system, not both"),
    ],
)
def test_a_prompt_that_cannot_work_is_refused_before_anything_starts(shared, inputs, options, sentence):
    given = [str(inputs / "prompt.yaml") if option == "PROMPT" else option for option in options]
    done = shared.run(inputs / "goods.parquet", *given, code=Exit.REFUSED)
    assert (done.out, done.err) == ("", f"Error: The prompt template cannot be used: {sentence}.\n")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "messages: [{role: user, content: [{type: image_url, image_url: x}]}]",
            "message 1 has a content part of type 'image_url'; only text is taken",
        ),
        ("messages: [{role: user}]", "message 1 must have exactly `role` and `content`"),
        ("just text", "the file must be a mapping with `messages` or `text`"),
        (
            "a: [",
            (
                "the file is not YAML: while parsing a flow node expected the node content, but found '<stream end>' "
                'in "<unicode string>", line 1, column 5: a: [ ^'
            ),
        ),
    ],
)
def test_a_template_file_that_cannot_work_is_refused_naming_the_part(shared, inputs, tmp_path, content, sentence):
    (tmp_path / "t.yaml").write_text(content)
    done = shared.run(inputs / "goods.parquet", "--template", tmp_path / "t.yaml", code=Exit.REFUSED)
    assert done.err == f"Error: The prompt template cannot be used: {sentence}.\n"


# ---- output control -----------------------------------------------------------------------------


def test_a_schema_adds_typed_columns_that_are_null_where_the_output_does_not_parse(shared, inputs):
    job = shared.run(
        inputs / "goods.parquet",
        *("--prompt", "Sell {{ name }}", "--schema", inputs / "schema.json", "--keep", "", "--quiet"),
        *("--engine-arg", "error_on=FAULTY", "--engine-arg", "length_on=LONG", "--limit", 20),
        code=Exit.SOME_ERRORS,
    ).job
    table = shared.results(job)
    kinds = [(name, table.schema.field(name).type) for name in ("title", "stars", "tags")]
    assert kinds == [("title", pa.string()), ("stars", pa.int64()), ("tags", pa.list_(pa.string()))]
    rows = table.select(["outcome", "output", "title", "stars", "tags"]).to_pylist()
    assert [row["outcome"] for row in rows] == [
        "truncated" if n == 7 else "error" if n == 13 else "ok" for n in range(20)
    ]
    for row in rows:
        typed = {name: row[name] for name in ("title", "stars", "tags")}
        assert typed == (json.loads(row["output"]) if row["output"] else dict.fromkeys(typed))


def test_an_output_that_is_cut_off_has_null_typed_columns_and_says_that_it_is_truncated(shared, inputs):
    job = shared.run(
        inputs / "goods.parquet",
        *(
            "--prompt",
            "Sell {{ name }}",
            "--schema",
            inputs / "schema.json",
            "--limit",
            2,
            "--max-tokens",
            1,
            "--quiet",
        ),
    ).job
    columns = shared.results(job).select(["outcome", "output", "title", "stars"]).to_pydict()
    assert (columns["outcome"], columns["title"], columns["stars"]) == (["truncated"] * 2, [None] * 2, [None] * 2)
    assert all(columns["output"])


@pytest.mark.parametrize(
    ("keep", "columns"), [("sku,Row", ["sku", "input_Row_"]), (" name , sku ", ["sku", "name"]), ("", [])]
)
def test_keep_passes_through_the_named_columns_and_no_others(shared, inputs, keep, columns):
    job = shared.run(inputs / "goods.parquet", *PROMPT, "--keep", keep, "--limit", 1).job
    names = shared.results(job).column_names
    assert names[3 : names.index("output")] == columns


def test_keep_names_the_nearest_column(shared, inputs):
    done = shared.run(inputs / "goods.parquet", *PROMPT, "--keep", "skuu", code=Exit.REFUSED)
    assert done.err == "Error: --keep skuu: there is no such column; did you mean 'sku'?\n"


def test_in_the_order_of_the_input_the_files_are_ascending_even_where_the_plan_was_not(shared, tmp_path):
    """Rows that share a long prefix are brought together, unless reading in the input's order is asked for."""
    prefixes = ["".join(f"{word} " * 120) for word in ("red", "green", "blue")]
    pq.write_table(pa.table({"head": [prefixes[n % 3] for n in range(90)], "n": [*range(90)]}), tmp_path / "t.parquet")
    orders = {}
    for order in ("none", "input"):
        job = shared.run(
            tmp_path / "t.parquet", "--prompt", "{{ head }} {{ n }}", "--order", order, "--rows-per-task", 10, "--quiet"
        ).job
        orders[order] = pq.read_table(shared.status(job)["output"])["row"].to_pylist()
    assert orders["input"] == list(range(90))
    assert sorted(orders["none"]) == list(range(90))


def test_limit_takes_the_first_rows_and_rows_per_task_cuts_them_into_parts(shared, inputs):
    job = shared.run(inputs / "goods.parquet", *PROMPT, "--limit", 25, "--rows-per-task", 10).job
    assert shared.results(job)["row"].to_pylist() == list(range(25))
    assert shared.status(job)["tasks"]["done"] == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--limit", "0"], "Invalid value for '--limit': 0 is not in the range x>=1."),
        (["--rows-per-task", "0"], "Invalid value for '--rows-per-task': 0 is not in the range 1<=x<=65536."),
        (["--temperature", "9"], "Invalid value for '--temperature': 9.0 is not in the range 0<=x<=2."),
        (["--pause-on", "often"], "Invalid value for '--pause-on': 'often' is no share: write 20%, 0.2 or never"),
        (["--deadline", "soon"], "Invalid value for '--deadline': 'soon' is no duration: write 90s, 30m, 8h or 2d"),
        (["--tag", "web"], "Invalid value for '--tag': 'web' is not KEY=VALUE"),
        (["--template", "nowhere.yaml"], "Invalid value for '--template': File 'nowhere.yaml' does not exist."),
    ],
)
def test_an_option_with_a_wrong_value_is_named_with_what_it_takes(shared, inputs, options, said):
    done = shared.run(inputs / "goods.parquet", *PROMPT, *options, code=Exit.REFUSED)
    assert done.err == f"Error: {said} See: nightmill run --help\n"
