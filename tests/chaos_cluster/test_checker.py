"""The checker can fail: it finds each thing that must never be true of a job that ended, and nothing in a sound one."""

import io
import shutil
import sqlite3
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.sql import open_store
from tests.chaos.plans import CHAT
from tests.chaos.scene import Scene, Variant
from tests.chaos_cluster import checker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]

ROWS = 200
PART = "part-00001.parquet"


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A job that ended well, embedded: a cluster's has the same tables and files."""
    made = Scene(tmp_path_factory.mktemp("sound"), Variant(name="sound", rows=ROWS, options=CHAT))
    done = made.nightmill(*made.run_line())
    assert done.code == 0, done.err
    return made


@pytest.fixture
def job(scene, tmp_path):
    """A copy to break."""
    return Copy(scene, shutil.copytree(scene.home, tmp_path / "home"))


class Copy:
    def __init__(self, scene, home):
        self.id, self.home = scene.job()["id"], home
        folder = scene.folder_of_job()
        self.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def ended(self):
        store = open_store(self.home)
        try:
            return checker.read(store, self.id, self.files)
        finally:
            store.close()

    def faults(self, quiet=None):
        return checker.faults(self.ended(), rows=ROWS, quiet=quiet)

    def tamper(self, statement):
        """Past the triggers."""
        connection = sqlite3.connect(self.home / "nightmill.db", isolation_level=None)
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        assert connection.execute(statement).rowcount > 0
        connection.close()

    def change(self, how, name=PART):
        table = how(pq.read_table(io.BytesIO(self.files[name])))
        data = io.BytesIO()
        pq.write_table(table, data)
        self.files[name] = data.getvalue()


def test_it_finds_nothing_in_a_job_that_ended_well(job):
    assert job.faults(job.ended()) == []


def doubled(table):
    return pa.concat_tables([table, table.slice(0, 1)])


def of_another_text(table):
    place = table.column_names.index("output")
    return table.set_column(place, table.schema.field(place), pa.array(["?"] * table.num_rows))


ROWS_GONE_WRONG = [
    (doubled, "1 rows are there twice: "),
    (lambda table: table.slice(1), "1 rows are missing: "),
    (of_another_text, "columns differ from the quiet run: ['output']"),
]


@pytest.mark.parametrize(("how", "fault"), ROWS_GONE_WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_it_finds_rows_that_are_not_there_once_or_not_the_same(job, how, fault):
    quiet = job.ended()
    job.change(how)
    found = job.faults(quiet)
    assert [text for text in found if text.startswith(fault)], found
    assert f"{PART} has another checksum than the manifest says" in found


TAMPERING = [
    ("DELETE FROM entries WHERE txn = (SELECT min(txn) FROM entries)", "has no charge"),
    ("DELETE FROM entries WHERE id = (SELECT min(id) FROM entries)", "has 3 lines"),
    ("UPDATE parts SET task = 'gone.1', uri = '/x/gone.1-t.parquet' WHERE task = (SELECT min(task) FROM parts)",
     "is charged without a part"),
    ("UPDATE entries SET amount_pico = amount_pico + 1 WHERE id = (SELECT min(id) FROM entries)", "the tenant owes "),
    ("UPDATE reservations SET state = 'open' WHERE task = (SELECT min(task) FROM reservations)",
     "1 reservations are open"),
    ("UPDATE tasks SET state = 'leased' WHERE id = (SELECT min(id) FROM tasks)", "1 tasks are open"),
    ("UPDATE jobs SET state = 'failed'", "the job is failed"),
    ("UPDATE jobs SET sealed_at = NULL", "the job is not sealed"),
    ("UPDATE job_totals SET usage = replace(usage, '\"rows\":200', '\"rows\":201')",
     "the record's rows is 201, not 200"),
    ("UPDATE blocks SET root = 'x' WHERE rowid = 1", "the book: "),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "fault"), TAMPERING, ids=[fault for _, fault in TAMPERING])
def test_it_finds_what_is_wrong_in_the_database(job, statement, fault):
    job.tamper(statement)
    found = job.faults()
    assert [text for text in found if fault in text], found


@pytest.mark.parametrize("name", ["_SUCCESS", "_manifest.json", PART])
def test_it_finds_files_that_are_missing_or_too_many(job, name):
    kept = job.files.pop(name)
    assert [text for text in job.faults() if "missing" in text or "no manifest" in text]
    job.files |= {name: kept, "part-99999.parquet": kept}
    if name == PART:
        assert "part-99999.parquet is left over" in job.faults()


def test_it_finds_a_part_of_a_worker_that_should_have_been_dead(job):
    ended = job.ended()
    token = ended.parts[0].rpartition("-")[2].removesuffix(".parquet")
    assert checker.zombies(ended, ["another", token]) == [
        f"{ended.parts[0]} was committed by a worker that woke up after its lease had ended"
    ]


def test_it_compares_money_and_usage_with_the_quiet_run(job):
    ended = job.ended()
    other = replace(ended, amount_pico=1, spent={}, usage={"rows": 0})
    assert [text.partition(" is ")[0] for text in checker.faults(ended, rows=ROWS, quiet=other)] == [
        "usage", "amount_pico", "spent",
    ]  # fmt: skip
