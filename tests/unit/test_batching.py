"""The keeper of batches: whatever died before, there is one job and one of each file."""

from dataclasses import dataclass, field

import pytest

from infra.clocks import SeededIds
from infra.objects.local import LocalObjects
from jobs.batching import Keeper, KeepPolicy, Look, cancel_batch
from jobs.errors import BadInput, BatchEnded, NotFound
from jobs.filing import BatchStatus, LineError
from jobs.model import JobSpec, JobState, Model, Usage
from jobs.pools import Pool
from jobs.ports.intake import Examined, Intake
from jobs.ports.results import Results
from jobs.ports.store import Store
from tests.factories import PRICE
from tests.support.filing import a_batch, a_file
from tests.support.values import a_job

pytestmark = pytest.mark.unit
LATER = 100.0


class Records(Store):
    """What a keeper asks of the database."""

    def __init__(self, *batches):
        self.all = {batch.id: batch for batch in batches}
        self.uploads = {"file-a": a_file()}
        self.jobs_made = {}
        self.clock = LATER

    def now(self):
        return self.clock

    def file(self, file_id, tenant):
        if file_id not in self.uploads:
            raise NotFound(kind="file", name=file_id, hint="")
        return self.uploads[file_id]

    def add_files(self, files):
        return [self.uploads.setdefault(file.id, file) for file in files]

    def aliases(self, tenant=None):
        return []

    def price(self, model):
        return PRICE

    def job_of_key(self, tenant, key):
        return next((job for job in self.jobs_made.values() if job.idempotency_key == key), None)

    def jobs_of_keys(self, keys):
        return {key: job for key in keys if (job := self.job_of_key(*key)) is not None}

    def files_named(self, wanted):
        return {(name, tenant): self.uploads[name] for name, tenant in wanted if name in self.uploads}

    def create_jobs(self, wanted):
        return [self.job_of_key(j.tenant, j.idempotency_key) or self.jobs_made.setdefault(j.id, j) for j, _ in wanted]

    def open_batches(self, *, after=None, limit=1000):
        return [] if after else list(self.all.values())

    def job_states(self, job_ids):
        return {name: self.jobs_made[name].state for name in job_ids if name in self.jobs_made}

    def job(self, job_id):
        return self.jobs_made[job_id]

    def jobs_named(self, job_ids):
        return {name: self.jobs_made[name] for name in job_ids if name in self.jobs_made}

    def set_state(self, job_id, *, expect, to, reason=""):
        self.jobs_made[job_id] = self.jobs_made[job_id].evolve(state=to, reason=reason)
        return self.jobs_made[job_id]

    def batch(self, batch_id, tenant):
        return self.all[batch_id]

    def change_batch(self, batch):
        return self.change_batches([batch])[0]

    def change_batches(self, batches):
        return [self._change(batch) for batch in batches]

    def _change(self, batch):
        if self.all[batch.id].version != batch.version:
            return None
        self.all[batch.id] = batch.evolve(version=batch.version + 1)
        return self.all[batch.id]


@dataclass
class Reader(Intake):
    """fault: what is wrong with the input."""

    fault: BadInput | None = None
    rows: int = 3
    asked: list = field(default_factory=list)

    def asked_model(self, uri):
        return "fake"

    def examine(self, request, model):
        self.asked.append(request)
        if self.fault is not None:
            raise self.fault
        spec = JobSpec(
            model="fake",
            model_kind="chat",
            model_checksum="c",
            output=request.output,
            deadline_s=request.deadline_s,
        )
        return Examined(files=(), spec=spec, total_rows=self.rows)

    def freeze(self, job, examined):
        pass


class Registry:
    def resolve(self, name):
        return Model(name=name, kind="chat", path="", engine="fake")


class Lines(Results):
    def jsonl(self, job, *, outcomes=None, which="all"):
        return iter([f"{which} line\n".encode()])


def a_keeper(folder, store, **changes):
    given = {
        "store": store,
        "intake": Reader(),
        "models": Registry(),
        "objects": LocalObjects(),
        "results": Lines(),
        "ids": SeededIds(),
        "pools": lambda: [Pool(name="fake", model="fake")],
        "folder": lambda tenant, size: f"{folder.as_uri()}/{tenant}",
        **changes,
    }
    return Keeper(**given)


def at_its_end(store, state, **outcomes):
    """The one job there is, at its end."""
    (job,) = store.jobs_made.values()
    usage = Usage(rows=sum(outcomes.values()), outcomes=outcomes)
    store.jobs_made[job.id] = job.evolve(state=state, usage=usage, finished_at=LATER)


def test_a_good_input_becomes_one_job_however_many_keepers_look_at_it(tmp_path):
    store = Records(a_batch(expires_at=160.0))
    old = store.all["batch_a"]
    one, two = a_keeper(tmp_path, store), a_keeper(tmp_path, store)
    found = [one.attend(old), two.attend(old)]
    (job,) = store.jobs_made.values()
    assert (
        [batch.status for batch in found],
        {batch.job for batch in found},
        job.spec.deadline_s,
    ) == ([BatchStatus.IN_PROGRESS] * 2, {job.id}, 60.0)


def test_a_look_goes_on_after_the_newest_it_has_seen(tmp_path):
    store = Records(a_batch("batch_a"), a_batch("batch_b"))
    keeper = a_keeper(tmp_path, store)
    assert keeper.look() == Look(list(store.all.values()), 2, "batch_b")
    assert keeper.look(after="batch_b") == Look([], 0, "batch_b")


@pytest.mark.parametrize(
    ("batch", "state", "wanted"),
    [
        pytest.param({}, None, True, id="it has no job yet"),
        pytest.param({"job": "j"}, None, True, id="its job is not there"),
        pytest.param({"job": "j", "status": BatchStatus.IN_PROGRESS}, JobState.RUNNING, False, id="it runs"),
        pytest.param({"job": "j", "status": BatchStatus.VALIDATING}, JobState.RUNNING, True, id="that is not noted"),
        pytest.param({"job": "j", "status": BatchStatus.IN_PROGRESS}, JobState.CANCELLING, True, id="job is cancelled"),
        pytest.param(
            {"job": "j", "status": BatchStatus.IN_PROGRESS, "cancel_asked": True}, JobState.PAUSED, True, id="cancel"
        ),
        pytest.param({"job": "j", "status": BatchStatus.FINALIZING}, JobState.COMPLETED, True, id="files are to write"),
    ],
)
def test_a_batch_is_looked_at_while_there_is_something_to_do(tmp_path, batch, state, wanted):
    store = Records(a_batch(**batch))
    if state is not None:
        store.jobs_made["j"] = a_job(id="j", state=state)
    assert [one.id for one in a_keeper(tmp_path, store).look().todo] == ["batch_a"] * wanted


def test_nothing_but_a_person_pauses_a_batch(tmp_path):
    store, intake = Records(a_batch()), Reader()
    a_keeper(tmp_path, store, intake=intake).attend(store.all["batch_a"])
    assert [(request.pause_on, request.idempotency_key) for request in intake.asked] == [(None, "batch:batch_a")]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        (
            {"intake": Reader(fault=BadInput(source="file:///x", reason="it is bad"))},
            (LineError(code="bad_input", message="it is bad"),),
        ),
        (
            {"intake": Reader(rows=4), "policy": KeepPolicy(max_lines=3)},
            (LineError(code="too_many_requests", message="it has 4 requests; a batch may have 3"),),
        ),
        (
            {"pools": lambda: [Pool(name="other", model="other")]},
            (
                LineError(
                    code="model_not_found",
                    message="There is no model named fake. Served here: other.",
                    line=1,
                    param="body.model",
                ),
            ),
        ),
    ],
)
def test_what_is_wrong_ends_the_batch_and_returns_its_quota(tmp_path, changes, errors):
    store = Records(a_batch(enqueued_tokens=9))
    batch = a_keeper(tmp_path, store, **changes).attend(store.all["batch_a"])
    assert (batch.status, batch.errors, batch.enqueued_tokens, batch.times, store.jobs_made) == (
        BatchStatus.FAILED,
        errors,
        0,
        {"failed": LATER},
        {},
    )


def test_a_batch_that_we_fail_at_again_and_again_is_failed_in_words_that_tell_nothing(tmp_path):
    store = Records(a_batch(enqueued_tokens=9))
    given_up = a_keeper(tmp_path, store).give_up(store.all["batch_a"])
    batch = store.all["batch_a"]
    said = "The service failed at this batch. The operator's log has it under the batch's id."
    assert (given_up, batch.status, batch.enqueued_tokens, batch.errors) == (
        True,
        BatchStatus.FAILED,
        0,
        (LineError(code="broken", message=said),),
    )


def test_a_batch_whose_job_was_written_is_never_given_up(tmp_path):
    store = Records(a_batch())
    keeper = a_keeper(tmp_path, store)
    keeper.attend(store.all["batch_a"])
    store.all["batch_a"] = a_batch(version=1)  # as if it had died before it could note the job
    assert (keeper.give_up(store.all["batch_a"]), store.all["batch_a"].status) == (False, BatchStatus.VALIDATING)


def test_a_batch_that_was_cancelled_while_it_was_checked_still_accounts_for_its_lines(tmp_path):
    store = Records(a_batch())
    cancel_batch(store, store.all["batch_a"])
    batch = a_keeper(tmp_path, store).attend(store.all["batch_a"])
    (job,) = store.jobs_made.values()
    assert (batch.status, job.state) == (BatchStatus.CANCELLING, JobState.CANCELLING)


@pytest.mark.parametrize(
    ("state", "outcomes", "status", "files"),
    [
        (JobState.COMPLETED, {"ok": 3}, BatchStatus.COMPLETED, {"output"}),
        (JobState.COMPLETED, {"ok": 2, "error": 1}, BatchStatus.COMPLETED, {"output", "error"}),
        (JobState.FAILED, {"error": 3}, BatchStatus.COMPLETED, {"error"}),
        (JobState.EXPIRED, {"truncated": 1, "expired": 2}, BatchStatus.EXPIRED, {"output", "error"}),
        (JobState.CANCELLED, {"cancelled": 3}, BatchStatus.CANCELLED, {"error"}),
    ],
)
def test_at_its_jobs_end_a_batch_has_the_files_that_have_lines(tmp_path, state, outcomes, status, files):
    store = Records(a_batch())
    keeper = a_keeper(tmp_path, store)
    keeper.attend(store.all["batch_a"])
    at_its_end(store, state, **outcomes)
    batch = keeper.attend(store.all["batch_a"])
    written = {which: store.uploads[f"file-a-{which}"].size for which in files}
    assert (batch.status, batch.output_file is not None, batch.error_file is not None, written) == (
        status,
        "output" in files,
        "error" in files,
        {which: len(f"{which} line\n") for which in files},
    )


def test_several_are_brought_on_together_and_one_with_a_bad_input_ends_alone(tmp_path):
    store = Records(a_batch("batch_a"), a_batch("batch_b", input_file="file-none"), a_batch("batch_c"))
    keeper = a_keeper(tmp_path, store)
    begun = keeper.attend_all(list(store.all.values()))
    for job in store.jobs_made.values():
        usage = Usage(rows=3, outcomes={"ok": 3})
        store.jobs_made[job.id] = job.evolve(state=JobState.COMPLETED, usage=usage, finished_at=LATER)
    ended = keeper.attend_all(begun)
    assert [(one.id, one.status, other.status, other.output_file) for one, other in zip(begun, ended, strict=True)] == [
        ("batch_a", BatchStatus.IN_PROGRESS, BatchStatus.COMPLETED, "file-a-output"),
        ("batch_b", BatchStatus.FAILED, BatchStatus.FAILED, None),
        ("batch_c", BatchStatus.IN_PROGRESS, BatchStatus.COMPLETED, "file-c-output"),
    ]


@pytest.mark.parametrize("rows", [3, 1000])
def test_a_batch_was_finalizing_before_it_was_completed(tmp_path, rows):
    store = Records(a_batch())
    keeper = a_keeper(tmp_path, store, intake=Reader(rows=rows))
    keeper.attend(store.all["batch_a"])
    at_its_end(store, JobState.COMPLETED, ok=rows)
    assert keeper.attend(store.all["batch_a"]).times.keys() == {"in_progress", "finalizing", "completed"}


@pytest.mark.parametrize("rows", [3, 1000])
def test_a_file_that_a_dead_keeper_wrote_is_the_one_that_counts(tmp_path, rows):
    store = Records(a_batch(output_expires_s=3600))
    keeper = a_keeper(tmp_path, store, intake=Reader(rows=rows))
    keeper.attend(store.all["batch_a"])
    at_its_end(store, JobState.COMPLETED, ok=rows)
    keeper.objects.put_if_absent(f"{keeper.folder('default', None)}/files/file-a-output.jsonl", b"of another release\n")
    keeper.attend(store.all["batch_a"])
    file = store.uploads["file-a-output"]
    assert (file.size, file.expires_at, file.filename) == (19, LATER + 3600, "batch_a_output.jsonl")


def test_a_batch_at_its_end_cannot_be_cancelled_and_one_that_was_stays_so(tmp_path):
    done = Records(a_batch(status=BatchStatus.COMPLETED))
    with pytest.raises(BatchEnded):
        cancel_batch(done, done.all["batch_a"])
    gone = Records(a_batch(status=BatchStatus.CANCELLED, cancel_asked=True))
    assert cancel_batch(gone, gone.all["batch_a"]).status is BatchStatus.CANCELLED
