"""The schema of a submission: the same fields as the command line's, read strictly."""

import json
from pathlib import Path

import click
import pytest

from api.cli.submitting import submit
from infra.data.submission import SCHEMA, read_submission
from jobs.errors import BadInput
from jobs.request import NAMES, SAMPLING

pytestmark = pytest.mark.unit

DOCUMENT = json.loads(SCHEMA.read_text())
PAGE = (Path(__file__).resolve().parents[2] / "docs/ingress.md").read_text()
PLAIN = {"input": "s3://in/a.parquet", "model": "m", "output": "s3://out/"}
NOT_ASKED_FOR = {"tenant", "engine_arg", "idempotency_key", "as_json"}
"""Options that a message cannot have: its topic and its key say two of them."""
OTHER_WORDS = {"input_": "input", "id_column": "id", "tag": "tags", "pool_name": "pool"}


def read(**more):
    return read_submission(json.dumps({**PLAIN, **more}).encode())


def test_the_schema_has_the_fields_that_a_request_is_made_of():
    assert set(DOCUMENT["properties"]) == NAMES


def test_they_are_those_of_nightmill_submit():
    options = {OTHER_WORDS.get(option.name, option.name) for option in submit.params if option.name != "help"}
    assert options - NOT_ASKED_FOR == NAMES


def test_sampling_parameters_have_the_ranges_of_the_command_line():
    schema, ends = DOCUMENT["properties"], {"low": "minimum", "high": "maximum"}
    wrong = []
    for parameter in SAMPLING:
        found = {**DOCUMENT["$defs"].get(schema[parameter.name].get("$ref", "")[8:], {}), **schema[parameter.name]}
        low = found.get("exclusiveMinimum" if parameter.above_low else "minimum")
        ranges = (found["type"] == "integer", low, found.get("maximum"))
        wanted = (parameter.whole, parameter.low, parameter.high)
        if any(want is not None and have != want for have, want in zip(ranges, wanted, strict=True)):
            wrong.append((parameter.name, ranges, wanted, ends))
    assert wrong == []


def test_every_field_is_explained_in_the_schema_and_on_the_page():
    properties = DOCUMENT["properties"]
    assert [name for name, field in properties.items() if not field["description"].endswith(".")] == []
    assert [name for name, field in properties.items() if f"| `{name}` | {field['description']}" not in PAGE] == []


def test_options_that_take_a_value_say_what_the_schema_says():
    """So that the two do not drift; files, and values in another form, are worded apart."""
    apart = set("input output model template keep vary tags sample deadline pause_on stop limit".split())
    helps = {OTHER_WORDS.get(o.name, o.name): o.help for o in submit.params if isinstance(o, click.Option)}
    properties = DOCUMENT["properties"]
    assert [n for n in NAMES - apart if helps[n].rstrip(".") != properties[n]["description"].rstrip(".")] == []


def test_what_is_null_counts_as_missing_and_a_whole_number_may_have_a_point():
    found = read(limit=5.0, priority=None, keep=[], schema={"type": "object"}, pause_on="2.5%", seed=-3)
    assert found == {**PLAIN, "limit": 5, "keep": [], "schema": {"type": "object"}, "pause_on": "2.5%", "seed": -3}
    assert type(found["limit"]) is int


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b"", "it is not JSON"),
        (b"[]", "it is no JSON object"),
        (b'{"input": "\\ud800"}', "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b'{"input":' + b"[" * 5000, "it is not JSON"),
        (b'{"a": NaN}', "it is not JSON"),
    ],
)
def test_what_is_no_json_object_is_refused(value, sentence):
    with pytest.raises(BadInput, match=f"the message's value: {sentence}"):
        read_submission(value)


@pytest.mark.parametrize(
    "more",
    [
        {"input": ""},
        {"input": "s3://a\nb"},
        {"limit": 2**60},
        {"limit": True},
        {"limit": 1.5},
        {"tags": {"a": 1}},
        {"tags": {"a\n": "1"}},
        {"stop": []},
        {"stop": ""},
        {"vary": {"lang": []}},
        {"pause_on": "2000%"},
        {"deadline": 0},
        {"schema": "{}"},
        {"priority": "urgent"},
        {"order": "random"},
        {"temperature": 3},
        {"seed": 1e300},
    ],
)
def test_what_does_not_fit_is_refused_naming_the_field(more):
    with pytest.raises(BadInput, match=f"the submission: .*{next(iter(more))}"):
        read(**more)


def test_many_faults_are_told_briefly():
    with pytest.raises(BadInput) as caught:
        read(**{"x" * 5000: 1, **{f"y{n}": 1 for n in range(50)}})
    assert len(caught.value.sentence) < 600
    assert caught.value.sentence.endswith("; and 46 more.")
