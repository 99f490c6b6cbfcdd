"""The sweeper of stored files over both stores of objects and both databases."""

import pytest

from infra.clocks import CROCKFORD
from infra.data.filesweeping import FileSweeper
from jobs.errors import Unavailable
from jobs.filing import BatchStatus
from jobs.model import JobState
from tests.factories import a_job
from tests.support.filing import a_batch, a_file

pytestmark = pytest.mark.contract

HOUR, DAY = 3600.0, 86_400.0


def an_id(made_at):
    """As a UUIDv7 of that time has it."""
    number = round(made_at * 1000) << 80
    return "file-" + "".join(CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def put(store, objects, folder, name, **record):
    """A file: its bytes, then its record."""
    uri = f"{folder}/default/files/{name}.jsonl"
    objects.put_if_absent(uri, b"lines")
    return store.add_file(a_file(name, uri=uri, size=5, **record))


def a_sweeper(store, objects, folder, older_than_s=HOUR):
    return FileSweeper(
        store=store, objects=objects, folder=lambda tenant: f"{folder}/{tenant}", older_than_s=older_than_s, keep_s=DAY
    )


def found(sweeper):
    files = [(file.file, file.why, file.since) for files in sweeper.find() for file in files]
    assert sweeper.skipped == []
    return files


def left(objects, folder):
    return [facts.uri.rpartition("/")[2].partition(".")[0] for facts in objects.list(f"{folder}/default/files/")]


def test_deleted_and_expired_files_go_with_their_records_once_they_are_dead_for_long(store, objects, folder, clock):
    began = clock.now()
    put(store, objects, folder, "file-deleted")
    put(store, objects, folder, "file-expired", expires_at=began + 60)
    put(store, objects, folder, "file-kept", expires_at=began + DAY)
    store.delete_file("file-deleted", "default")
    clock.advance(HOUR)
    sweeper = a_sweeper(store, objects, folder)
    assert found(sweeper) == [("file-deleted", "deleted by its tenant", began)]
    clock.advance(60)
    assert found(sweeper) == [("file-deleted", "deleted by its tenant", began), ("file-expired", "expired", began + 60)]
    assert left(objects, folder) == ["file-deleted", "file-expired", "file-kept"]  # a dry run deletes nothing
    for files in sweeper.find():
        sweeper.delete(files)
    assert (left(objects, folder), found(sweeper), list(store.dead_files())) == (["file-kept"], [], [])


def test_a_file_that_an_open_batch_or_an_unpublished_job_reads_stays(store, objects, folder, clock):
    kept = [put(store, objects, folder, f"file-{n}", expires_at=clock.now() + 60) for n in range(2)]
    batch = store.add_batch(a_batch(input_file="file-0"))
    job = store.create_job(a_job(spec=a_job().spec.evolve(input=kept[1].uri)), [])
    clock.advance(DAY)
    sweeper = a_sweeper(store, objects, folder)
    assert found(sweeper) == []
    store.change_batch(batch.evolve(status=BatchStatus.CANCELLED))
    store.set_state(job.id, expect=frozenset(JobState), to=JobState.CANCELLED)
    assert [file for file, *_ in found(sweeper)] == ["file-0"]
    store.set_sealed([job.id])
    assert [file for file, *_ in found(sweeper)] == ["file-0", "file-1"]


def test_a_sweep_that_died_between_the_bytes_and_their_record_is_gone_on_with(store, objects, folder, clock):
    file = put(store, objects, folder, "file-a", expires_at=clock.now())
    objects.delete(file.uri)
    sweeper = a_sweeper(store, objects, folder, older_than_s=0)
    for files in sweeper.find():
        sweeper.delete(files)
    assert list(store.dead_files()) == []


def test_bytes_of_an_upload_that_never_ended_go_when_nobody_can_take_it_up_again(store, objects, folder, clock):
    old, young, recorded = (an_id(clock.now() - age) for age in (DAY + HOUR, DAY + HOUR - 1, 9 * DAY))
    put(store, objects, folder, recorded)
    for name in (old, young, "file-short", f"{old}-output"):
        objects.put_if_absent(f"{folder}/default/files/{name}.jsonl", b"lines")
    sweeper = a_sweeper(store, objects, folder)
    assert found(sweeper) == [("", "its upload never ended", clock.now() - DAY - HOUR)]
    for files in sweeper.find():
        sweeper.delete(files)
    assert left(objects, folder) == sorted([young, recorded, "file-short", f"{old}-output"])


def test_a_folder_that_cannot_be_listed_is_skipped_with_its_reason(store, objects, folder, monkeypatch):
    away = Unavailable(reason="the test took it away")

    def fail(*_, **__):
        raise away

    monkeypatch.setattr(type(objects), "list", fail)
    sweeper = a_sweeper(store, objects, folder)
    assert (list(sweeper.find()), [(one.job, one.error) for one in sweeper.skipped]) == (
        [],
        [("files of default", away)],
    )
