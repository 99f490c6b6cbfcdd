"""Publishing: what readers see and when, in which order, and that a crash at any step is mended by doing it again."""

from __future__ import annotations

import json
import random
from collections import Counter

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from infra.data import order
from infra.data.manifest import read_manifest
from infra.data.publish import FolderPublisher, check_output_folder
from infra.objects.local import LocalObjects
from jobs.errors import NotFound, OutputTaken
from jobs.model import JobState, Outcome, Usage
from jobs.plan import PlanPolicy
from jobs.ports.planning import Final
from jobs.ranges import Range
from tests.support.data import Kit, text

pytestmark = pytest.mark.unit

SMALL = PlanPolicy(segment_rows=100, min_rows=8, blind_rows=16, max_rows=64)


@pytest.fixture
def kit(tmp_path):
    made = Kit(tmp_path, policy=SMALL)
    yield made
    made.close()


def mixed(kit, **options):
    """A job whose tasks run out of the input's order."""
    chance = random.Random(1)
    docs = [f"{n} " * 300 for n in range(5)]
    path = kit.parquet("in.parquet", {"doc": [chance.choice(docs) for _ in range(250)], "n": range(250)})
    return kit.submit(path, messages=(("user", "{{ doc }} {{ n }}"),), **options)


def files(kit, job):
    folder = kit.root / "out" / job.id
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_holds_parts_manifest_and_success(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}), rows_per_task=8)
    found = kit.finish(job)
    assert files(kit, job) == [
        "_SUCCESS",
        "_manifest.json",
        "part-00000.parquet",
        "part-00001.parquet",
        "part-00002.parquet",
    ]
    assert found["row"].to_pylist() == list(range(20))
    assert not list(kit.root.glob("home/**/staged/*"))


def test_nothing_is_visible_before_it_is_published(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}))
    kit.run(job)
    assert pa.dataset.dataset(str(kit.root / "out")).files == []


def test_the_manifest_says_what_is_there(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}), rows_per_task=12)
    settled = kit.run(job)
    uri = kit.publish(job, settled)
    head = json.loads((kit.root / "out/job1/_manifest.json").read_bytes())
    parts = head.pop("parts")
    assert uri == str(kit.root / "out/job1/_manifest.json")
    assert (head["job"], head["state"], head["rows"], head["outcomes"]) == ("job1", "completed", 20, {"ok": 20})
    assert (head["input_tokens"], head["cached_tokens"], head["output_tokens"]) == (800, 640, 140)
    assert [(p["name"], p["rows"], p["first_row"], p["last_row"]) for p in parts] == [
        ("part-00000.parquet", 12, 0, 11),
        ("part-00001.parquet", 8, 12, 19),
    ]
    assert [p["checksum"] for p in parts] == [s.part.checksum for s in settled]


def test_a_manifest_of_very_many_parts_keeps_them_in_parquet(kit, monkeypatch):
    monkeypatch.setattr("infra.data.manifest.MANY_PARTS", 2)
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}), rows_per_task=5)
    assert kit.finish(job).num_rows == 20
    assert "parts" not in json.loads((kit.root / "out/job1/_manifest.json").read_bytes())
    assert [part.rows for part in read_manifest(kit.objects, job.folder).parts] == [5, 5, 5, 5]
    assert kit.finish(job.evolve()).num_rows == 20


def test_without_an_order_parts_are_published_as_they_are(kit):
    found = kit.finish(mixed(kit))
    assert found["row"].to_pylist() != list(range(250))
    assert sorted(found["row"].to_pylist()) == list(range(250))


@pytest.mark.parametrize("bucket", [1, 7, 64, 10_000])
def test_the_inputs_order_is_restored(kit, monkeypatch, bucket):
    monkeypatch.setattr(order, "BUCKET_ROWS", bucket)
    rows = 250 if bucket > 7 else 30
    found = kit.finish(mixed(kit, order="input", limit=rows))
    assert found["row"].to_pylist() == list(range(rows))
    assert found["n"].to_pylist() == list(range(rows))
    manifest = read_manifest(kit.objects, str(kit.root / "out/job1"))
    assert all(part.rows <= max(bucket, 1) for part in manifest.parts)
    assert found.schema.equals(pq.read_schema(kit.root / "out/job1/part-00000.parquet"))


def test_parts_whose_rows_fit_into_one_file_are_read_once_and_three_of_them_before_for_their_size(kit, monkeypatch):
    job = mixed(kit, order="input")
    settled = kit.run(job)
    opened, real = Counter(), LocalObjects.open
    monkeypatch.setattr(LocalObjects, "open", lambda self, uri: opened.update([uri]) or real(self, uri))
    kit.publish(job, settled)
    times = Counter(opened[result.part.uri] for result in settled)
    assert times == {1: len(settled) - 3, 2: 3}


def test_order_is_restored_over_a_sample_and_children(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(90)}), order="input", sample=20)
    side = kit.side()
    settled = []
    for task in kit.plan(job, side=side):
        first = kit.do(job, task, lambda n, p: text(n, p) if n % 3 else None, side=side)
        child = task.evolve(id=f"{task.id}.0", ranges=first.left, rows=sum(r.size for r in first.left))
        settled += [first, kit.do(job, child, side=side)]
    kit.publish(job, settled)
    assert pq.read_table(job.folder)["row"].to_pylist() == list(range(90))


def test_ordered_parts_are_not_written_again(kit, monkeypatch):
    monkeypatch.setattr("infra.data.publish.restore_order", None)
    job = kit.submit(kit.parquet("in.parquet", {"x": range(90)}), order="input")
    assert kit.finish(job)["row"].to_pylist() == list(range(90))


class Crash(Exception):
    pass


class Crashing:
    """Dies after a number of writes."""

    def __init__(self, inner, writes):
        self._inner = inner
        self._left = writes

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name not in {"put_if_absent", "put_file_if_absent", "publish", "delete", "replace"}:
            return found

        def counted(*args):
            if self._left == 0:
                raise Crash
            self._left -= 1
            return found(*args)

        return counted

    def put_many(self, items):
        for item in items:
            self.put_if_absent(*item)

    def publish_many(self, pairs):
        for pair in pairs:
            self.publish(*pair)

    def delete_many(self, uris):
        for uri in uris:
            self.delete(uri)


@pytest.mark.parametrize("how", ["none", "input"])
def test_a_crash_at_any_step_is_mended_by_doing_it_again(kit, monkeypatch, how):
    monkeypatch.setattr(order, "BUCKET_ROWS", 30)
    expected = None
    for writes in range(200):
        job = mixed(kit, order=how, job_id=f"job{writes}", limit=60, rows_per_task=20)
        settled = kit.run(job)
        usage = Usage(rows=60, outcomes={"ok": 60})
        final = Final(state=JobState.COMPLETED, reason="", usage=usage, amount_pico=1)
        parts = [s.part for s in settled]
        crashing = FolderPublisher(Crashing(kit.objects, writes), kit.side().jobs)
        try:
            crashing.publish(job, parts, final)
            crashing.seal(job)
            done = True
        except Crash:
            done = False
        publisher = FolderPublisher(kit.objects, kit.side().jobs)
        publisher.publish(job, parts, final)
        publisher.seal(job)
        found = {
            name: (kit.root / "out" / job.id / name).read_bytes().replace(job.id.encode(), b"JOB")
            for name in files(kit, job)
        }
        found.pop("_manifest.json")
        expected = expected or found
        assert found == expected
        if done:
            break
    assert writes > 7


def test_a_manifest_holds_an_amount_of_any_length(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(3)}))
    parts = [settled.part for settled in kit.run(job)]
    final = Final(state=JobState.COMPLETED, reason="", usage=Usage(rows=3, outcomes={"ok": 3}), amount_pico=1 << 70)
    FolderPublisher(kit.objects, kit.side().jobs).publish(job, parts, final)
    assert read_manifest(kit.objects, job.folder).head["amount_pico"] == 1 << 70


def test_leftovers_of_another_cut_are_removed_before_the_manifest(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}))
    settled = kit.run(job)
    kit.objects.put_if_absent(f"{job.folder}/part-00099.parquet", b"stale")
    kit.publish(job, settled)
    assert "part-00099.parquet" not in files(kit, job)


def test_void_parts_are_published_with_the_others(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(20)}), rows_per_task=8)
    side = kit.side()
    first, second, third = kit.plan(job, side=side)
    settled = [side.sink.write_void(job, second, Outcome.CANCELLED, None, None), kit.do(job, first), kit.do(job, third)]
    kit.publish(job, settled)
    found = pq.read_table(job.folder)
    assert found["row"].to_pylist() == list(range(20))
    assert found["outcome"].to_pylist() == ["ok"] * 8 + ["cancelled"] * 8 + ["ok"] * 4


def test_several_jobs_share_a_folder(kit):
    path = kit.parquet("in.parquet", {"x": range(5)})
    for name in ("a", "b"):
        check_output_folder(kit.objects, str(kit.root / "out"), name)
        assert kit.finish(kit.submit(path, job_id=name)).num_rows == 5
    kit.write("out/notes.txt", b"not ours")
    check_output_folder(kit.objects, str(kit.root / "out"), "c")


def test_a_folder_that_holds_another_job_is_refused(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(5)}))
    kit.finish(job)
    with pytest.raises(OutputTaken, match="already holds the results of job job1"):
        check_output_folder(kit.objects, str(kit.root / "out/job1"))
    with pytest.raises(OutputTaken, match="already holds the results of job job1"):
        check_output_folder(kit.objects, str(kit.root / "out"), "job1")
    kit.write("out/job2/stranger.txt", b"")
    with pytest.raises(OutputTaken, match=r"stranger\.txt"):
        check_output_folder(kit.objects, str(kit.root / "out"), "job2")
    kit.write("file", b"")
    with pytest.raises(OutputTaken, match="a file of that name"):
        check_output_folder(kit.objects, str(kit.root / "file"))
    kit.write("strange/_manifest.json", b"nonsense")
    with pytest.raises(OutputTaken, match="not ours"):
        check_output_folder(kit.objects, str(kit.root / "strange"))


def test_a_finaliser_does_not_take_over_a_strangers_folder(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(5)}))
    kit.finish(job)
    thief = job.evolve(id="job1", spec=job.spec)
    other = kit.submit(kit.parquet("in.parquet", {"x": range(5)}), job_id="other")
    moved = other.evolve(spec=other.spec.evolve(output=str(kit.root / "elsewhere")))
    target = kit.root / "elsewhere/other/_manifest.json"
    target.parent.mkdir(parents=True)
    target.write_bytes((kit.root / "out/job1/_manifest.json").read_bytes())
    with pytest.raises(OutputTaken, match="job job1"):
        FolderPublisher(kit.objects, kit.side().jobs).publish(moved, [], None)
    assert thief == job


def test_parts_that_were_never_written_are_named(kit):
    job = kit.submit(kit.parquet("in.parquet", {"x": range(5)}))
    settled = kit.run(job)
    kit.objects.delete(settled[0].part.uri)
    with pytest.raises(NotFound, match="_parts"):
        kit.publish(job, settled)
    assert Range(0, 1).size == 1
