"""What scripts rely on: JSON on every command, and the exit codes of docs/cli.md."""

import json
import re
import sqlite3
from pathlib import Path

import pytest

from api.cli.exits import Exit
from tests.support.models import model_folder

pytestmark = pytest.mark.acceptance

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def spoken(shared, inputs, tmp_path_factory):
    """The commands of one machine with --json, in the order in which a script would call them: name → what it said."""
    tiny = model_folder(tmp_path_factory.mktemp("models") / "tiny")
    goods = [inputs / "goods.parquet", "--model", "fake", "--prompt", "Sell {{ name }}", "--limit", 4]
    calls = {
        "models add": (["tiny", tiny, "--free"], 0),
        "models list": ([], 0),
        "models verify": (["tiny"], 0),
        "models prepare": (["nothing"], 2),
        "models remove": (["tiny"], 0),
        "prices set": (["fake", "1/0.5/2"], 0),
        "prices list": ([], 0),
        "quote": (goods, 0),
        "run": ([*goods, "--sample", 2, "--max-tokens", 1], 4),
        "status": (["last"], 0),
        "jobs": ([], 0),
        "wait": (["last"], 4),
        "results": (["last"], 0),
        "pause": (["last"], 0),
        "resume": (["last"], 0),
        "retry": (["last", "--max-tokens", 99], 0),
        "cancel": (["last"], 2),
        "ledger statement": ([], 0),
        "ledger balance": ([], 0),
        "ledger verify": ([], 0),
        "sweep": ([], 0),
        "doctor": ([], None),
    }
    return {name: shared(*name.split(), *args, "--json", code=code) for name, (args, code) in calls.items()}


def test_every_command_speaks_json_on_stdout_one_value_a_line_and_errors_on_stderr(spoken):
    for name, done in spoken.items():
        values = [json.loads(line) for line in done.out.splitlines()]
        if done.code in {0, 3, 4, 5} or name == "doctor":
            assert values, name
            assert name in {"run", "resume", "retry"} or len(values) == 1, name
        else:
            error = json.loads(done.err.splitlines()[-1])["error"]
            assert (values, sorted(error)) == ([], ["code", "data", "message"]), name


@pytest.mark.parametrize("name", ["run", "resume", "retry"])
def test_a_run_begins_with_its_job_and_ends_with_how_it_ended(spoken, name):
    values = spoken[name].lines
    first, last = values[0], values[-1]
    assert [first["event"], last["event"]] == ["begin", "end"]
    assert {value["event"] for value in values[1:-1]} <= {"progress"}
    assert (first["job"], last["exit_code"]) == (last["job"], spoken[name].code)
    assert last["rows"] == (2 if name == "run" else 4)


def test_a_refusal_says_its_code_and_its_data(shared, inputs):
    done = shared("run", inputs / "goods.parquet", "--model", "fakee", "--prompt", "x", "--json", code=Exit.REFUSED)
    assert (done.out, json.loads(done.err)) == (
        "",
        {
            "error": {
                "code": "not_found",
                "message": "There is no model named fakee. Did you mean fake? Known: fake, minilm, smollm2.",
                "data": {
                    "kind": "model",
                    "name": "fakee",
                    "hint": "Did you mean fake? Known: fake, minilm, smollm2.",
                },
            }
        },
    )


def test_quiet_says_nothing_but_the_job_and_the_warning_of_the_fake_engine(shared, inputs):
    done = shared.run(inputs / "goods.parquet", "--prompt", "Sell {{ name }}", "--limit", 2, "--quiet")
    assert done.out == f"{shared.jobs()[0]}\n"
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["FAKE ENGINE"]


def test_a_book_that_was_changed_behind_its_back_is_exit_1(nightmill, inputs):
    nightmill.run(inputs / "goods.parquet", "--prompt", "Sell {{ name }}", "--limit", 2, "--quiet")
    _forge(nightmill.home / "nightmill.db")
    done = nightmill("ledger", "verify", code=Exit.BUG)
    assert re.search(r"^FAULT: ", done.out, re.MULTILINE)
    assert re.search(r"^The book has \d+ faults\.$", done.out, re.MULTILINE)


def _forge(database):
    """Someone with the file in hand makes an amount larger."""
    with sqlite3.connect(database) as connection:
        names = connection.execute("select name from sqlite_master where type = 'trigger'").fetchall()
        for (name,) in names:
            connection.execute(f"drop trigger {name}")
        connection.execute("update entries set amount_pico = amount_pico + 1 where rowid = 1")
    connection.close()


def test_each_exit_code_of_the_documentation_is_given_by_some_test():
    """By its name, as `code=Exit.NAME` or in a comparison."""
    text = "".join(path.read_text() for path in TESTS.glob("test_*.py"))
    assert {code.name for code in Exit if code is not Exit.OK} == set(re.findall(r"Exit\.([A-Z_]+)\b", text)) - {
        "OK",
        "NAME",
    }
    documented = (TESTS.parents[1] / "docs/cli.md").read_text().partition("## Exit codes")[2]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", documented, re.MULTILINE)] == [int(code) for code in Exit]
