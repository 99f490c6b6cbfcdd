"""`s3://` in an embedded run: input, output, parts and results in a bucket, through the real command line."""

from __future__ import annotations

import io
import json
import random
import shutil

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from api.cli.exits import Exit
from infra.objects import open_objects
from tests.acceptance.conftest import Nightmill, refused, wait_for
from tests.acceptance.goods import a_line, catalog, lines
from tests.support.s3 import BREAK, BUCKET, DROP, KEYS, LOSE, Answer

pytestmark = [pytest.mark.acceptance, pytest.mark.integration]

ROWS = 400


@pytest.fixture
def objects(s3, s3_keys, tmp_path):
    return open_objects(scratch=tmp_path / "scratch", s3=s3.options())


@pytest.fixture
def folder(tmp_path):
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def nightmill(forkery, fresh, tmp_path, s3):
    shutil.copytree(fresh, tmp_path / "home")
    return Nightmill(forkery, tmp_path, env=s3.env)


@pytest.fixture
def goods(objects, folder):
    """The catalog in three files of a folder."""
    for number, (start, stop) in enumerate([(0, 150), (150, 151), (151, ROWS)]):
        file = io.BytesIO()
        pq.write_table(catalog(ROWS).slice(start, stop - start), file, row_group_size=60)
        objects.put_if_absent(f"{folder}/in/goods-{number}.parquet", file.getvalue())
    return f"{folder}/in"


def read_as_any_reader_would(s3, uri):
    """By pyarrow's own S3."""
    host = s3.endpoint.removeprefix("http://")
    keys = {"access_key": KEYS["AWS_ACCESS_KEY_ID"], "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    store = pa.fs.S3FileSystem(endpoint_override=host, scheme="http", region="us-east-1", **keys)
    return pa.dataset.dataset(uri.removeprefix("s3://"), filesystem=store).to_table().sort_by("row")


def names(objects, folder):
    return [facts.uri.removeprefix(f"{folder}/") for facts in objects.list(folder, unfinished=True)]


def test_a_run_from_s3_to_s3_that_is_killed_goes_on_and_has_every_row_once(nightmill, goods, folder, objects, s3):
    options = ["--model", "fake", "--id", "sku", "--prompt", "Sell {{ name }}.", "--rows-per-task", "32"]
    slow = ["--engine-arg", "rows_per_s=200", "--output", f"{folder}/out/", "--quiet"]
    with nightmill.started("run", goods, *options, *slow) as running:
        job = running.job()
        parts = f"{folder}/out/{job}/_parts/"
        wait_for(lambda: len(list(objects.list(parts))) >= 3, "three parts", running)
        running.kill()
    assert 0 < nightmill.status(job)["rows"] < ROWS
    nightmill("resume", job, "--quiet")
    out = f"{folder}/out/{job}"
    found = read_as_any_reader_would(s3, out)
    assert found["custom_id"].to_pylist() == catalog(ROWS)["sku"].to_pylist()
    assert set(found["outcome"].to_pylist()) == {"ok"}
    manifest = json.loads(objects.read(f"{out}/_manifest.json"))
    assert names(objects, out) == ["_SUCCESS", "_manifest.json", *[part["name"] for part in manifest["parts"]]]
    assert (manifest["job"], manifest["rows"]) == (job, ROWS)
    assert sum(1 for _ in nightmill("results", job, "--jsonl").lines) == ROWS
    assert nightmill("ledger", "verify", "--json").json["sound"]


@pytest.fixture
def bad_network(faulty, nightmill):
    """What the command line takes for the server."""
    nightmill.env.update(faulty.server.env)
    return faulty


def test_a_run_through_a_bad_network_has_every_row_once(nightmill, goods, folder, bad_network, s3):
    chance = random.Random(11)
    kinds = [LOSE, DROP, BREAK, Answer(status=500, code="InternalError"), Answer(status=503, code="SlowDown")]
    bad_network.rule = lambda _: chance.choice(kinds) if chance.random() < 0.08 else None
    options = ["--id", "sku", "--prompt", "Sell {{ name }}.", "--rows-per-task", "32", "--quiet", "--output", folder]
    job = nightmill.run(goods, *options).job
    found = read_as_any_reader_would(s3, f"{folder}/{job}")
    assert found["custom_id"].to_pylist() == catalog(ROWS)["sku"].to_pylist()
    assert len(bad_network.asked) > 100


def test_a_server_that_goes_away_pauses_the_job_and_a_resume_goes_on(
    nightmill, goods, folder, bad_network, objects, s3
):
    nightmill.env["NIGHTMILL_S3_ATTEMPTS"] = "2"
    slow = ["--engine-arg", "rows_per_s=200", "--rows-per-task", "32", "--output", folder, "--quiet"]
    with nightmill.started("run", goods, "--model", "fake", "--prompt", "{{ name }}", *slow) as running:
        job = running.job()
        wait_for(lambda: len(list(objects.list(f"{folder}/{job}/_parts/"))) >= 3, "three parts", running)
        bad_network.rule = lambda _: DROP
        assert running.wait().code == Exit.UNAVAILABLE
    assert nightmill.status(job)["state"] == "paused"
    assert "failed 2 times, at last with ConnectionClosedError" in nightmill.status(job)["reason"]
    bad_network.rule = lambda _: None
    nightmill("resume", job, "--quiet")
    assert read_as_any_reader_would(s3, f"{folder}/{job}")["row"].to_pylist() == list(range(ROWS))


@pytest.mark.parametrize("source", ["goods-*.parquet", "", "goods-[02].parquet"])
def test_files_folders_and_globs(nightmill, goods, folder, source, s3):
    done = nightmill.run(
        f"{goods}/{source}", "--prompt", "{{ name }}", "--output", folder, "--quiet", "--order", "input"
    )
    rows = ROWS - 1 if "[02]" in source else ROWS
    assert read_as_any_reader_would(s3, f"{folder}/{done.job}")["row"].to_pylist() == list(range(rows))


def test_rows_that_ran_in_another_order_are_put_back_in_the_bucket(nightmill, objects, folder):
    """The platform's own objects lie there too: the order is staged."""
    nightmill.env["NIGHTMILL_OBJECTS"] = f"{folder}/own/"
    file = io.BytesIO()
    pq.write_table(pa.table({"doc": [f"{n % 5} " * 300 for n in range(ROWS)], "n": range(ROWS)}), file)
    objects.put_if_absent(f"{folder}/in.parquet", file.getvalue())
    options = [
        "--prompt",
        "{{ doc }} {{ n }}",
        "--order",
        "input",
        "--rows-per-task",
        "64",
        "--output",
        folder,
        "--quiet",
    ]
    job = nightmill.run(f"{folder}/in.parquet", *options).job
    manifest = json.loads(objects.read(f"{folder}/{job}/_manifest.json"))
    assert [(part["task"], part["rows"]) for part in manifest["parts"]] == [(None, ROWS)]
    found = pq.read_table(io.BytesIO(objects.read(f"{folder}/{job}/part-00000.parquet")))
    assert found["n"].to_pylist() == list(range(ROWS))
    own = f"{folder}/own/tenants/default/jobs/{job}"
    assert "input.arrow" in names(objects, own)
    assert names(objects, f"{own}/staged") == []  # gone by now


def test_lines_come_from_s3_too_and_go_where_they_like(nightmill, objects, folder, tmp_path):
    objects.put_if_absent(f"{folder}/x.jsonl", lines(a_line(f"id-{n}", "Hello") for n in range(50)).encode())
    done = nightmill.run(f"{folder}/x.jsonl", "--output", tmp_path / "out", "--quiet")
    assert sorted(nightmill.results(done.job)["custom_id"].to_pylist()) == sorted(f"id-{n}" for n in range(50))


def test_what_cannot_work_is_refused_before_the_first_row(nightmill, goods, folder, objects):
    def run(source, *options):
        return nightmill.run(source, "--prompt", "{{ name }}", "--quiet", *options, code=2)

    assert run(f"{folder}/nothing*.parquet") == refused(f"{folder}/nothing*.parquet: no file matches.")
    assert run(f"{folder}/nothing") == refused(
        f"{folder}/nothing: there is no such file, and no folder with data files in it."
    )
    assert "there is no bucket nobody at http://" in run("s3://nobody/x/").err
    assert "the output folder s3://nobody cannot be written: there is no bucket nobody" in (
        run(goods, "--output", "s3://nobody").err.lower()
    )
    assert run(goods, "--output", "s3://") == refused("The request cannot be taken: s3:// names no folder.")
    objects.put_if_absent(f"{folder}/out/_manifest.json", b"{}")
    assert "already holds a manifest that is not ours" in run(goods, "--output", f"{folder}/out/").err
    assert nightmill.jobs() == []


def test_a_server_that_is_away_is_unavailable(nightmill):
    nightmill.env["NIGHTMILL_S3_ENDPOINT"] = "http://127.0.0.1:9"
    done = nightmill.run("s3://bucket/x.parquet", "--prompt", "x", code=7)
    assert "the S3 endpoint http://127.0.0.1:9 failed 3 times" in done.err


def test_a_sweep_looks_into_each_store_and_names_one_that_is_away(nightmill, goods, folder, objects, tmp_path):
    options = ["--prompt", "{{ name }}", "--limit", "3", "--quiet", "--output"]
    job = nightmill.run(goods, *options, folder).job
    late = f"{folder}/{job}/_parts/{job}.s00000.00000-{'ab' * 16}.parquet"
    objects.put_if_absent(late, b"late")
    assert nightmill("sweep", "--older-than", "0s", "--dry-run").out.splitlines()[1].split()[:2] == [late, "4"]
    assert nightmill("sweep", "--older-than", "0s").out.endswith("1 files of 4 bytes deleted.\n")
    assert objects.facts(late) is None
    nightmill.env["NIGHTMILL_S3_ENDPOINT"] = "http://127.0.0.1:9"
    done = nightmill("sweep", code=7)
    assert f"Not looked at: {job}: A backend does not answer" in done.err
