"""Models with and without a price, models whose weights changed, and what jobs cost by which price."""

import pytest

from api.cli.exits import Exit
from tests.acceptance.conftest import refused
from tests.support.models import model_folder

pytestmark = pytest.mark.acceptance

PROMPT = ("--prompt", "Sell {{ name }}", "--limit", 4, "--quiet")


def test_a_model_without_a_price_is_refused_before_the_first_row_naming_the_command(nightmill, inputs):
    added = nightmill("models", "add", "mine", "--engine", "fake")
    assert added.out == (
        "mine is added: chat, no files, price none yet\n"
        "It needs a price before it can run: nightmill prices set mine INPUT/CACHED/OUTPUT, or --free\n"
    )
    done = nightmill("run", inputs / "goods.parquet", "--model", "mine", *PROMPT, code=None)
    assert done == refused("Model mine has no price. Run: nightmill prices set mine INPUT/CACHED/OUTPUT, or --free.")
    assert nightmill.jobs() == []


def test_a_price_given_on_purpose_is_charged_exactly_and_a_job_keeps_the_price_it_began_with(nightmill, inputs):
    nightmill("models", "add", "mine", "--engine", "fake", "--price", "0.15/0.075/0.6")
    run = ("run", inputs / "goods.parquet", "--model", "mine", *PROMPT)
    first = nightmill(*run, "--sample", 2, code=Exit.PAUSED).job
    said = nightmill("prices", "set", "mine", "1/0.5/2.000001").out
    assert said.startswith("mine costs 1/0.5/2.000001 USD from now on (version ")
    nightmill("resume", first, "--quiet")
    second = nightmill(*run).job
    rows = nightmill.results(first).select(["input_tokens", "cached_tokens", "output_tokens"]).to_pylist()
    tokens = [sum(row[name] for row in rows) for name in ("input_tokens", "output_tokens")]
    lines = {line["label"]: line for line in nightmill("ledger", "statement", "--json").json["groups"]}
    assert {job: lines[job]["amounts_pico"] for job in (first, second)} == {
        first: {"input": 150_000 * tokens[0], "cached": 0, "output": 600_000 * tokens[1]},
        second: {"input": 1_000_000 * tokens[0], "cached": 0, "output": 2_000_001 * tokens[1]},
    }
    assert [lines[job]["example_price"] for job in (first, second)] == [False, False]


def test_free_is_a_price_of_zero_said_on_purpose(nightmill, inputs):
    nightmill("models", "add", "mine", "--engine", "fake", "--free")
    job = nightmill("run", inputs / "goods.parquet", "--model", "mine", *PROMPT).job
    line = nightmill("ledger", "statement", "--json").json["groups"][0]
    assert (line["label"], line["amount_pico"], line["tokens"]["output"] > 0) == (job, 0, True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["1/2"], "The price 1/2 is not INPUT/CACHED/OUTPUT: it has 2 numbers instead of 3. Example: 0.15/0.075/0.60."),
        (["1/2/0.0000001"], "0.0000001 has more than six decimals."),
        (["1/2/-3"], "-3 is not zero or more."),
        (["1/2/3", "--free"], "Give a price or --free, not both."),
        ([], "Say what fake costs: INPUT/CACHED/OUTPUT, as 0.15/0.075/0.60, or --free."),
    ],
)
def test_a_price_that_is_none_is_refused(shared, options, sentence):
    done = shared("prices", "set", "fake", *options, code=Exit.REFUSED)
    assert (done.out, sentence in done.err) == ("", True), done.err


def test_example_prices_are_marked_in_lists_and_statements(nightmill, inputs):
    listed = nightmill("models", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", "fake", "minilm", "smollm2"]
    assert "0.1/0.05/0.4 USD (example)" in listed[1] or "0.10/0.05/0.40 USD (example)" in listed[1]
    nightmill("run", inputs / "goods.parquet", "--model", "fake", *PROMPT)
    assert nightmill("prices", "list").out.splitlines()[1].split() == [
        "fake",
        "0.1",
        "0.05",
        "0.4",
        "USD",
        "example-USD",
        "example",
    ]
    assert nightmill("ledger", "statement").out.splitlines()[-1] == (
        "* At an example price, shipped for trying out: nightmill prices set MODEL INPUT/CACHED/OUTPUT"
    )


def test_a_model_whose_weights_changed_is_refused_at_a_run_and_found_by_verify(nightmill, inputs, tmp_path):
    folder = model_folder(tmp_path / "tiny")
    nightmill("models", "add", "tiny", folder, "--free")
    assert nightmill("models", "verify", "tiny").code == Exit.OK
    (folder / "model.safetensors").write_text("other weights")
    run = ("run", inputs / "goods.parquet", "--model", "tiny", *PROMPT)
    done = nightmill(*run, code=Exit.REFUSED)
    assert done.err.startswith("Error: The weights of model tiny changed since it was added (model.safetensors")
    assert done.err.endswith("). Run: nightmill models add tiny … again.\n")
    assert nightmill("models", "verify", "tiny", code=Exit.REFUSED).err.startswith(
        "Error: The weights of model tiny changed"
    )
    assert [m["state"] for m in nightmill("models", "list", "--json").json if m["name"] == "tiny"] == ["model changed"]
    assert nightmill.jobs() == []


def test_a_model_whose_files_were_only_touched_is_accepted_again_after_verify(nightmill, tmp_path):
    folder = model_folder(tmp_path / "tiny")
    nightmill("models", "add", "tiny", folder, "--free")
    (folder / "model.safetensors").touch()
    state = [m["state"] for m in nightmill("models", "list", "--json").json if m["name"] == "tiny"]
    nightmill("models", "verify", "tiny")
    again = [m["state"] for m in nightmill("models", "list", "--json").json if m["name"] == "tiny"]
    assert (state, again) == (["model changed"], ["ready"])


def test_a_removed_model_is_unknown(nightmill, inputs):
    nightmill("models", "add", "mine", "--engine", "fake", "--free")
    assert nightmill("models", "remove", "mine").out == "mine is forgotten; its files are where they were.\n"
    done = nightmill("run", inputs / "goods.parquet", "--model", "mine", *PROMPT, code=None)
    assert done == refused("There is no model named mine. Did you mean minilm? Known: fake, minilm, smollm2.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["fake", "--engine", "fake"],
            "fake cannot be added: that is the shipped fake model; add it under another name with --engine fake",
        ),
        (
            ["a b", "--engine", "fake"],
            "'a b' cannot be added: a name is made of letters, digits and . _ - / : @ (at most 200)",
        ),
        (["mine"], "mine cannot be added: a folder with its weights is needed"),
    ],
)
def test_a_model_that_cannot_be_added_is_refused(shared, options, sentence):
    assert shared("models", "add", *options, code=None) == refused(f"Model {sentence}.")


def test_a_folder_that_is_no_model_is_refused(shared, tmp_path):
    done = shared("models", "add", "mine", tmp_path, code=Exit.REFUSED)
    assert (done.out, str(tmp_path) in done.err) == ("", True), done.err
