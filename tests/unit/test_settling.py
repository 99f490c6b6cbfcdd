"""workers/settling.py: small whole works are settled in lists, all others by themselves."""

import pytest

from jobs.errors import Broken
from jobs.model import Outcome
from jobs.moves import Answer
from tests.support.bench import Inline, Later
from tests.support.rows import MemoryRows
from tests.support.values import a_job, a_leased_task, a_result, span
from workers.settling import Settling
from workers.work import Work

pytestmark = pytest.mark.unit


class Desk:
    """A settler that takes notes, and its sink. bad: tasks that it fails at."""

    def __init__(self, *bad):
        self.bad, self.seen, self.sink = bad, [], self

    def shares(self, job):
        return job.id != "elsewhere"

    def finish_all(self, works):
        names = [work.task.id for work in works]
        self.seen.append(names)
        if set(names) & set(self.bad):
            raise Broken(reason="x")
        return [Answer.MADE] * len(works)

    def finish(self, work):
        self.seen.append(work.task.id)
        return Answer.MADE

    def after_death(self, work):
        self.seen.append(f"{work.task.id} died")
        return Answer.LOST


def a_work(name, rows=2, done=True, **changes):
    task = a_leased_task(id=name, ranges=span(0, rows), rows=rows)
    work = Work(job=a_job(), task=task, rows=MemoryRows().open(a_job(), task), slot=1, opened_s=0.0)
    work.take(rows)
    for index in range(rows if done else 0):
        work.file(index, a_result(index))
    for field, value in changes.items():
        setattr(work, field, value)
    return work


def test_whole_works_of_few_rows_that_come_meanwhile_are_one_list_and_the_others_go_alone():
    desk, few = Desk(), Later()
    settling = Settling(desk, many=Inline(), few=few)
    works = [
        a_work("a"), a_work("b"), a_work("c"), a_work("d"), a_work("many", rows=300), a_work("left", done=False),
        a_work("over", ending=Outcome.CANCELLED), a_work("its own", job=a_job(id="elsewhere")),
    ]  # fmt: skip
    for work in works:
        settling.finish(work)
    settling.after_death(works[0])
    under_way = len(settling.works)
    few.run()
    assert desk.seen == ["many", ["a", "b", "c", "d"], "left", "over", "its own", "a died"]
    assert (under_way, len([*settling.over()]), settling.works, [*settling.over()]) == (9, 9, [], [])


def test_of_a_list_that_failed_each_is_tried_alone():
    desk, few = Desk("b"), Later()
    settling = Settling(desk, many=Inline(), few=few)
    for name in ("a", "b", "c"):
        settling.finish(a_work(name))
    few.run()
    ends = {work.task.id: future.exception() is None for work, future in settling.over()}
    assert (desk.seen, ends) == ([["a", "b", "c"], ["a"], ["b"], ["c"]], {"a": True, "b": False, "c": True})
