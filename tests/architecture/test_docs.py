"""The pages are current, every setting is documented and read, every error says what it should, help is quick."""

import ast
import importlib
import pkgutil
import re
import string
import subprocess
import sys
from collections import Counter
from pathlib import Path

import click
import pytest

import api
import infra
import jobs
import workers
from api.cli import docs
from api.cli.commands import COMMANDS
from api.cli.exits import Exit
from infra.settings import SETTINGS
from infra.settings import page as settings_page
from jobs.errors import Broken, Conflict, NightmillError, Refused, Unavailable
from jobs.model import JobState, Outcome, TaskState

pytestmark = pytest.mark.architecture

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for name in ("jobs", "infra", "workers", "api") for path in (ROOT / name).rglob("*.py")]
COMPOSITION_ROOTS = (
    "api/cli/",
    "api/serve.py",
    "workers/main.py",
    "workers/wiring.py",
    "workers/embedded.py",
    "workers/scheduling.py",
    "workers/apart.py",
    "workers/actors/",
    "infra/bootstrap.py",
)
BESIDE_ROOTS = ("infra/settings/", "infra/doctor/")
HEAVY = {"alembic", "jinja2", "numpy", "pyarrow", "rich", "sqlalchemy", "structlog", "torch", "transformers", "vllm"}


# ---- pages --------------------------------------------------------------------------------------


def test_the_settings_page_is_current():
    assert (ROOT / "docs/settings.md").read_text() == settings_page.page(), "run: python -m infra.settings"


def test_the_command_line_page_is_current():
    assert (ROOT / "docs/cli.md").read_text() == docs.page(), "run: python -m api.cli.docs"


def test_every_exit_code_is_explained():
    page = docs.page()
    assert [code for code in Exit if f"| {code.value} | {code.meaning} |" not in page] == []


def test_every_command_has_help_and_every_option_too():
    bare = []

    def look(command: click.Command, path: str) -> None:
        if not command.help:
            bare.append(path)
        bare.extend(f"{path} {p.name}" for p in command.params if isinstance(p, click.Option) and not p.help)
        for name, child in getattr(command, "commands", {}).items():
            look(child, f"{path} {name}")

    for name, lazy in COMMANDS.items():
        look(lazy.load(), name)
    assert bare == []


def test_help_imports_nothing_heavy():
    program = "import sys, api.cli.main as m; m.run(['--help']); print(*{n.split('.')[0] for n in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.splitlines()[-1].split()) == set()


# ---- settings -----------------------------------------------------------------------------------


def test_every_setting_says_what_it_is_and_numbers_have_a_unit_and_a_range():
    assert [s.name for s in SETTINGS if not s.help.endswith(".")] == []
    assert [s.name for s in SETTINGS if s.type in {"integer", "number"} and not (s.unit and s.low is not None)] == []


def test_every_setting_is_read_by_a_composition_root():
    assert settings_nobody_reads() == set()


def names_read_in(paths) -> set[str]:
    """Attributes that are read off anything called `settings` (or `….settings`)."""
    return set(re.findall(r"\bsettings\.([a-z0-9_]+)", "\n".join(path.read_text() for path in paths)))


def is_in(path: Path, places) -> bool:
    return str(path.relative_to(ROOT)).startswith(places)


def settings_nobody_reads() -> set[str]:
    roots = [path for path in SOURCES if is_in(path, (*COMPOSITION_ROOTS, "infra/doctor/"))]
    read = names_read_in(roots)
    table = (ROOT / "infra/settings/table.py").read_text()
    through_a_property = {"home", "log_file"} if re.search(r"self\.home / |self\.log_file\.parent", table) else set()
    return {setting.name for setting in SETTINGS} - read - through_a_property


def test_nothing_below_a_composition_root_sees_settings():
    below = [path for path in SOURCES if not is_in(path, (*COMPOSITION_ROOTS, *BESIDE_ROOTS))]
    assert [str(path.relative_to(ROOT)) for path in below if "infra.settings" in path.read_text()] == []


# ---- errors -------------------------------------------------------------------------------------


def all_errors() -> list[type[NightmillError]]:
    """Every error class of ours, wherever it is defined; the modules are imported for that."""
    for package in (jobs, infra, workers, api):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not re.search(r"migrations|__main__|\.(vllm_\w+|host)$", module.name):
                importlib.import_module(module.name)
    found, todo = [], [NightmillError]
    while todo:
        error = todo.pop()
        if error.__module__.split(".")[0] in {"jobs", "infra", "workers", "api"}:
            found.append(error)
        todo.extend(error.__subclasses__())
    return sorted(set(found), key=lambda error: error.__qualname__)


ERRORS = all_errors()


def fields_of(error: type[NightmillError]) -> set[str]:
    """The data that the sentence is filled from."""
    return {name for _, name, _, _ in string.Formatter().parse(error.__doc__ or "") if name}


def test_every_error_has_a_code_of_its_own():
    codes = Counter(error.__dict__.get("code", f"(none: {error.__qualname__})") for error in ERRORS)
    assert [code for code, times in codes.items() if times > 1 or not re.fullmatch(r"[a-z][a-z0-9_]*", code)] == []


def test_every_error_belongs_to_the_branch_of_who_must_act():
    branches = (Refused, Conflict, Unavailable, Broken)
    assert [e.__qualname__ for e in ERRORS if e is not NightmillError and not issubclass(e, branches)] == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__qualname__)
def test_the_docstring_is_a_sentence_that_its_data_fills(error):
    words = fields_of(error)
    sentence = error(**dict.fromkeys(words, "X")).sentence
    assert sentence.endswith((".", "X", "!"))
    assert "?>" not in sentence
    assert "{" not in sentence


def raised_calls() -> list[tuple[str, str, set[str]]]:
    """(place, class name, keywords) of every `NameOfAnError(keyword=…)` in the sources."""
    names = {error.__name__ for error in ERRORS}
    out = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in names and all(k.arg for k in node.keywords):
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    out.append((place, name, {str(k.arg) for k in node.keywords}))
    return out


def test_every_error_is_raised_with_the_data_that_its_sentence_needs():
    needed = {error.__name__: fields_of(error) for error in ERRORS}
    lacking = [
        f"{place}: {name} lacks {needed[name] - given}" for place, name, given in raised_calls() if needed[name] - given
    ]
    assert lacking == []


# ---- words --------------------------------------------------------------------------------------


def test_the_architecture_page_knows_every_state_and_outcome():
    page = ROOT / "ARCHITECTURE.md"
    if not page.exists():
        pytest.skip("ARCHITECTURE.md is not written yet")
    text = page.read_text()
    words = {*JobState, *TaskState, *Outcome}
    assert sorted(str(word) for word in words if not re.search(rf"\b{word}\b", text)) == []
