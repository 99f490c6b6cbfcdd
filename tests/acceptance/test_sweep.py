"""`nightmill sweep`: what it shows, what it deletes, and what it leaves alone."""

import pytest

pytestmark = pytest.mark.acceptance


@pytest.fixture
def job(nightmill, inputs):
    """A finished job; late parts of two of its tasks lie beside its results, one of them unfinished."""
    options = ["--prompt", "{{ name }}", "--rows-per-task", "32", "--output", "out", "--quiet"]
    made = nightmill.run(inputs / "goods.parquet", *options).job
    parts = nightmill.folder / "out" / made / "_parts"
    parts.mkdir(exist_ok=True)
    (parts / f"{made}.s00000.00000-{'ab' * 16}.parquet").write_bytes(b"late")
    (parts / f".{made}.{'ab' * 8}.tmp").write_bytes(b"half")
    (parts / "notes.txt").write_bytes(b"mine")
    return made


def names(nightmill, job):
    return sorted(path.name for path in (nightmill.folder / "out" / job).rglob("*") if path.is_file())


def test_a_dry_run_shows_what_a_sweep_deletes(nightmill, job):
    before = names(nightmill, job)
    assert nightmill("sweep").out == "0 files of 0 bytes deleted.\n"
    shown = nightmill("sweep", "--older-than", "0s", "--dry-run").out.splitlines()
    assert [line.split()[0].rpartition("/")[2] for line in shown[:-1]] == [
        "FILE", f".{job}.{'ab' * 8}.tmp", f"{job}.s00000.00000-{'ab' * 16}.parquet",
    ]  # fmt: skip
    assert shown[-1] == "2 files of 8 bytes would be deleted."
    assert names(nightmill, job) == before
    said = nightmill("sweep", "--older-than", "0s", "--json").json
    assert (said["dry_run"], said["bytes"], said["skipped"]) == (False, 8, [])
    assert [(file["job"], file["why"]) for file in said["files"]] == [
        (job, "never finished, and its job has ended"),
        (job, "its lease is over, and it is not on the manifest"),
    ]
    assert names(nightmill, job) == sorted({*before} - {file["uri"].rpartition("/")[2] for file in said["files"]})
    assert nightmill("sweep", "--older-than", "0s").out == "0 files of 0 bytes deleted.\n"
