"""The Python examples of the pages run as they stand, with the address, the key and the model changed."""

import re
from pathlib import Path

import pytest

from api.rest.app import ROUTERS
from jobs.tenancy import Role, Scope
from tests.support.api import some_lines, until

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = [
    (page.name, number, text)
    for page in (ROOT / "docs/api.md", ROOT / "docs/from-openai-batch.md")
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.fixture(scope="module", autouse=True)
def awake(api):
    """A model that sleeps tells the first request to come again in half a minute, and so long the client would wait."""
    client = api.http(api.key())
    asked = {"model": "fake", "prompt": "Hello", "max_tokens": 1}
    until(lambda: client.post("/v1/completions", json=asked).status_code == 200, "the first answer")


@pytest.mark.parametrize(("page", "number", "text"), EXAMPLES, ids=lambda value: str(value)[:20])
def test_an_example_runs(api, tmp_path, monkeypatch, capsys, page, number, text):
    (tmp_path / "requests.jsonl").write_bytes(some_lines(1))
    monkeypatch.chdir(tmp_path)
    key = api.key(f"docs-{number}", role=Role.ADMIN, scopes=frozenset(Scope))
    program = text.replace("http://127.0.0.1:8000", api.url).replace("nm_…", key).replace("smollm2", "fake")
    names = {}
    exec(compile(program, page, "exec"), names)
    for name in ("client", "api"):
        if name in names:
            names[name].close()
    assert capsys.readouterr().out


def test_the_pages_name_every_route():
    page = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    tails = {path for router in ROUTERS for path in (route.path for route in router.routes)}
    named = {tail for tail in tails if (tail.rpartition("}")[2] or tail.partition("/{")[0]) in page}
    assert tails - named == set()
