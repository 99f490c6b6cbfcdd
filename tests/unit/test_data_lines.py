"""JSONL in OpenAI batch form: what is taken, and which line is named when it is not."""

from __future__ import annotations

import orjson
import pytest

from infra.data.index import InputIndex
from infra.data.read import RowReader
from jobs.errors import BadInput
from jobs.ranges import Range
from tests.support.data import Kit, request

pytestmark = pytest.mark.unit


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path)
    yield made
    made.close()


def line(custom_id="a", **changes):
    return orjson.dumps({**request(custom_id), **changes})


def lines(count):
    return [line(f"r{n}") for n in range(count)]


def refused(kit, data, model="fake"):
    path = kit.write("in.jsonl", data)
    with pytest.raises(BadInput) as caught:
        kit.resolve(path, model)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


def ids_of(kit, path):
    found = kit.resolve(path)
    reader = RowReader(kit.objects)
    rows = reader.rows(InputIndex(found.files), found.schema, (Range(0, found.rows),), ["custom_id"])
    reader.close()
    return rows.columns["custom_id"].to_pylist()


@pytest.mark.parametrize(
    ("before", "between", "after"),
    [
        (b"", b"\n", b"\n"),
        (b"", b"\n", b""),
        (b"\xef\xbb\xbf", b"\n", b"\n"),
        (b"", b"\r\n", b"\r\n"),
        (b"", b"\n", b"\n\n  \n\n"),
        (b"\n", b"\n\n", b"\r\n\r\n"),
        (b"\xef\xbb\xbf", b"\r\n", b"\n \t\n"),
    ],
    ids=["plain", "no last newline", "BOM", "CRLF", "blank last lines", "blank lines", "all of it"],
)
def test_every_row_is_found_whatever_the_line_ends_look_like(kit, before, between, after):
    path = kit.write("in.jsonl", before + between.join(lines(9)) + after)
    assert ids_of(kit, path) == [f"r{n}" for n in range(9)]


def test_stretches_cover_the_file(kit, monkeypatch):
    monkeypatch.setattr("infra.data.lines.STRETCH_LINES", 4)
    path = kit.write("in.jsonl", b"\xef\xbb\xbf" + b"\n".join(lines(11)) + b"\n\n")
    (file,) = kit.resolve(path).files
    assert file.row_groups == (4, 4, 3)
    assert sum(file.row_group_bytes) == file.size
    assert ids_of(kit, path) == [f"r{n}" for n in range(11)]


def test_a_broken_line_37(kit):
    rows = lines(50)
    rows[36] = b'{"custom_id": "r36", '
    assert refused(kit, b"\n".join(rows)).startswith("line 37: it is not JSON:")


def test_blank_lines_count_as_lines(kit):
    assert refused(kit, b"\n\n" + line() + b"\n\nnope").startswith("line 5: it is not JSON")


def test_many_broken_lines_are_named_up_to_a_limit(kit):
    message = refused(kit, b"\n".join([b"x"] * 50))
    assert message.count("it is not JSON") == 20
    assert "line 20: " in message
    assert message.endswith("(there may be more).")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'"text"', "it is not a JSON object; each line is one request"),
        (b"\xff\xfe{}", "byte 0 is not valid UTF-8"),
        (b"{}", "`custom_id`, `method`, `url`, `body` is missing"),
        (line(extra=1), "unknown field extra"),
        (line(custom_id=5), "`custom_id` must be a text that is not empty, not 5"),
        (line(custom_id=""), "`custom_id` must be a text that is not empty, not ''"),
        (line(method="GET"), "`method` must be POST, not 'GET'"),
        (line(url="/v1/embeddings"), "`url` must be /v1/chat/completions, as the others, not '/v1/embeddings'"),
        (line(url="/v1/images"), "`url` must be /v1/chat/completions, as the others, not '/v1/images'"),
        (line(url=["/v1/images"]), "`url` must be /v1/chat/completions, as the others, not ['/v1/images']"),
        (line(body=[]), "`body` must be an object"),
        (line(body={"messages": [{"role": "user", "content": "x"}]}), "`model` is missing"),
        (line(body={"model": "gpt"}), "`model` is 'gpt', but this job runs 'fake'"),
        (line(body={"model": "fake"}), "`messages` must be a list with at least one message"),
        (line(body={"model": "fake", "messages": []}), "`messages` must be a list with at least one message"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(kit, data, expected):
    assert refused(kit, line("ok") + b"\n" + data).rstrip(".") == f"line 2: {expected}"


def body(**changes):
    return line(body={"model": "fake", "messages": [{"role": "user", "content": "x"}], **changes})


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            body(audio={}, tols=[]),
            "the body fields audio (answers are text), tols (did you mean tools?) cannot be used",
        ),
        (body(stream=True), "`stream` can only be false here (a batch answers in its output file)"),
        (body(n=129), "n must be at least 1 and at most 128, not 129"),
        (body(temperature="hot"), "temperature must be a number, not 'hot'"),
        (body(max_tokens=0), "max_tokens must be at least 1"),
        (body(max_tokens=1, max_completion_tokens=2), "give max_tokens or max_completion_tokens, not both"),
        (body(response_format={"type": "xml"}), "`response_format` must be of type"),
        (
            body(response_format={"type": "json_schema", "json_schema": {"schema": {"type": "strin"}}}),
            "the schema of `response_format` cannot be used: at /type",
        ),
        (body(messages=[{"role": "tool", "content": "x"}]), "messages[0].tool_call_id must be text"),
        (body(messages=[{"role": "function", "content": "x"}]), "messages[0] has the role 'function'"),
        (body(messages=[{"role": "user", "content": "x", "name": "n"}]), "messages[0] has name, which cannot"),
        (body(messages=[{"role": "user", "content": None}]), "messages[0].content must be text"),
        (body(messages=["x"]), "messages[0] must be an object"),
        (
            body(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]),
            "messages[0].content[1] is of type 'image_url'; only text parts are taken",
        ),
    ],
)
def test_what_is_wrong_with_a_body_is_said(kit, data, expected):
    assert refused(kit, data).startswith(f"line 1: {expected}")


def test_a_null_parameter_is_not_given(kit):
    kit.resolve(kit.write("in.jsonl", body(stop=None, stream=False, response_format={"type": "text"})))


def test_duplicate_custom_ids_name_both_lines(kit):
    data = b"\n".join([line("a"), line("b"), b"", line("a")])
    assert refused(kit, data) == "custom_id must be unique, but 'a' stands in line 1, line 4."


def test_duplicates_over_two_files_name_the_files(kit):
    kit.write("in/1.jsonl", line("a"))
    kit.write("in/2.jsonl", line("b") + b"\n" + line("a"))
    with pytest.raises(BadInput) as caught:
        kit.resolve(str(kit.root / "in"))
    assert "'a' stands in line 1 of" in str(caught.value)
    assert "line 2 of" in str(caught.value)


def test_a_line_that_never_ends(kit, monkeypatch):
    monkeypatch.setattr("infra.data.lines.MAX_LINE_BYTES", 1 << 20)
    data = line("a") + b"\n" + b"x" * (3 << 20) + b"\nnope\n"
    message = refused(kit, data)
    assert message.startswith("line 2: it is longer than 1 MiB; line 3: it is not JSON")


def test_no_rows(kit):
    path = kit.write("in.jsonl", b"\n\n")
    with pytest.raises(BadInput, match="it has no rows"):
        kit.resolve(path)
