"""Prompts: how values read, what a template may do, and what becomes of a row whose template fails."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import jinja2
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.data import render, sandbox
from infra.data.render import compile_prompt
from infra.data.template_file import read_template
from jobs.errors import BadTemplate
from jobs.ports.rows import RowFault

pytestmark = pytest.mark.unit


def prompts(template, columns, **options):
    arrays = {name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in columns.items()}
    size = len(next(iter(arrays.values())))
    return compile_prompt(text=template, columns=list(arrays), **options).render(arrays, size, {})


def shown(value, kind=None):
    """The same value through the fast path and through Jinja: they must agree."""
    column = pa.array([value, None], kind) if not isinstance(value, pa.Array) else value
    fast, _ = prompts("-{{ x }}", {"x": column})
    slow, _ = prompts("-{% if true %}{{ x }}{% endif %}", {"x": column})
    assert fast == slow
    return fast[0][1:]


UTC = dt.UTC


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), ""),
        (None, pa.int64(), ""),
        (None, pa.null(), ""),
        (True, None, "true"),
        (False, None, "false"),
        (42, pa.int8(), "42"),
        (2**63, pa.uint64(), "9223372036854775808"),
        (0.1, None, "0.1"),
        (8.0, None, "8.0"),
        (1e300, None, "1e+300"),
        (float("nan"), None, "nan"),
        (float("-inf"), None, "-inf"),
        ("text", None, "text"),
        ("text", pa.large_string(), "text"),
        ("text", pa.dictionary(pa.int8(), pa.string()), "text"),
        (Decimal("1.50"), None, "1.50"),
        (Decimal("1E+3"), pa.decimal128(10, 2), "1000.00"),
        (dt.date(2024, 5, 1), None, "2024-05-01"),
        (dt.time(12, 30), None, "12:30:00"),
        (dt.datetime(2024, 5, 1, 12, 30), None, "2024-05-01T12:30:00"),  # noqa: DTZ001 - a column without a zone
        (dt.datetime(2024, 5, 1, 12, 30, tzinfo=UTC), pa.timestamp("ns", "Europe/Berlin"), "2024-05-01T14:30:00+02:00"),
        (1714566600000000123, pa.timestamp("ns"), "2024-05-01T12:30:00"),
        (dt.timedelta(days=1, seconds=5), None, "1 day, 0:00:05"),
        (b"\xff\x00", None, "/wA="),
        ([1, None, 3], None, "[1,null,3]"),
        (["ä", "b"], pa.large_list(pa.string()), '["ä","b"]'),
        ([1.0, 2.0], pa.list_(pa.float32(), 2), "[1.0,2.0]"),
        ({"a": 1, "b": None}, None, '{"a":1,"b":null}'),
        ([dt.date(2024, 5, 1)], None, '["2024-05-01"]'),
        ([1714566600000000123], pa.list_(pa.timestamp("ns")), '["2024-05-01T12:30:00"]'),
        ({"d": Decimal("1.50"), "b": b"\xff"}, None, '{"d":"1.50","b":"/w=="}'),
        ([("k", 1)], pa.map_(pa.string(), pa.int64()), '{"k":1}'),
    ],
)
def test_every_type_has_one_rendering(value, kind, text):
    assert shown(value, kind) == text


def test_null_is_nothing_in_text_and_none_in_conditions():
    template = "{% if x is none %}unknown{% else %}{{ x }}{% endif %}"
    assert prompts(template, {"x": ["a", None]})[0] == ["a", "unknown"]


def test_values_keep_their_types_in_expressions():
    columns = {"n": [3], "d": [dt.date(2024, 5, 1)], "l": [["a", "b"]], "s": [{"k": "v"}]}
    text = "{{ n + 1 }} {{ d.year }} {{ l | join('/') }} {{ s.k }} {{ '%.2f' | format(n) }} {{ '{:>4}'.format(n) }}"
    assert prompts(text, columns)[0] == ["4 2024 a/b v 3.00    3"]


def test_a_value_that_python_cannot_hold_is_that_rows_fault():
    far = pa.array([0, 10**18], pa.timestamp("s"))
    made, faults = prompts("{{ x }}", {"x": far})
    assert made == ["1970-01-01T00:00:00", None]
    assert faults[1].code == "template_error"
    assert faults[1].message.startswith("column x: ")


def test_text_that_is_not_utf8_is_that_rows_fault():
    bad = pa.array([b"fine", b"\xff"]).view(pa.string())
    for template in ("{{ x }}", "{{ x | upper }}"):
        made, faults = prompts(template, {"x": bad})
        assert made[0].lower() == "fine"
        assert list(faults) == [1]


def test_odd_names_are_reached_through_row():
    columns = {"odd name": ["a"], "row": ["b"], "items": ["c"], "class": ["d"]}
    text = "{{ row['odd name'] }}{{ row['row'] }}{{ row['items'] }}{{ row.class }}"
    assert prompts(text, columns)[0] == ["abcd"]


def test_row_as_a_whole_means_every_column():
    template = compile_prompt(text="{% for k, v in row.items() %}{{ k }}={{ v }};{% endfor %}", columns=["a", "b"])
    assert template.columns == ("a", "b")
    made, _ = template.render({"a": pa.array([1]), "b": pa.array([None])}, 1, {})
    assert made == ["a=1;b=;"]


def test_columns_are_listed_as_mentioned():
    text = "{{ b }} {% if a %}{{ row['c'] }}{% endif %} {{ b }} {% for x in d %}{{ x }}{% endfor %}"
    assert compile_prompt(text=text, columns=list("abcde")).columns == ("b", "a", "c", "d")


def test_chat_prompts_are_messages():
    template = compile_prompt(messages=[("system", "Be {{ how }}."), ("user", "Hi")], columns=["how"])
    made, faults = template.render({"how": pa.array(["brief", "kind"])}, 2, {})
    assert made == [(("system", "Be brief."), ("user", "Hi")), (("system", "Be kind."), ("user", "Hi"))]
    assert faults == {}


def test_percent_signs_are_text():
    assert prompts("100% of {{ x }} %s", {"x": ["%d"]})[0] == ["100% of %d %s"]


def test_empty_prompts_are_faults():
    made, faults = prompts("{{ x }}", {"x": ["a", "", None, " \n"]})
    assert made == ["a", None, None, None]
    assert {index: fault.code for index, fault in faults.items()} == dict.fromkeys([1, 2, 3], "empty_prompt")


def test_a_system_text_alone_does_not_fill_a_prompt():
    template = compile_prompt(messages=[("system", "Be kind."), ("user", "{{ x }}")], columns=["x"])
    assert list(template.render({"x": pa.array([""])}, 1, {})[1]) == [0]


def test_a_row_whose_template_raises_is_that_rows_fault():
    made, faults = prompts("{{ 10 // x }}", {"x": [5, 0, 2]})
    assert made == ["2", None, "5"]
    assert faults[1].code == "template_error"
    assert "ZeroDivisionError" in faults[1].message


@pytest.mark.parametrize("text", ["{{ x.nothing }}", "{{ x[9] }}", "{{ s['none'] }}"])
def test_undefined_is_an_error_never_an_empty_text(text):
    assert prompts(text, {"x": ["abc"], "s": [{"a": 1}]})[1][0].code == "template_error"


def test_rows_that_are_faults_already_are_not_rendered():
    template = compile_prompt(text="{{ 1 // x }}", columns=["x"])
    made, faults = template.render({"x": pa.array([0, 1])}, 2, {0: RowFault("input_unreadable", "broken")})
    assert made == [None, "1"]
    assert faults == {0: RowFault("input_unreadable", "broken")}


# ---- refused before anything starts -------------------------------------------------------------


def refusal(**options):
    with pytest.raises(BadTemplate) as caught:
        compile_prompt(columns=["Name", "Year"], **options)
    return str(caught.value)


def test_an_unknown_column_names_the_nearest():
    message = refusal(text="line one\n{{ Nam }}")
    assert "the user text, line 2: there is no column 'Nam'; did you mean 'Name'?" in message
    assert "The columns are: Name, Year" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ row['year'] }}", "there is no column 'year'; did you mean 'Year'?"),
        ("{{ row.zzz }}", "there is no column 'zzz'. The columns are"),
        ("{% for x in y %}{% endfor %}", "there is no column 'y'"),
        ("{% for x in", "line 1"),
        ("{{ Name | nofilter }}", "nofilter"),
        ("{% include 'a' %}", "may not include"),
        ("", "the user text is empty"),
        ("{{ lipsum() }}", "there is no column 'lipsum'"),
    ],
)
def test_bad_templates_are_refused(text, expected):
    assert expected in refusal(text=text)


def test_roles_are_checked():
    assert "no role 'tool'" in refusal(messages=[("tool", "x")])
    assert "no message has the role user" in refusal(messages=[("system", "x")])


def test_names_that_a_template_sets_itself_are_no_columns():
    text = "{% set y = Name %}{% for c in y %}{{ c }}{{ loop.index }}{% endfor %}{{ range(2) | list | length }}"
    assert compile_prompt(text=text, columns=["Name"]).columns == ("Name",)


# ---- a template cannot hang or fill the memory --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{{ x }}", "template_error"),
        ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}", "template_error"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "template_error"),
        (
            "{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
            "prompt_too_large",
        ),
        (
            "{% set n = namespace(t='ab') %}{% for i in range(60) %}{% set n.t = n.t + n.t %}{% endfor %}{{ n.t }}",
            "prompt_too_large",
        ),
        ("{{ x * 10 ** 9 }}", "prompt_too_large"),
        ("{{ 9 ** 99999 }}", "template_error"),
        ("{{ x.ljust(10 ** 9) }}", "template_error"),
        ("{{ x | center(10 ** 9) }}", "template_error"),
        ("{{ '%999999999d' % 1 }}", "template_error"),
        ("{{ '%999999999d' | format(1) }}", "template_error"),
        ("{{ '{:>999999999}'.format(1) }}", "template_error"),
        ("{{ x.__class__.__mro__ }}", "template_error"),
        ("{{ l.append(1) }}", "template_error"),
        ("{% for i in range(9999) %}{{ big }}{% endfor %}", "prompt_too_large"),
    ],
)
def test_a_template_is_bounded(text, code, monkeypatch):
    monkeypatch.setattr(render, "MAX_CHARS", 1 << 20)
    monkeypatch.setattr(sandbox, "MAX_CHARS", 1 << 20)
    _, faults = prompts(text, {"x": ["x"], "l": [[1]], "big": ["b" * 1000]})
    assert faults[0].code == code


def test_a_prompt_past_the_limit_is_too_large(monkeypatch):
    monkeypatch.setattr(render, "MAX_CHARS", 10)
    made, faults = prompts("{{ x }}", {"x": ["short", "much too long"]})
    assert made == ["short", None]
    assert faults[1].code == "prompt_too_large"


TEXTS = st.text(alphabet="a%{}s \n", max_size=8)


@given(lead=TEXTS, values=st.lists(st.one_of(st.none(), st.text(max_size=5)), min_size=1, max_size=4), tail=TEXTS)
def test_the_fast_path_renders_what_jinja_renders(lead, values, tail):
    quiet = (lead.replace("{", "("), tail.replace("{", "("))
    source = quiet[0] + "{{ x }}" + quiet[1] + "."
    plain = jinja2.Template(source, undefined=jinja2.StrictUndefined)
    expected = [plain.render(x="" if value is None else value) for value in values]
    assert prompts(source, {"x": pa.array(values, pa.string())})[0] == expected


# ---- template files -----------------------------------------------------------------------------


def test_a_template_file_has_messages_or_a_text():
    assert read_template("messages:\n- {role: system, content: Be kind.}\n- role: user\n  content: Hi {{ x }}\n") == (
        (("system", "Be kind."), ("user", "Hi {{ x }}")),
        None,
    )
    assert read_template("text: 'search: {{ x }}'") == ((), "search: {{ x }}")


def test_text_parts_in_a_template_file_are_joined():
    text = "messages: [{role: user, content: [{type: text, text: a}, {type: text, text: b}]}]"
    assert read_template(text) == ((("user", "a\nb"),), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("messages: [", "not YAML"),
        ("just text", "must be a mapping"),
        ("prompt: x", "unknown entry 'prompt'"),
        ("{text: a, messages: []}", "either"),
        ("messages: []", "must be a list"),
        ("messages: [{role: user}]", "message 1 must have exactly"),
        ("messages: [{role: user, content: 5}]", "must be text, not 5"),
        ("messages: [{role: user, content: [{type: image_url, image_url: x}]}]", "content part of type 'image_url'"),
        ("text: 5", "text must be text, not 5"),
    ],
)
def test_bad_template_files_are_refused(text, expected):
    with pytest.raises(BadTemplate, match=expected.replace("(", r"\(")):
        read_template(text)
