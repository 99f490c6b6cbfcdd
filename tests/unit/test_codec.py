"""Values as JSON and back."""

from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.sql import codec
from jobs import ledger
from jobs.errors import StorageCorrupt
from jobs.ledger import Entry
from jobs.model import InputFile, JobSpec, Model, Part, Price, Source, Task, Usage, VoidReason
from jobs.ranges import Range, Ranges
from tests.factories import USAGE, a_job, a_part, a_task

pytestmark = pytest.mark.unit

texts = st.text(max_size=10)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def again(value):
    return codec.decode(type(value), codec.encode(value))


@given(
    st.builds(
        JobSpec,
        model=texts,
        model_kind=st.sampled_from(["chat", "completion", "embedding"]),
        model_checksum=texts,
        engine_args=st.dictionaries(texts, json_values, max_size=3),
        vary=st.dictionaries(texts, st.lists(texts, max_size=3).map(tuple), max_size=3),
        messages=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
        text=st.none() | texts,
        pause_on=st.none() | st.floats(0, 1),
        limit=st.none() | st.integers(0, 2**62),
        order=texts,
    )
)
def test_any_spec_comes_back_equal(spec):
    assert again(spec) == spec


@pytest.mark.parametrize(
    "value",
    [
        a_task(a_job(), suspect=True, void_reason=VoidReason.DEAD),
        a_task(a_job(), source=Source()),
        a_part(a_task(a_job())),
        a_job().price,
        Usage(rows=1, outcomes={"ok": 1}),
        Usage(outcomes=MappingProxyType({"ok": 2**62})),
        InputFile(uri="ü", size=1, stamp="s", rows=2, first_row=0, row_groups=(1, 1), row_group_bytes=(9, 9)),
        Model(name="m", kind="chat", path="/p", engine="fake", engine_args={"a": [1, 2.5, None]}),
        ledger.charge(a_job(), "t", USAGE, 0.1 + 0.2)[3],
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_values_of_the_domain_come_back_equal(value):
    assert again(value) == value


def test_the_same_value_is_always_the_same_text():
    assert codec.encode(Usage(outcomes={"b": 1, "a": 2})) == codec.encode(Usage(outcomes={"a": 2, "b": 1}))


def test_ranges_are_pairs():
    assert codec.encode((Range(1, 2), Range(5, 9))) == "[[1,2],[5,9]]"
    assert codec.decode(Ranges, "[[1,2],[5,9]]") == (Range(1, 2), Range(5, 9))


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Thing:
    name: str
    size: float = 1.0
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    pair: tuple[int, str] = (1, "x")
    more: dict[str, int] = field(default_factory=dict)
    anything: Any = None


def test_an_integer_is_good_for_a_float_and_defaults_fill_in():
    thing = codec.decode(Thing, '{"name":"n","size":2}')
    assert thing == Thing(name="n", size=2.0)
    assert type(thing.size) is float


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name":"n","nmae":1}', "unknown fields nmae"),
        ("{}", "missing fields name"),
        ('{"name":1}', "1 is not str"),
        ('{"name":"n","size":true}', "True is not float"),
        ('{"name":"n","size":"2"}', "'2' is not float"),
        ('{"name":"n","colour":"blue"}', "'blue' is not a Colour"),
        ('{"name":"n","kind":"c"}', "'c' is not one of"),
        ('{"name":"n","pair":[1]}', "is not a list of 2"),
        ('{"name":"n","pair":{}}', "is not a list"),
        ('{"name":"n","more":[]}', "is not an object"),
        ("[]", "is not an object"),
        ('{"name":', "unexpected end"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(text, reason):
    with pytest.raises(StorageCorrupt) as caught:
        codec.decode(Thing, text)
    assert reason in caught.value.sentence
    assert "A stored Thing" in caught.value.sentence


def test_what_json_cannot_hold_is_our_bug():
    with pytest.raises(TypeError, match="object"):
        codec.encode({"a": object()})


def test_every_stored_type_has_a_decoder():
    for kind in (JobSpec, Price, InputFile, Usage, Part, Task, Entry):
        assert callable(codec._decoder(kind))
