"""workers/crews.Crowd: for which worker of a pool the next task is leased."""

import pytest

from jobs.model import Priority
from tests.support.values import a_job, a_leased_task
from workers.crews import Crowd

pytestmark = pytest.mark.unit

NORMAL, HIGH = Priority.NORMAL, Priority.HIGH


class Hands:
    def __init__(self):
        self.handed, self.returned, self.takes = [], [], True
        self.crowd = Crowd(hand=self.hand, give_back=self.returned.append)

    def hand(self, job, task):
        self.handed.append(task)
        return self.takes


def test_the_worker_with_the_most_room_gets_the_next_task():
    crowd = Hands().crowd
    crowd.seen({"a": {NORMAL: 5}, "b": {NORMAL: 9}})
    assert (crowd.whom([(NORMAL, 1)]), crowd.room(NORMAL)) == (["b"], True)


def test_each_priority_has_room_of_its_own():
    crowd = Hands().crowd
    crowd.seen({"a": {NORMAL: 0, HIGH: 5}})
    assert crowd.whom([(NORMAL, 1), (HIGH, 1)]) == [None, "a"]


def test_a_task_takes_its_room_before_the_next_report():
    hands = Hands()
    hands.crowd.seen({"a": {NORMAL: 9}, "b": {NORMAL: 5}})
    hands.crowd.accept(a_job(), a_leased_task(owner="a"))
    assert hands.crowd.whom([(NORMAL, 1)]) == ["b"]


def test_a_task_that_is_not_taken_goes_back_and_its_worker_gets_none_until_it_reports():
    hands = Hands()
    hands.takes = False
    hands.crowd.seen({"a": {NORMAL: 99}})
    hands.crowd.accept(a_job(), task := a_leased_task(owner="a"))
    assert (hands.handed, hands.returned, hands.crowd.whom([(NORMAL, 1)])) == ([task], [task], [None])
    hands.crowd.seen({"a": {NORMAL: 99}})
    assert hands.crowd.whom([(NORMAL, 1)]) == ["a"]


def test_without_workers_there_is_no_room():
    assert not Hands().crowd.room(NORMAL)


def test_tasks_of_one_list_share_out_the_room_that_is_left():
    crowd = Hands().crowd
    crowd.seen({"a": {NORMAL: 9, HIGH: 1}, "b": {NORMAL: 5}})
    asked = [(NORMAL, 6), (NORMAL, 4), (HIGH, 2), (HIGH, 1), (NORMAL, 3), (NORMAL, 9)]
    assert crowd.whom(asked) == ["a", "b", "a", None, "a", "b"]
    assert crowd.whom([(NORMAL, 1)]) == ["a"]
