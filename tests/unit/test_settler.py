"""workers/settler.py: every way a task can leave a worker, against the reference board."""

import pytest

from infra.clocks import ManualClock
from jobs import ledger, moves
from jobs.errors import DatabaseUnavailable, StorageFull
from jobs.model import JobState, Outcome, TaskState, Usage, VoidReason
from jobs.moves import Answer, Waste
from jobs.ports.engine import EngineResult
from jobs.ranges import Range
from tests.support.rows import MemoryRows, MemorySink
from tests.support.store import a_store
from tests.support.values import a_job, a_leased_task, a_part, a_result, span
from workers.settler import Settler
from workers.work import Work

pytestmark = pytest.mark.unit


class Table:
    """A leased task on the board, its work, and the settler."""

    def __init__(self, faulty=(), **task):
        self.task = a_leased_task(**task)
        self.clock, self.sink = ManualClock(), MemorySink()
        self.store = a_store(a_job(), self.task)
        self.settler = Settler(store=self.store, sink=self.sink, clock=self.clock)
        rows = MemoryRows(faulty).open(a_job(), self.task)
        self.work = Work(job=a_job(), task=self.task, rows=rows, slot=1, opened_s=0.0)

    def feed(self, rows):
        self.work.take(rows)
        return self

    def finish(self, *indices, **result):
        for index in indices:
            self.work.file(index, a_result(index, **result))
        return self

    def children(self):
        return {c.id: (c.ranges, c.suspect) for c in self.store.board.tasks.values() if c.parent == "j.0"}

    def outcomes(self):
        return self.sink.rows_of(self.store.board.manifest)

    def charged(self):
        return [entry for entry in self.store.board.entries if entry.kind == "usage"]

    def wasted(self):
        return [(move.name, move.waste) for move in self.store.made if move.waste]


def struck(cause="engine_died", **usage):
    return Waste(cause=cause, usage=Usage(**usage))


# ---- at rest --------------------------------------------------------------------------------------


def test_a_task_whose_rows_are_all_done_is_committed_with_its_charge():
    table = Table().feed(10).finish(*range(10))
    assert table.settler.finish(table.work) is Answer.MADE
    usage = Usage(rows=10, input_tokens=60, cached_tokens=40, output_tokens=50, outcomes={"ok": 10})
    assert table.store.made == [
        moves.commit(
            table.task,
            part=a_part(table.task),
            usage=usage,
            entries=ledger.charge(a_job(), "j.0", usage, table.clock.now()),
        )
    ]
    assert table.outcomes() == dict.fromkeys(range(10), Outcome.OK)


def test_faults_count_as_rows_of_the_part_without_having_been_fed():
    table = Table(faulty=[3, 4]).feed(10).finish(0, 1, 2, 5, 6, 7, 8, 9)
    assert table.settler.finish(table.work) is Answer.MADE
    assert [row for row, outcome in table.outcomes().items() if outcome is Outcome.ERROR] == [3, 4]
    assert table.store.states() == {"j.0": TaskState.DONE}


def test_a_stopped_task_commits_what_is_finished_and_leaves_the_rest_to_one_child():
    table = Table().feed(4).finish(0, 1, 3)
    table.work.file(2, EngineResult(2, "abort", input_tokens=10, output_tokens=2))
    assert table.settler.finish(table.work) is Answer.MADE
    assert table.store.states() == {"j.0": TaskState.SPLIT, "j.0.0": TaskState.QUEUED}
    assert table.children() == {"j.0.0": ((Range(2, 3), Range(4, 10)), False)}
    assert table.outcomes() == dict.fromkeys([0, 1, 3], Outcome.OK)
    (entry, *_), posted = table.charged(), [e for e in table.store.board.entries if e.kind == "waste"]
    assert (entry.txn, entry.tokens) == ("use:j.0", 18)
    assert [(e.txn, e.account, e.tokens) for e in posted] == [
        ("waste:j.0:1:drain", "platform:waste", 12),
        ("waste:j.0:1:drain", "platform:capacity", 0),
    ]
    ledger.check_balanced(table.store.board.entries)


def test_a_stopped_suspect_stays_suspect_in_its_child():
    table = Table(suspect=True).feed(4).finish(0, 1, 2, 3)
    table.settler.finish(table.work)
    assert table.children() == {"j.0.0": (span(4, 10), True)}


def test_a_stopped_task_without_a_finished_row_goes_back_as_it_was():
    table = Table(alone_deaths=1, suspect=True)
    assert table.settler.finish(table.work) is Answer.MADE
    assert table.store.board.tasks == {
        "j.0": table.task.evolve(state=TaskState.QUEUED, ticket=None, token=None, owner=None, lease_until=None)
    }
    assert (table.store.board.manifest, table.charged()) == ((), [])


def test_in_an_ending_job_unfinished_rows_are_written_as_what_ended_it():
    table = Table(faulty=[9]).feed(4).finish(0, 1)
    table.work.ending = Outcome.CANCELLED
    table.store.set_job_state(JobState.CANCELLING)
    assert table.settler.finish(table.work) is Answer.MADE
    cancelled = dict.fromkeys(range(2, 9), Outcome.CANCELLED)
    assert table.outcomes() == {0: Outcome.OK, 1: Outcome.OK, **cancelled, 9: Outcome.ERROR}
    assert table.store.states() == {"j.0": TaskState.DONE}
    assert sum(entry.tokens for entry in table.charged()) == 30


def test_a_lost_lease_changes_nothing():
    table = Table().feed(10).finish(*range(10))
    table.store.take_lease_away("j.0")
    before = table.store.board
    assert table.settler.finish(table.work) is Answer.LOST
    assert table.store.board == before


# ---- the engine died ------------------------------------------------------------------------------


def test_the_first_death_keeps_what_is_finished_and_sets_the_rows_that_were_inside_apart():
    table = Table().feed(6).finish(0, 2)
    assert table.settler.after_death(table.work) is Answer.MADE
    assert table.outcomes() == dict.fromkeys([0, 2], Outcome.OK)
    assert table.children() == {
        "j.0.0": ((Range(1, 2), Range(3, 6)), True),
        "j.0.1": (span(6, 10), False),
    }


def test_with_nothing_finished_the_task_is_divided_without_a_part():
    table = Table().feed(6)
    assert table.settler.after_death(table.work) is Answer.MADE
    assert table.children() == {"j.0.0": (span(0, 6), True), "j.0.1": (span(6, 10), False)}
    assert table.store.board.manifest == ()
    assert table.wasted() == [("divide", struck())]


def test_with_all_rows_inside_the_task_itself_becomes_suspect():
    table = Table().feed(10)
    assert table.settler.after_death(table.work) is Answer.MADE
    task = table.store.board.tasks["j.0"]
    assert (task.state, task.suspect, task.alone_deaths) == (TaskState.QUEUED, True, 0)


def test_a_suspect_that_kills_again_is_halved():
    table = Table(suspect=True).feed(10).finish(0)
    assert table.settler.after_death(table.work) is Answer.MADE
    assert table.children() == {"j.0.0": (span(1, 6), True), "j.0.1": (span(6, 10), True)}


def test_rows_of_a_suspect_that_had_not_entered_this_time_stay_suspect():
    table = Table(suspect=True).feed(4)
    assert table.settler.after_death(table.work) is Answer.MADE
    assert table.children() == {
        "j.0.0": (span(0, 2), True),
        "j.0.1": (span(2, 4), True),
        "j.0.2": (span(4, 10), True),
    }


def test_the_one_row_inside_is_cut_out_of_a_larger_suspect():
    table = Table(suspect=True).feed(10).finish(*range(9))
    assert table.settler.after_death(table.work) is Answer.MADE
    assert table.children() == {"j.0.0": (span(9, 10), True)}


def test_a_single_row_that_killed_alone_has_its_death_counted():
    table = Table(ranges=span(3, 4), suspect=True).feed(1)
    assert table.settler.after_death(table.work) is Answer.MADE
    task = table.store.board.tasks["j.0"]
    assert (task.state, task.suspect, task.alone_deaths) == (TaskState.QUEUED, True, 1)


def test_a_single_row_that_killed_alone_twice_is_given_up():
    table = Table(ranges=span(3, 4), suspect=True, alone_deaths=1).feed(1)
    assert table.settler.after_death(table.work) is Answer.MADE
    task = table.store.board.tasks["j.0"]
    assert (task.state, task.void_reason) == (TaskState.VOID, VoidReason.DEAD)
    assert table.store.board.reserved == {}


# ---- handing back, and a database that is away ----------------------------------------------------


def test_what_was_spent_on_a_task_handed_back_is_waste():
    table = Table().feed(2).finish(0, 1)
    assert table.settler.hand_back(table.work, "paused") is Answer.MADE
    (waste,) = [waste for _, waste in table.wasted()]
    assert waste == Waste(
        cause="paused",
        usage=Usage(rows=2, input_tokens=12, cached_tokens=8, output_tokens=10),
        entries=ledger.waste(a_job(), "j.0", 1, "paused", waste.usage, table.clock.now()),
    )


def test_a_database_that_is_away_is_waited_for():
    table = Table().feed(10).finish(*range(10))
    table.store.away = 3
    began = table.clock.monotonic()
    assert table.settler.finish(table.work) is Answer.MADE
    assert table.clock.monotonic() - began == 0.5 + 1.0 + 2.0


def test_a_commit_whose_answer_was_lost_is_already_made_and_charged_once():
    table = Table().feed(10).finish(*range(10))
    table.store.lost_answers = 1
    assert table.settler.finish(table.work) is Answer.ALREADY
    assert [move.name for move in table.store.made] == ["commit"]


def test_whole_tasks_are_committed_in_a_list_by_one_write_of_their_parts_and_one_of_their_moves():
    tables = [Table(id=name).feed(10).finish(*range(10)) for name in ("j.0", "j.1")]
    store = a_store(a_job(), *[table.task for table in tables])
    settler = Settler(store=store, sink=MemorySink(), clock=ManualClock())
    store.lost_answers = 1
    answers = settler.finish_all([table.work for table in tables])
    assert (answers, store.calls) == ([Answer.ALREADY] * 2, 2)
    assert {name: task.state for name, task in store.board.tasks.items()} == dict.fromkeys(
        ("j.0", "j.1"), TaskState.DONE
    )


def test_a_database_that_stays_away_ends_the_wait():
    table = Table().feed(10).finish(*range(10))
    table.store.away = 1000
    with pytest.raises(DatabaseUnavailable):
        table.settler.finish(table.work)


def test_a_full_disk_is_not_waited_for():
    table = Table().feed(10).finish(*range(10))

    def full(*_args, **_kwargs):
        raise StorageFull(where="/data")

    table.sink.write = full
    with pytest.raises(StorageFull):
        table.settler.finish(table.work)
    assert table.clock.monotonic() == 0.0


# ---- counted ----------------------------------------------------------------------------------------


def counted(table):
    committed = table.settler.committed
    return dict(committed.outcomes), dict(committed.tokens), sum(committed.seconds.counts)


def test_a_commit_counts_rows_by_outcome_and_tokens_by_class_once_though_its_answer_was_lost():
    table = Table(faulty=[3]).feed(9).finish(0, 1, 2, 4, 5, 6, 7, 8, 9)
    table.store.lost_answers = 1
    assert table.settler.finish(table.work) is Answer.ALREADY
    assert counted(table) == ({"ok": 9, "error": 1}, {"input": 54, "cached": 36, "output": 45}, 1)


def test_a_drain_counts_the_rows_that_it_commits_and_no_other():
    table = Table().feed(10).finish(0, 1)
    table.work.stopping = True
    table.work.inside.clear()
    table.settler.finish(table.work)
    assert counted(table) == ({"ok": 2}, {"input": 12, "cached": 8, "output": 10}, 1)


def test_what_was_settled_for_a_lost_lease_or_given_back_counts_nothing():
    lost = Table().feed(10).finish(*range(10))
    lost.store.take_lease_away("j.0")
    lost.settler.finish(lost.work)
    back = Table().feed(10).finish(0)
    back.settler.hand_back(back.work, "drain")
    assert [counted(lost), counted(back)] == [({}, {}, 0)] * 2
