"""jobs/errors.py: the sentences people read, the codes programs read, and the way between processes."""

import ast
import copy
import pickle
import re
import string
from functools import cache
from pathlib import Path

import pytest

import jobs.errors
from jobs.errors import Broken, Conflict, EngineDied, EngineHung, NightmillError, NotFound, Refused, Unavailable

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ALL = [e for e in vars(jobs.errors).values() if isinstance(e, type) and issubclass(e, NightmillError)]


def fields_of(template):
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def first_paragraph(doc):
    return " ".join(doc.split("\n\n", maxsplit=1)[0].split())


def test_the_docstring_is_the_sentence_with_the_data_filled_in():
    error = NotFound(kind="job", name="j-1", hint="Did you mean j-12?")
    assert str(error) == error.sentence == "There is no job named j-1. Did you mean j-12?"


def test_only_the_first_paragraph_is_the_sentence_and_it_is_one_line():
    class Long(Refused):
        """The first
        paragraph says {what}.

        The second {explains} it.
        """

    assert str(Long(what="all")) == "The first paragraph says all."


def test_missing_data_is_named_instead_of_failing_again():
    assert str(NotFound(kind="job")) == "There is no job named <name?>. <hint?>"


def test_braces_in_the_data_are_left_alone():
    assert "{reason}" in str(EngineDied(model="m", reason="got {reason} and {"))


def test_data_are_attributes():
    error = EngineHung(model="m", seconds=120)
    assert (error.model, error.seconds, error.data) == ("m", 120, {"model": "m", "seconds": 120})
    with pytest.raises(AttributeError, match="reason"):
        _ = error.reason


@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_an_error_survives_the_way_to_another_process(again):
    error = EngineHung(model="m", seconds=120)
    twin = again(error)
    assert (type(twin), twin.data, str(twin), twin.code) == (EngineHung, error.data, str(error), "engine_hung")


def test_every_code_is_there_once_and_is_a_plain_word():
    codes = [error.code for error in ALL]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


@pytest.mark.parametrize("error", ALL)
def test_every_error_is_in_one_branch_and_has_a_sentence(error):
    branches = [branch for branch in (Refused, Conflict, Unavailable, Broken) if issubclass(error, branch)]
    assert len(branches) == (error is not NightmillError)
    assert first_paragraph(error.__doc__)[-1] in ".}"


# ---- every place that raises one ------------------------------------------------------------------


@cache
def sources():
    paths = [path for package in ("jobs", "infra", "workers", "api") for path in sorted((ROOT / package).rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths]


def declared():
    """name → (bases, docstring, code) of every class of the sources."""
    found = {}
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases]
                code = next((s.value for s in node.body if isinstance(s, ast.Assign) and names_code(s)), None)
                found[node.name] = bases, ast.get_docstring(node) or "", code and ast.literal_eval(code)
    return found


def names_code(assign):
    return any(isinstance(target, ast.Name) and target.id == "code" for target in assign.targets)


def our_errors():
    classes = declared()
    ours = {"NightmillError"}
    while more := {name for name, (bases, _, _) in classes.items() if ours & set(bases)} - ours:
        ours |= more
    return {name: classes[name] for name in ours}


def test_errors_declared_elsewhere_have_codes_of_their_own_too():
    codes = [code for name, (_, _, code) in our_errors().items() if name != "NightmillError"]
    assert None not in codes
    assert len(set(codes)) == len(codes)


def test_every_place_that_makes_an_error_gives_it_all_its_sentence_needs():
    errors = our_errors()
    short = []
    for path, tree in sources():
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in errors):
                continue
            given = {keyword.arg for keyword in call.keywords}
            missing = fields_of(first_paragraph(errors[call.func.id][1])) - given
            if missing and None not in given:
                short.append(f"{path.relative_to(ROOT)}:{call.lineno} {call.func.id} lacks {sorted(missing)}")
    assert short == []
