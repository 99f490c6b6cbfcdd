"""The command line's frame: exit codes, errors, JSON; and the commands for models, prices and the book."""

import json
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import click
import pytest

from api.cli.commands import COMMANDS
from api.cli.context import AppContext, pass_app
from api.cli.exits import Exit
from api.cli.main import run
from jobs.errors import EngineDied, JobOwned, LedgerBroken, NotFound
from jobs.ports.book import Fold, StatementLine

pytestmark = pytest.mark.unit


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def nightmill(tmp_path, monkeypatch, capsys):
    """Runs a command line in a data directory of its own."""
    monkeypatch.setenv("NIGHTMILL_HOME", str(tmp_path / "home"))

    def call(*argv: str) -> Outcome:
        code = run(argv)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def command(monkeypatch):
    """Puts a command `try` into the list that does what the function does."""

    def put(action) -> None:
        @click.command()
        @click.option("--json", "as_json", is_flag=True)
        @pass_app
        def attempt(app: AppContext, as_json: bool):
            return action(app)

        @dataclass
        class Ready:
            summary = "For a test."

            def load(self) -> click.Command:
                return attempt

        monkeypatch.setitem(COMMANDS, "try", Ready())

    return put


def raising(error: BaseException):
    def action(_):
        raise error

    return action


# ---- the frame ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound(kind="job", name="j", hint="."), Exit.REFUSED),
        (JobOwned(job="j", pid=3), Exit.CONFLICT),
        (EngineDied(model="m", reason="r"), Exit.UNAVAILABLE),
        (LedgerBroken(reason="r"), Exit.BUG),
    ],
)
def test_an_error_is_one_sentence_on_stderr_and_an_exit_code_by_who_must_act(nightmill, command, error, code):
    command(raising(error))
    assert nightmill("try") == Outcome(code, "", f"Error: {error.sentence}\n")


def test_with_json_an_error_is_one_json_object_on_stderr(nightmill, command):
    command(raising(JobOwned(job="j", pid=3)))
    done = nightmill("try", "--json")
    assert (done.code, done.out) == (Exit.CONFLICT, "")
    assert json.loads(done.err) == {
        "error": {
            "code": "job_owned",
            "message": "Job j is being run by process 3. Wait for it, or stop that process.",
            "data": {"job": "j", "pid": 3},
        }
    }


def test_an_unexpected_error_is_a_sentence_with_the_place_of_its_traceback(nightmill, command, tmp_path):
    def action(app):
        app.home  # noqa: B018 - opens the log
        raise KeyError("x")

    command(action)
    done = nightmill("try")
    log = tmp_path / "home/logs/nightmill.log"
    assert (done.code, done.out) == (Exit.BUG, "")
    assert done.err == (
        "Error: Something unexpected happened (KeyError: 'x'). This is a fault in Nightmill; "
        f"the traceback is in {log}.\n"
    )
    assert "KeyError: 'x'" in json.loads(log.read_text())["exception"]


def test_before_there_is_a_log_the_traceback_goes_to_stderr(nightmill, command):
    command(raising(KeyError("x")))
    done = nightmill("try")
    assert done.code == Exit.BUG
    assert "Traceback" in done.err
    assert "the traceback stands above" in done.err


def test_a_command_may_return_its_exit_code(nightmill, command):
    command(lambda _: Exit.PAUSED)
    assert nightmill("try").code == Exit.PAUSED


def test_ctrl_c_is_130(nightmill, command):
    command(raising(KeyboardInterrupt()))
    assert nightmill("try").code == Exit.INTERRUPTED


def test_the_data_directory_is_closed_whatever_happens(nightmill, command, monkeypatch):
    closed = []

    def close(app):
        closed.append(app)

    monkeypatch.setattr(AppContext, "close", close)
    command(raising(KeyError("x")))
    nightmill("try")
    assert len(closed) == 1


def test_an_unknown_command_names_the_nearest(nightmill):
    done = nightmill("ledgr")
    assert (done.code, done.out) == (Exit.REFUSED, "")
    assert done.err == "Error: There is no command ledgr. Did you mean ledger? See: nightmill --help\n"


def test_a_wrong_option_is_told_as_json_to_a_machine(nightmill):
    done = nightmill("models", "list", "--jsn", "--json")
    assert done.code == Exit.REFUSED
    assert json.loads(done.err)["error"]["code"] == "usage"


def test_faults_of_the_settings_are_refused(nightmill, monkeypatch):
    monkeypatch.setenv("NIGHTMILL_LEASE_S", "soon")
    done = nightmill("models", "list")
    assert (done.code, done.out) == (Exit.REFUSED, "")
    assert "NIGHTMILL_LEASE_S: 'soon' is not a number" in done.err


def test_a_home_that_cannot_be_made_is_refused(nightmill, tmp_path):
    (tmp_path / "file").write_text("")
    done = nightmill("--home", str(tmp_path / "file/x"), "models", "list")
    assert (done.code, "log_file" in done.err) == (Exit.REFUSED, True)


def test_help_and_version_open_nothing(nightmill, tmp_path):
    assert nightmill("--help").code == 0
    assert nightmill("--version").out.startswith("nightmill ")
    assert not (tmp_path / "home").exists()


# ---- models, prices, ledger, doctor -------------------------------------------------------------


def test_a_model_is_added_priced_listed_and_removed(nightmill):
    added = nightmill("models", "add", "slow", "--engine", "fake", "--engine-arg", "rows_per_s=5", "--free")
    assert (added.code, added.out) == (0, "slow is added: chat, no files, price 0/0/0 USD\n")
    listed = {model["name"]: model for model in nightmill("models", "list", "--json").json}
    assert sorted(listed) == ["fake", "minilm", "slow", "smollm2"]
    assert (listed["slow"]["state"], listed["minilm"]["state"]) == ("ready", "not prepared")
    assert nightmill("models", "remove", "slow", "--json").json == {"removed": "slow"}


def test_a_model_added_without_a_price_is_told_what_it_lacks(nightmill):
    assert "nightmill prices set slow INPUT/CACHED/OUTPUT" in nightmill("models", "add", "slow", "--engine", "fake").out


def test_a_wrong_price_adds_nothing(nightmill):
    assert nightmill("models", "add", "slow", "--engine", "fake", "--price", "1/2").code == Exit.REFUSED
    assert "slow" not in {model["name"] for model in nightmill("models", "list", "--json").json}


def test_prices_are_set_for_known_models_only_and_the_newest_holds(nightmill):
    assert nightmill("prices", "set", "fake", "1/0.5/2").code == 0
    assert nightmill("prices", "set", "fake", "--free").code == 0
    assert nightmill("prices", "set", "fakke", "--free").code == Exit.REFUSED
    assert nightmill("prices", "set", "fake").code == Exit.REFUSED
    assert [p["input_micro"] for p in nightmill("prices", "list", "--json").json] == [0]
    assert [p["input_micro"] for p in nightmill("prices", "list", "--all", "--json").json] == [0, 1_000_000]


def test_an_empty_book_is_sound_and_says_that_it_is_empty(nightmill):
    assert (
        nightmill("ledger", "statement", "--since", "2026-01-01").out == "Tenant default has no costs in this time.\n"
    )
    assert nightmill("ledger", "balance").out == "The book is empty.\n"
    verified = nightmill("ledger", "verify", "--json")
    assert (verified.code, verified.json["sound"]) == (0, True)


def test_a_statement_shows_exact_amounts_and_marks_example_prices(tmp_path, capsys):
    def line(token_class, tokens, pico):
        return StatementLine(
            job="job-1",
            project="",
            model="fake",
            kind="usage",
            token_class=token_class,
            tokens=tokens,
            amount_pico=pico,
            currency="USD",
            example_price=True,
        )

    lines = [line("input", 1200, 120_000_001), line("cached", 300, 0), line("output", 48, 10**12)]
    store = SimpleNamespace(fold=Fold, statement=lambda tenant, **_: lines if tenant == "acme" else [])
    app = AppContext(home_option=tmp_path)
    app.__dict__["home"] = SimpleNamespace(store=store, close=lambda: None)
    assert run(["--home", str(tmp_path), "ledger", "statement", "--tenant", "acme"], app) == 0
    assert capsys.readouterr().out == (
        f"JOB    MODEL  INPUT TOKENS  CACHED TOKENS  OUTPUT TOKENS  {'AMOUNT':>20}\n"
        "job-1  fake          1,200            300             48  1.000120000001 USD *\n"
        "total  fake          1,200            300             48  1.000120000001 USD *\n"
        "* At an example price, shipped for trying out: nightmill prices set MODEL INPUT/CACHED/OUTPUT\n"
    )


@pytest.mark.parametrize("argv", [["--by", "moon"], ["--since", "soon"]])
def test_a_statement_refuses_what_it_cannot_group_or_date(nightmill, argv):
    assert nightmill("ledger", "statement", *argv).code == Exit.REFUSED


def test_doctor_changes_nothing_and_names_mends(nightmill, tmp_path):
    done = nightmill("doctor", "--json")
    found = {check["name"]: check for check in done.json["checks"]}
    assert not (tmp_path / "home").exists()
    assert found["home"]["level"] == "ok"
    assert (found["model smollm2"]["level"], found["model smollm2"]["mend"]) == (
        "warn",
        "nightmill models prepare smollm2",
    )


def test_doctor_finds_a_damaged_database(nightmill, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/nightmill.db").write_text("this is not a database, and long enough to be seen as none" * 20)
    done = nightmill("doctor", "--json")
    found = {check["name"]: check for check in done.json["checks"]}
    assert (done.code, done.json["failed"], found["database"]["level"]) == (Exit.UNAVAILABLE, True, "fail")
    assert "is damaged" in found["database"]["found"]


def test_a_table_is_cut_nowhere_when_piped(nightmill):
    name = "a-model-with-a-long-name-" * 6
    nightmill("models", "add", name, "--engine", "fake", "--free")
    assert name in nightmill("models", "list").out


def test_the_tests_run_without_a_terminal():
    assert not sys.stdout.isatty()
