"""workers/live.Live: requests in a worker, on an engine that does what the test says."""

import json

import pytest

from infra.clocks import ManualClock
from jobs.errors import EngineDied
from jobs.model import Usage
from jobs.ports.engine import EnginePiece, EngineResult, RequestProfile, Several
from jobs.requests import URGENT, End, Ended, Load, Piece
from tests.support.engine import ScriptedEngine
from tests.support.live import Ear, InlinePoster, a_live, a_live_request, many_inputs

pytestmark = pytest.mark.unit


class Desk:
    """A `Live` and the part of the worker's loop that concerns it. rows: of tasks, inside the engine."""

    def __init__(self, seats=4, per_poll=0, **policy):
        self.engine, self.clock, self.poster = (
            ScriptedEngine(per_poll, max_num_seqs=seats),
            ManualClock(),
            InlinePoster(),
        )
        self.engine.start()
        self.packs = {}
        self.live = a_live(self.engine, self.clock, self.poster, **policy)
        self.rows = 0
        self.results = []

    def ask(self, **changes):
        request, ear = a_live_request(**changes), Ear()
        self.live.enter(request, ear)
        return request, ear

    def step(self, *, alone=False):
        self.live.let_in(self.rows, alone=alone)
        results = self.engine.poll(0)
        self.live.hear(self.engine.take_pieces())
        for result in results:
            self.live.take(result)

    def number(self):
        """The engine's id of the latest request."""
        return max(self.engine._inside)


def test_a_request_is_posted_once_for_what_it_took_and_then_its_end_is_told():
    desk = Desk(per_poll=1)
    request, ear = desk.ask()
    desk.clock.advance(0.5)
    desk.step()
    usage = Usage(rows=1, input_tokens=6, cached_tokens=4, output_tokens=5, outcomes={"ok": 1})
    posting = desk.poster.postings[0]
    told = (posting.id, posting.usage, posting.outcome, posting.pool, posting.worker, posting.seconds)
    assert told == (request.id, usage, "ok", "pool", "w", 0.5)
    assert (len(desk.poster.postings), ear.end, ear.ended.usage, ear.ended.result.text) == (1, End.DONE, usage, "yes")


def test_a_request_enters_the_engine_before_every_row_and_wakes_it():
    desk = Desk()
    seen = []
    desk.engine.submit = lambda profile, requests: seen.append((profile.priority, [one.prompt for one in requests]))
    desk.ask()
    assert (desk.engine.woken, seen) == (1, [])
    desk.step()
    assert seen == [(URGENT, ["hello"])]


def test_pieces_are_told_in_their_order_and_the_first_one_is_timed():
    desk = Desk()
    _, ear = desk.ask()
    desk.step()
    desk.clock.advance(0.25)
    desk.engine.tell = [EnginePiece(desk.number(), 0, "a", 1), EnginePiece(desk.number(), 1, "b", 2)]
    desk.step()
    desk.engine.per_poll = 1
    desk.step()
    assert (ear.said[:2], ear.end) == ([Piece(0, "a", 1), Piece(1, "b", 2)], End.DONE)
    assert desk.poster.postings[0].first_token_s == 0.25


def test_without_room_a_request_is_refused_at_once_with_the_time_to_ask_again():
    desk = Desk(seats=1, max_wait_s=2.5)
    ears = [desk.ask()[1] for _ in range(4)]
    assert [ear.ended for ear in ears] == [
        None,
        None,
        None,
        Ended(end=End.REFUSED, retry_after_s=0.5, reason="it would wait 3.0 s"),
    ]
    assert (desk.live.load(), desk.poster.postings) == (Load(seats=1, used=1, waiting=3, wait_s=3.0, open=True), [])


def test_what_was_let_in_and_does_not_begin_in_time_is_refused_all_the_same():
    desk = Desk(seats=1)
    _, first = desk.ask()
    _, second = desk.ask()
    desk.step()
    desk.clock.advance(2.1)
    desk.step()
    desk.step()
    assert (first.end, second.end, desk.poster.postings) == (None, End.REFUSED, [])


def test_one_that_has_begun_may_take_as_long_as_it_needs():
    desk = Desk(seats=1)
    _, ear = desk.ask()
    desk.step()
    desk.clock.advance(600)
    desk.step()
    desk.engine.per_poll = 1
    desk.step()
    assert ear.end is End.DONE


def test_a_request_that_waited_behind_rows_begins_when_one_of_them_ends():
    desk = Desk(seats=2)
    desk.rows = 2
    desk.step()
    _, ear = desk.ask()
    desk.step()
    assert desk.live.load().waiting == 1
    desk.live.row_ended()
    desk.rows = 1
    desk.step()
    desk.clock.advance(600)
    desk.step()
    assert (desk.live.load().waiting, ear.end) == (0, None)


def test_one_whose_client_left_is_aborted_and_posted_for_what_was_generated():
    desk = Desk()
    request, ear = desk.ask()
    desk.step()
    desk.live.leave(request.id)
    desk.live.leave("never heard of")
    desk.step()
    usage = Usage(rows=1, input_tokens=10, outcomes={"cancelled": 1})
    assert (ear.end, ear.ended.usage, desk.poster.postings[0].outcome) == (End.ABORTED, usage, "cancelled")


def test_one_that_left_before_it_entered_the_engine_is_posted_for_nothing():
    desk = Desk()
    request, ear = desk.ask()
    desk.live.leave(request.id)
    desk.step()
    assert (ear.end, ear.ended.usage) == (End.ABORTED, Usage(rows=1, outcomes={"cancelled": 1}))
    assert (desk.engine.in_flight(), desk.poster.order()) == (0, [request.id])


def test_one_that_may_be_asked_elsewhere_is_aborted_and_nobody_pays():
    desk = Desk()
    request, ear = desk.ask()
    desk.step()
    desk.live.lose(request.id)
    desk.step()
    assert (ear.end, desk.poster.postings, desk.live.inside) == (End.LOST, [], 0)


def test_an_end_that_was_already_on_its_way_is_told_and_leaving_changes_nothing():
    desk = Desk(per_poll=1)
    request, ear = desk.ask()
    desk.step()
    desk.live.leave(request.id)
    desk.step()
    assert (ear.end, len(desk.poster.postings)) == (End.DONE, 1)


def test_the_engine_s_death_loses_what_was_inside_and_refuses_what_was_not():
    desk = Desk()
    _, inside = desk.ask()
    desk.step()
    desk.engine.tell = [EnginePiece(desk.number(), 0, "half", 3)]
    desk.step()
    _, outside = desk.ask()
    desk.live.bury("it died")
    _, late = desk.ask()
    lost = Ended(end=End.LOST, result=EngineResult(0, "abort", output_tokens=3), reason="it died")
    assert (inside.ended, outside.end, late.end, desk.poster.postings) == (lost, End.REFUSED, End.REFUSED, [])
    desk.engine.stop()
    desk.live.open_again()
    desk.engine.per_poll = 1
    _, after = desk.ask()
    desk.step()
    assert (after.end, desk.live.load().open) == (End.DONE, True)


def test_a_drain_lets_what_is_inside_end_and_refuses_what_has_no_token_once_the_grace_is_over():
    desk = Desk()
    _, ear = desk.ask()
    desk.step()
    desk.live.doorstep.close("the worker drains")
    _, late = desk.ask()
    desk.step()
    assert (ear.end, late.ended.reason, desk.live.load().open) == (None, "the worker drains", False)
    desk.engine.poll = lambda _: [EngineResult(desk.number(), "abort")]
    desk.live.stop_all()
    desk.step()
    assert (ear.end, desk.live.idle, desk.poster.postings) == (End.REFUSED, True, [])


def test_a_drain_posts_what_was_generated_of_one_that_could_not_end():
    desk = Desk()
    _, ear = desk.ask()
    desk.step()
    desk.engine.poll = lambda _: [EngineResult(desk.number(), "abort", "half", input_tokens=10, output_tokens=3)]
    desk.live.stop_all()
    desk.step()
    assert (ear.end, ear.ended.usage.output_tokens, len(desk.poster.postings)) == (End.ABORTED, 3, 1)


def test_an_error_of_the_request_costs_nothing():
    desk = Desk()
    _, ear = desk.ask()
    desk.step()
    desk.engine.poll = lambda _: [EngineResult(desk.number(), "error", input_tokens=10, error_code="invalid_request")]
    desk.step()
    usage = Usage(rows=1, outcomes={"error": 1})
    assert (ear.end, ear.ended.usage, desk.poster.postings[0].usage) == (End.DONE, usage, usage)


def test_many_inputs_enter_in_turns_with_others_and_come_back_as_one_result_in_their_order():
    desk = Desk(seats=8)
    ear, other = Ear(), Ear()
    submit = desk.engine.submit

    def note(profile, requests):
        desk.packs |= {one.id: one.prompt for one in requests if isinstance(one.prompt, Several)}
        submit(profile, requests)

    desk.engine.submit = note
    desk.live.enter(many_inputs(20), ear)
    desk.step()
    assert desk.engine.in_flight() == 4, "packs of two fill the seats"
    desk.live.enter(a_live_request(prompt="mine"), other)
    desk.step()
    assert (desk.engine.in_flight(), "mine" in desk.engine.prompts()) == (5, True)

    def finish(_):
        done = [number for number, prompt in desk.packs.items() if number in desk.engine._inside]
        for number in done:
            del desk.engine._inside[number]
        answers = {number: json.dumps(list(desk.packs[number].inputs)) for number in done}
        return [EngineResult(number, "stop", input_tokens=20, answers=answers[number]) for number in done[::-1]]

    desk.engine.poll = finish
    for _ in range(4):
        desk.step()
    result = ear.ended.result
    assert (result.input_tokens, json.loads(result.answers)) == (200, [f"input {number}" for number in range(20)])
    assert (other.end, len(desk.packs)) == (None, 10)


def test_an_error_of_one_input_names_it_and_ends_the_request_and_what_has_not_entered_never_does():
    desk = Desk(seats=4)
    ear = Ear()
    desk.live.enter(many_inputs(20), ear)
    desk.step()
    number = max(desk.engine._inside)
    fault = EngineResult(number, "error", error_message="input[0] is too long")
    poll, desk.engine.poll = desk.engine.poll, lambda _: [fault]
    del desk.engine._inside[number]
    desk.step()
    desk.engine.poll = poll
    desk.step()
    assert (ear.end, ear.ended.result.error_message, desk.engine.in_flight()) == (End.DONE, "input[3] is too long", 0)
    assert (desk.live.load().used, desk.live.doorstep.seating.behind) == (0, 0)


def test_answers_that_were_told_are_charged_though_a_later_input_is_in_error():
    desk = Desk(seats=4)
    ear = Ear()
    desk.live.enter(many_inputs(3, profile=RequestProfile(key="c", kind="completion", stream=True)), ear)
    desk.step()
    first, second, third = sorted(desk.engine._inside)
    desk.engine.tell = [EnginePiece(first, 0, "all of it", 5)]
    desk.engine.poll = lambda _: [
        EngineResult(first, "stop", "all of it", input_tokens=10, cached_tokens=4, output_tokens=5),
        EngineResult(third, "error", error_message="it is too long", error_code="context_length_exceeded"),
        EngineResult(second, "abort", "ha", input_tokens=10, output_tokens=2),
    ]
    desk.step()
    usage = Usage(rows=1, input_tokens=16, cached_tokens=4, output_tokens=7, outcomes={"error": 1})
    assert (ear.ended.usage, desk.poster.postings[0].usage) == (usage, usage)
    assert ear.ended.result.error_message == "prompt[2]: it is too long"


def test_one_that_was_told_of_is_not_refused_though_it_seems_to_stand_in_line():
    desk = Desk(seats=1)
    desk.ask()
    _, second = desk.ask()
    _, third = desk.ask()
    desk.step()
    desk.engine.tell = [EnginePiece(desk.number(), 0, "begun", 1)]
    desk.step()
    desk.clock.advance(2.1)
    desk.step()
    desk.step()
    assert (second.end, third.text, third.end) == (End.REFUSED, "begun", None)


def test_a_probe_is_never_refused_for_want_of_room_and_never_posted():
    desk = Desk(seats=1, per_poll=9, max_wait_s=0)
    desk.ask()
    _, refused = desk.ask()
    _, probe = desk.ask(probe=True)
    desk.step()
    assert (refused.end, probe.end, len(desk.poster.postings)) == (End.REFUSED, End.DONE, 1)


def test_the_same_id_is_not_taken_twice_at_a_time():
    desk = Desk()
    request, first = desk.ask()
    second = Ear()
    desk.live.enter(request, second)
    assert (first.end, second.end) == (None, End.REFUSED)


def test_a_listener_that_fails_hurts_nobody_else():
    desk = Desk(per_poll=2)

    def deaf(_):
        raise RuntimeError

    desk.live.enter(a_live_request(), deaf)
    _, ear = desk.ask()
    desk.step()
    assert (ear.end, len(desk.poster.postings)) == (End.DONE, 2)


def test_requests_are_refused_while_rows_under_suspicion_run_alone():
    desk = Desk()
    _, ear = desk.ask()
    desk.step(alone=True)
    assert (ear.ended.reason, desk.engine.in_flight()) == ("rows under suspicion run alone", 0)


def test_what_was_learned_of_the_service_time_predicts_the_wait():
    desk = Desk(seats=1, per_poll=1, max_wait_s=600)
    for _ in range(60):
        desk.ask()
        desk.live.let_in(0)
        desk.clock.advance(11.0)
        desk.step()
    desk.engine.per_poll = 0
    desk.ask()
    assert desk.live.load().wait_s == pytest.approx(11.0, rel=0.01)


def test_seats_are_kept_free_for_requests_until_long_after_the_last_one():
    desk = Desk(seats=8, per_poll=1, kept_free=0.25, quiet_s=300)
    assert desk.live.row_cap(14) == 14, "no request ever came"
    desk.ask()
    caps = [desk.live.row_cap(14)]
    desk.step()
    caps.append(desk.live.row_cap(14))
    desk.clock.advance(301)
    assert [*caps, desk.live.row_cap(14)] == [0, 6, 14]


def test_a_request_is_let_in_by_the_tokens_that_others_have_in_the_cache_and_no_longer_than_they_have_them():
    desk = Desk(seats=8, max_wait_s=0)
    desk.live.doorstep.admit = desk.live.doorstep.admit.evolve(kv_tokens=100)
    _, first = desk.ask(input_tokens=90, output_tokens=0)
    _, refused = desk.ask(input_tokens=90, output_tokens=0)
    _, small = desk.ask(input_tokens=10, output_tokens=0)
    desk.engine.per_poll = 1
    desk.step()
    _, third = desk.ask(input_tokens=85, output_tokens=0)
    assert [ear.end for ear in (first, refused, small, third)] == [End.DONE, End.REFUSED, None, None]


def test_one_with_more_sequences_than_seats_takes_none_from_rows_that_run():
    desk = Desk(seats=4)
    desk.rows = 3
    desk.step()
    _, ear = desk.ask(seats=9)
    desk.step()
    assert (desk.live.doorstep.seating.running, desk.live.load().waiting, ear.end) == (3, 0, None)


def test_a_probe_takes_no_seats_from_rows():
    desk = Desk(seats=8)
    desk.ask(probe=True)
    desk.step()
    assert (desk.live.row_cap(14), desk.live.inside, desk.live.idle) == (14, 0, False)


def test_a_submit_that_finds_the_engine_dead_loses_the_request():
    desk = Desk()
    _, ear = desk.ask()

    def dead(profile, requests):
        raise EngineDied(model="m", reason="gone")

    desk.engine.submit = dead
    with pytest.raises(EngineDied):
        desk.step()
    desk.live.bury("gone")
    assert (ear.end, desk.live.inside) == (End.LOST, 0)
