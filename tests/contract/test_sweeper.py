"""The sweeper over both stores of objects and a real database: what it finds and leaves alone."""

import pytest

from infra.data.sweeping import Sweeper
from infra.objects.s3_names import upload_name
from jobs import moves
from jobs.errors import Unavailable
from jobs.model import JobState, Usage
from tests.factories import Planned, a_job, a_part, a_waste

pytestmark = pytest.mark.contract

HOUR = 3600.0


@pytest.fixture
def planned(store, folder):
    """Tasks: 0 and 4 were never leased, 1 is, 2 is done, 3 is leased after a lease that was lost."""
    spec = a_job().spec.evolve(output=folder)
    made = Planned(store, tasks=5, spec=spec)
    made.leased(1, token="aa11")
    task = made.leased(2, token="bb22")
    usage = Usage(rows=10, outcomes={"ok": 10})
    part = f"{made.job.folder}/_parts/{task.id}-bb22.parquet"
    store.make([moves.commit(task, part=a_part(task, usage=usage, uri=part), usage=usage, entries=())])
    lost = made.leased(3, token="cc33")
    store.make([moves.hand_back(lost, a_waste(made.job, lost))])
    made.leased(3, token="dd44")
    return made


def put(objects, planned, *names):
    uris = [f"{planned.job.folder}/{name}" for name in names]
    for uri in uris:
        objects.put_if_absent(uri, b"rows")
    return uris


def found(store, objects, older_than_s=HOUR):
    sweeper = Sweeper(store=store, objects=objects, older_than_s=older_than_s)
    files = [file for files in sweeper.find() for file in files]
    assert sweeper.skipped == []
    return files


def test_only_what_no_lease_can_commit_is_found_and_deleted(store, objects, folder, planned, clock):
    ids = planned.ids
    kept = put(
        objects,
        planned,
        "_parts/notes.txt",
        f"_parts/{ids[0]}-ee55.parquet",  # never leased, so that nothing is known of it
        f"_parts/{ids[1]}-aa11.parquet",
        f"_parts/{ids[2]}-bb22.parquet",
        f"_parts/{ids[3]}-dd44.parquet",
        f"_parts/{ids[4]}-void.parquet",
        f"_parts/other-{ids[1]}-ff66.parquet",
        f"part-{ids[3]}-cc33.parquet",
        "part-00000.parquet",
    )
    gone = put(
        objects,
        planned,
        f"_parts/{ids[1]}-ff66.parquet",
        f"_parts/{ids[2]}-ff66.parquet",
        f"_parts/{ids[3]}-cc33.parquet",
    )
    assert found(store, objects) == []
    clock.advance(HOUR)
    files = found(store, objects)
    assert [file.uri for file in files] == sorted(gone)
    Sweeper(store=store, objects=objects, older_than_s=HOUR).delete(files)
    assert [facts.uri for facts in objects.list(planned.job.folder)] == sorted(kept)
    assert found(store, objects) == []


@pytest.mark.parametrize("folder", ["file-uri", "path", "s3"], indirect=True)  # a put into the database is whole
def test_what_was_left_unfinished_goes_when_the_job_has_ended(store, objects, folder, planned, clock):
    if folder.startswith("s3:"):
        uri = f"{planned.job.folder}/_parts/x.parquet"
        upload = objects._s3.call("create_multipart_upload", uri)["UploadId"]
        left = f"{planned.job.folder}/" + upload_name("_parts/x.parquet", upload)
    else:
        scratch = objects.scratch(f"{planned.job.folder}/_parts/x.parquet")
        scratch.write_bytes(b"half")
        left = f"{planned.job.folder}/_parts/{scratch.name}"
    assert found(store, objects, older_than_s=0) == []
    store.set_state(planned.job.id, expect=frozenset(JobState), to=JobState.CANCELLED)
    assert found(store, objects, older_than_s=0) == []  # its finaliser may still be at work
    store.set_sealed([planned.job.id])
    assert found(store, objects) == []
    clock.advance(HOUR)
    files = found(store, objects)
    assert [file.uri for file in files] == [left]
    Sweeper(store=store, objects=objects, older_than_s=HOUR).delete(files)
    assert list(objects.list(planned.job.folder, unfinished=True)) == []


def test_a_folder_that_cannot_be_read_is_skipped_with_its_reason(store, objects, planned, monkeypatch):
    away = Unavailable(reason="the test took it away")

    def fail(*_, **__):
        raise away

    monkeypatch.setattr(type(objects), "list", fail)
    sweeper = Sweeper(store=store, objects=objects, older_than_s=0)
    assert list(sweeper.find()) == []
    assert [(one.job, one.error) for one in sweeper.skipped] == [(planned.job.id, away)]
