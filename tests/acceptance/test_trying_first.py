"""Before the whole of it runs: quotes, samples, and the pause when too many rows go wrong."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from infra.sql import open_store
from tests.acceptance.goods import CUT, FAULTY, ROWS

pytestmark = pytest.mark.acceptance

SYSTEM = "You sell lamps to people who have none. " * 8


# ---- quotes -------------------------------------------------------------------------------------


def test_a_quote_says_rows_tokens_by_class_price_time_and_the_first_prompt(shared, inputs):
    argv = (
        inputs / "goods.parquet",
        "--model",
        "fake",
        "--system",
        SYSTEM,
        "--prompt",
        "Sell {{ name }}",
        "--max-tokens",
        10,
    )
    said = shared("quote", *argv, "--json").json
    usage = said["usage"]
    assert said == {
        "rows": ROWS,
        "sampled": ROWS,
        "faults": 0,
        "usage": {**usage, "rows": ROWS, "output_tokens": 10 * ROWS, "outcomes": {}},
        "amount_pico": 100_000 * usage["input_tokens"] + 50_000 * usage["cached_tokens"] + 400_000 * 10 * ROWS,
        "currency": "USD",
        "cached_share": usage["cached_tokens"] / (usage["cached_tokens"] + usage["input_tokens"]),
        "exact_tokens": True,
        "seconds": said["seconds"],
        "first_row": 0,
        "first_prompt": [["system", SYSTEM], ["user", "Sell Lamp 0"]],
    }
    assert 0.5 < said["cached_share"] < 1
    text = shared("quote", *argv).out.splitlines()
    assert [line.split("  ")[0] for line in text[:7]] == [
        "input", "rows", "uncached input", "cached input", "output", "cost", "time",
    ]  # fmt: skip
    assert text[-2:] == [f"[system] {SYSTEM}", "[user] Sell Lamp 0"]


def test_a_dry_run_is_a_quote_and_leaves_nothing_behind(shared, inputs):
    argv = (inputs / "goods.parquet", "--model", "fake", "--prompt", "Sell {{ name }}", "--json", "--output", "dry")
    before = shared.jobs()
    assert shared("run", *argv, "--dry-run").json == shared("quote", *argv).json
    assert (shared.jobs(), (shared.folder / "dry").exists()) == (before, False)


def test_a_quote_counts_the_rows_that_would_be_errors_and_the_copies(shared, tmp_path):
    pq.write_table(pa.table({"text": ["a", " ", "c"]}), tmp_path / "t.parquet")
    said = shared("quote", tmp_path / "t.parquet", "--model", "fake", "--prompt", "{{ text }}", "--json").json
    assert (said["rows"], said["faults"]) == (3, 1)
    varied = ("--prompt", "{{ text }} in {{ lang }}", "--vary", "lang=de,fr", "--limit", 5)
    said = shared("quote", tmp_path / "t.parquet", "--model", "fake", *varied, "--json").json
    assert (said["rows"], said["first_prompt"]) == (5, [["user", "a in de"]])


def test_a_quote_refuses_what_a_run_would_refuse(shared, inputs):
    done = shared("quote", inputs / "goods.parquet", "--model", "fake", "--prompt", "{{ nmae }}", code=Exit.REFUSED)
    assert "did you mean 'name'?" in done.err


def test_a_quote_says_how_long_it_takes_where_the_models_speed_is_known(nightmill, inputs):
    argv = (inputs / "goods.parquet", "--model", "fake", "--prompt", "Sell {{ name }}")
    unknown = "time             unknown: fake has not run here long enough to be timed"
    assert unknown in nightmill("quote", *argv).out.splitlines()
    store = open_store(nightmill.home)
    store.note_speed("fake", rows_per_s=0.5, output_tokens_per_s=20.0)
    store.close()
    assert "time             about 2 min 00 s" in nightmill("quote", *argv).out.splitlines()


# ---- samples ------------------------------------------------------------------------------------


def test_a_sample_runs_first_then_the_job_pauses_and_resume_does_the_rest_without_repeating_it(nightmill, inputs):
    prompt = ("--prompt", "Sell {{ name }}", "--id", "sku", "--sample", 12)
    done = nightmill.run(inputs / "goods.parquet", *prompt, code=Exit.PAUSED)
    job = done.job
    reason = "the sample of 12 rows is done; look at the results, then resume for the rest"
    status = nightmill.status(job)
    assert (status["state"], status["reason"], status["rows"], status["total_rows"]) == ("paused", reason, 12, ROWS)
    assert f"(paused: {reason})" in done.err
    assert done.err.splitlines()[-1] == f"go on with    nightmill resume {job}"
    sampled = {row["row"]: row for row in nightmill("results", job, "--head", ROWS, "--json").json}
    assert (len(sampled), sorted(sampled) != [*range(12)]) == (12, True)
    nightmill("resume", job, "--quiet")
    table = nightmill.results(job)
    assert table["row"].to_pylist() == [*range(ROWS)]
    after = {row["row"]: row for row in nightmill("results", job, "--head", ROWS, "--json").json}
    assert {row: after[row] for row in sampled} == sampled
    amount = nightmill("ledger", "statement", "--json").json["totals"][0]["amount_pico"]
    assert amount == sum(table["amount_pico"].to_pylist())


def test_the_seed_says_which_sample(shared, inputs):
    samples = []
    for seed in (1, 1, 2):
        prompt = ("--prompt", "Sell {{ name }}", "--sample", 6, "--sample-seed", seed, "--quiet")
        job = shared.run(inputs / "goods.parquet", *prompt, code=Exit.PAUSED).job
        samples.append([row["row"] for row in shared("results", job, "--json").json])
    assert samples[0] == samples[1] != samples[2]


def test_a_sample_of_everything_is_the_whole_job(shared, inputs):
    done = shared.run(inputs / "goods.parquet", "--prompt", "Sell {{ name }}", "--sample", 999, "--quiet")
    assert shared.status(done.job)["state"] == "completed"


# ---- pause-on -----------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path):
    """600 rows; a third of the first 300 are faulty."""
    texts = [f"row {n}{' FAULTY' if n % 3 == 0 and n < 300 else ''}" for n in range(600)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "many.parquet")
    return tmp_path / "many.parquet"


FAULTS = ("--prompt", "{{ text }}", "--rows-per-task", 25, "--quiet")
SLOW = ("--engine-arg", "rows_per_s=400", "--engine-arg", "max_num_seqs=8")


@pytest.mark.parametrize("fault", ["error_on", "length_on"])
def test_too_many_errors_or_truncated_rows_pause_the_job_with_the_figures(nightmill, many, fault):
    done = nightmill.run(many, *FAULTS, *SLOW, "--engine-arg", f"{fault}=FAULTY", code=Exit.PAUSED)
    status = nightmill.status(done.job)
    reason = status["reason"].split()
    assert (status["state"], " ".join(reason[1:2] + reason[3:4])) == ("paused", "of rows")
    assert status["reason"].endswith("%) are errors or truncated, more than --pause-on 20%")
    spoiled, seen = int(reason[0]), int(reason[2])
    assert (200 <= seen < 600, 0.2 < spoiled / seen < 0.5) == (True, True)
    # Whoever resumes knows of them: only what comes from now on may pause the job again.
    code = Exit.SOME_ERRORS if fault == "error_on" else Exit.OK
    nightmill("resume", done.job, "--quiet", "--engine-arg", "rows_per_s=0", code=code)
    assert nightmill.status(done.job)["outcomes"] == {"ok": 500, "error" if fault == "error_on" else "truncated": 100}


@pytest.mark.parametrize("share", ["never", "0.5", "50%"])
def test_another_share_or_never_lets_the_job_go_on(nightmill, many, share):
    options = (*FAULTS, "--engine-arg", "error_on=FAULTY", "--pause-on", share)
    nightmill.run(many, *options, code=Exit.SOME_ERRORS)


def test_fewer_than_200_rows_never_pause_a_job(shared, inputs):
    prompt = ("--prompt", "Sell {{ name }}", "--quiet", "--pause-on", "1%")
    faults = ("--engine-arg", "error_on=FAULTY", "--engine-arg", "length_on=LONG")
    job = shared.run(inputs / "goods.parquet", *prompt, *faults, code=Exit.SOME_ERRORS).job
    assert shared.status(job)["outcomes"] == {
        "ok": ROWS - len(CUT) - len(FAULTY),
        "truncated": len(CUT),
        "error": len(FAULTY),
    }


def test_a_job_whose_every_row_is_an_error_has_failed(shared, inputs):
    prompt = ("--prompt", "Sell {{ name }}", "--limit", 5, "--engine-arg", "error_on=Sell")
    done = shared.run(inputs / "goods.parquet", *prompt, code=Exit.NOT_COMPLETED)
    status = shared.status(done.job)
    assert (status["state"], status["reason"], status["outcomes"]) == ("failed", "every row is an error", {"error": 5})
    assert shared.results(done.job).num_rows == 5
