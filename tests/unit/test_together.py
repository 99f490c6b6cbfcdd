"""workers/together.py: what many ask for one by one is done in lists, and a failure stays its own."""

import pytest

from jobs.errors import DatabaseUnavailable
from tests.support.bench import Inline, Later
from workers.together import Together

pytestmark = pytest.mark.unit
AWAY = DatabaseUnavailable(where="it", reason="gone")


class Desk:
    """Doubles numbers; the list of each call is in `lists`. faults: what is raised at a list with this number."""

    def __init__(self, **faults):
        self.lists, self.faults, self.threads = [], faults, Later()
        self.together = Together(self.work, self.threads)

    def work(self, items):
        self.lists.append([*items])
        for item in items:
            if f"n{item}" in self.faults:
                raise self.faults[f"n{item}"]
        return [2 * item for item in items]

    def ask(self, *items):
        asked = [self.together.submit(item) for item in items]
        self.threads.run()
        return [future.exception(0) or future.result(0) for future in asked]


def test_those_who_wait_are_one_list_and_each_has_its_own_result():
    desk = Desk()
    assert (desk.ask(1, 2, 3), desk.lists) == ([2, 4, 6], [[1, 2, 3]])


def test_where_a_list_fails_each_is_tried_alone():
    fault = ZeroDivisionError()
    desk = Desk(n2=fault)
    assert (desk.ask(1, 2, 3), desk.lists) == ([2, fault, 6], [[1, 2, 3], [1], [2], [3]])


def test_a_backend_that_is_away_is_not_asked_again_for_each():
    desk = Desk(n2=AWAY)
    assert (desk.ask(1, 2, 3), desk.lists) == ([AWAY] * 3, [[1, 2, 3]])


def test_what_failed_in_a_list_comes_again_alone_and_holds_up_no_other():
    desk = Desk(n2=AWAY)
    asked = [desk.together.submit(1), desk.together.submit(2, alone=True), desk.together.submit(3)]
    desk.threads.run()
    assert ([future.exception(0) for future in asked], desk.lists) == ([None, AWAY, None], [[1, 3], [2]])


def test_a_list_that_is_answered_with_too_little_is_tried_one_by_one():
    threads = Later()
    together = Together(lambda items: [2 * item for item in items][:1], threads)
    asked = [together.submit(1), together.submit(2)]
    threads.run()
    assert [future.result(0) for future in asked] == [2, 4]


def test_a_list_has_at_most_sixty_four_and_two_lists_are_begun_at_a_time():
    desk = Desk()
    desk.ask(*range(100))
    assert ([len(one) for one in desk.lists], len(desk.threads.given)) == ([64, 36], 2)


def test_whoever_comes_after_all_lists_are_through_begins_a_new_one():
    together = Together(lambda items: [2 * item for item in items], Inline())
    assert [together.submit(n).result(0) for n in range(5)] == [0, 2, 4, 6, 8]
