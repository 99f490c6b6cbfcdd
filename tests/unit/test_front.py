"""workers/front.py: over doors in memory, a request ends once, and goes to another door only before its first piece."""

import pytest

from jobs.requests import End, Ended, Load
from tests.support.fronts import DONE, LOST, OPEN, REFUSED, FakeDoor, Square, pieces

pytestmark = pytest.mark.unit

FULL = Load(seats=4, used=4, open=True, wait_s=1.0)
HI = pieces("h", "i")


def test_what_the_door_says_is_told_in_order():
    town = Square([FakeDoor("a", *HI, DONE)])
    assert town.ask() == [*HI, DONE]


def test_a_door_that_refuses_or_is_lost_before_a_piece_is_followed_by_the_next():
    doors = [FakeDoor("a", REFUSED), FakeDoor("b", LOST), FakeDoor("c", *HI, DONE)]
    town = Square(doors)
    assert town.ask() == [*HI, DONE]
    assert [door.entered for door in doors] == [["req-a"]] * 3
    assert town.figures()["request_retries_total", "m", "refused"] == 1


def test_a_loss_after_a_piece_is_told_as_it_is():
    doors = [FakeDoor("a", *HI, LOST), FakeDoor("b", DONE)]
    assert (Square(doors).ask(), doors[1].entered) == ([*HI, LOST], [])


def test_a_refusal_after_a_piece_ends_it_too():
    doors = [FakeDoor("a", *HI, REFUSED), FakeDoor("b", DONE)]
    told = Square(doors).ask()
    assert (told, doors[1].entered) == ([*HI, REFUSED.evolve(end=End.LOST)], [])


def test_what_breaks_on_the_way_to_another_door_ends_the_request():
    broken = FakeDoor("b")
    broken.enter = None
    town = Square([FakeDoor("a", REFUSED), broken])
    told = town.ask()
    assert ([one.end for one in told], town.front._open) == ([End.LOST], {})


def test_what_breaks_at_the_first_door_is_told_to_whoever_asks():
    broken = FakeDoor("a")
    broken.enter = None
    town = Square([broken])
    with pytest.raises(TypeError):
        town.ask()
    assert town.front._open == {}


def test_when_all_refuse_the_least_wait_is_told_once():
    doors = [FakeDoor("a", REFUSED), FakeDoor("b", REFUSED.evolve(retry_after_s=0.5))]
    town = Square(doors)
    assert town.ask() == [Ended(end=End.REFUSED, retry_after_s=0.5, reason="full")]
    assert town.ways.asks == [("m", False), ("m", True)]


def test_without_a_worker_one_is_asked_for_and_its_start_is_predicted():
    town = Square([FakeDoor("a", DONE, load=Load())])
    assert town.ask() == [Ended(end=End.REFUSED, retry_after_s=30.0, reason="no worker of the model is ready")]


def test_a_request_with_which_two_workers_died_goes_to_no_third():
    doors = [FakeDoor(name, LOST) for name in "abc"]
    assert [one.end for one in Square(doors).ask()] == [End.LOST]
    assert doors[2].entered == []


def test_interactive_pools_come_first_while_they_have_room():
    talk, mixed = FakeDoor("z", DONE), FakeDoor("a", DONE)
    town = Square([talk], [mixed])
    town.ask("req-1")
    talk.now = FULL
    town.ask("req-2")
    assert (talk.entered, mixed.entered) == (["req-1"], ["req-2"])


def test_what_is_under_way_counts_before_the_load_shows_it():
    doors = [FakeDoor("a"), FakeDoor("b")]
    town = Square(doors)
    for number in range(4):
        town.ask(f"req-{number}")
    assert [len(door.entered) for door in doors] == [2, 2]
    for number in range(4):
        for door in doors:
            if f"req-{number}" in door.hears:
                door.say(f"req-{number}", DONE)
    town.ask("req-5")
    assert doors[0].entered[-1] == "req-5"


def test_a_prompt_goes_where_its_beginning_was_served():
    doors = [FakeDoor("a", DONE), FakeDoor("b", DONE, load=OPEN.evolve(used=1))]
    town = Square(doors)
    town.ask("req-1", prompt="x" * 300)
    doors[0].now = OPEN.evolve(used=2)
    town.ask("req-2", prompt="x" * 300 + "y")
    town.ask("req-3", prompt="z" * 300)
    assert (doors[0].entered, doors[1].entered) == (["req-1", "req-2"], ["req-3"])


def test_who_leaves_is_followed_to_the_door_that_has_the_request():
    doors = [FakeDoor("a"), FakeDoor("b")]
    town = Square(doors)
    town.ask()
    doors[0].say("req-a", REFUSED)
    town.front.leave("req-a")
    doors[1].say("req-a", aborted := Ended(end=End.ABORTED))
    town.front.leave("req-a")
    assert (doors[0].left, doors[1].left, town.heard["req-a"]) == ([], ["req-a"], [aborted])


def test_who_leaves_while_it_is_on_the_way_leaves_the_door_that_it_reached():
    town = Square([door := FakeDoor("a")])
    enter = door.enter

    def slow(request, hear):
        town.front.leave(request.id)
        door.left.clear()  # the door did not know it yet
        enter(request, hear)

    door.enter = slow
    town.ask()
    assert door.left == ["req-a"]


def test_who_left_is_not_taken_to_another_door():
    doors = [FakeDoor("a"), FakeDoor("b")]
    town = Square(doors)
    town.ask()
    town.front.leave("req-a")
    doors[0].say("req-a", LOST)
    assert (doors[1].entered, [one.end for one in town.heard["req-a"]]) == ([], [End.LOST])


def test_figures_count_requests_by_their_end_and_time_their_first_token():
    town = Square([door := FakeDoor("a")])
    town.ask()
    town.clock.advance(0.5)
    door.say("req-a", *HI)
    open_ = town.figures()["requests_open", "m"]
    town.clock.advance(1.5)
    door.say("req-a", DONE)
    found = town.figures()
    assert (open_, found["requests_total", "m", "done"]) == (1, 1)
    assert (found["request_first_token_seconds", "m"].total, found["request_seconds", "m"].total) == (0.5, 2.0)


# ---- health -------------------------------------------------------------------------------------


def three_lost_probes(town):
    for _ in range(3):
        town.step(5.0)
        town.step(1.0)


def test_three_probes_without_a_token_open_the_circuit_and_one_with_it_closes_it():
    town = Square([door := FakeDoor("a")])
    town.step()
    three_lost_probes(town)
    assert (town.ask("req-1")[0].end, door.left) == (End.REFUSED, ["probe-1", "probe-2", "probe-3"])
    town.step(5.0)
    assert town.figures()["circuits", "m", "half_open"] == 1
    door.say("probe-4", *HI, DONE)
    town.ask("req-2")
    assert (door.entered[-1], town.figures()["circuits", "m", "closed"]) == ("req-2", 1)
    assert town.figures()["probes_total", "m", "failed"] == 3


def test_a_token_of_a_request_proves_a_full_engine():
    town = Square([door := FakeDoor("a")])
    town.step()
    town.ask()
    for _ in range(5):
        town.step(5.0)
        door.say("req-a", *HI)
        town.step(1.0)
    assert town.figures()["circuits", "m", "closed"] == 1


def test_an_engine_that_moves_tokens_of_others_is_not_taken_for_dead():
    town = Square([door := FakeDoor("a")])
    town.step()
    for number in range(5):
        town.step(5.0)
        door.now = OPEN.evolve(tokens_moved=number + 1)
        town.step(1.0)
    assert town.figures()["circuits", "m", "closed"] == 1


def test_tokens_within_the_interval_spare_the_probe():
    town = Square([door := FakeDoor("a")])
    town.step()
    town.ask()
    for _ in range(4):
        town.step(4.0)
        door.say("req-a", *HI)
    town.step(0.5)
    assert town.probes == 0


def test_an_error_is_no_token():
    town = Square([FakeDoor("a", LOST)])
    town.step()
    for _ in range(3):
        town.step(5.0)
    assert town.figures()["circuits", "m", "open"] == 1


def test_a_probe_that_was_judged_says_nothing_more():
    town = Square([door := FakeDoor("a")])
    town.step()
    three_lost_probes(town)
    for said in (DONE, LOST):
        door.say("probe-1", said)
    found = town.figures()
    assert (found["circuits", "m", "open"], found["probes_total", "m", "failed"]) == (1, 3)


def test_a_worker_that_is_not_open_is_not_probed_and_begins_anew():
    town = Square([door := FakeDoor("a")])
    town.step()
    three_lost_probes(town)
    door.now = Load()
    town.step(20.0)
    door.now = OPEN
    town.step()
    assert (town.probes, town.figures()["circuits", "m", "closed"]) == (3, 1)
