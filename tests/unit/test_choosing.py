"""jobs/choosing.py and jobs/circuit.py: beginnings of prompts, and when a worker is trusted."""

import pytest

from jobs.choosing import Choice, Memory, beginnings, order
from jobs.circuit import Circuit, Health, ProbePolicy, begun, failed, is_due, is_late, proved
from jobs.ports.engine import Several
from jobs.requests import Load

pytestmark = pytest.mark.unit

LONG = "word " * 300
POLICY = ProbePolicy()


def test_only_a_beginning_worth_a_cache_is_remembered():
    kinds = ["short", LONG, (("system", LONG),), tuple(range(400)), Several((LONG,))]
    assert [len(beginnings(prompt)) for prompt in kinds] == [0, 2, 2, 2, 0]


def test_two_salts_share_no_beginning():
    assert set(beginnings(LONG, "a")).isdisjoint(beginnings(LONG, "b"))


def test_turns_of_a_chat_share_their_beginning():
    first = (("system", LONG), ("user", "a"))
    assert set(beginnings(first)) <= set(beginnings((*first, ("assistant", "b"), ("user", LONG))))


def test_the_longest_known_beginning_counts():
    memory = Memory()
    long, short = beginnings(LONG)
    memory.note([short], "a")
    memory.note([long], "b")
    assert memory.known([long, short]) == "b"


def test_one_system_prompt_of_all_does_not_fill_one_worker_and_leave_the_others_idle():
    def asked_first(used):
        full = Choice(name="b", load=Load(seats=8, used=used, open=True))
        return order([Choice(name="a", load=Load(seats=8, open=True)), full], 1, "b")[0]

    assert [asked_first(used) for used in (0, 2, 3)] == ["b", "b", "a"]


# ---- circuits -----------------------------------------------------------------------------------


def after(*steps, health=Health(looked_s=0.0)):  # noqa: B008 - frozen
    for step, now in steps:
        health = step(health, now)
    return health


FAILED_THRICE = ((begun, 5.0), (failed, 6.0), (begun, 11.0), (failed, 12.0), (begun, 17.0), (failed, 18.0))


def test_three_failures_in_a_row_open_the_circuit():
    states = [after(*FAILED_THRICE[: 2 * n]).circuit(POLICY) for n in range(4)]
    assert states == [Circuit.CLOSED, Circuit.CLOSED, Circuit.CLOSED, Circuit.OPEN]


def test_a_probe_half_opens_it_and_its_token_closes_it():
    half = after(*FAILED_THRICE, (begun, 23.0))
    assert (half.circuit(POLICY), proved(half, 23.1).circuit(POLICY)) == (Circuit.HALF_OPEN, Circuit.CLOSED)
    assert failed(half, 24.0).circuit(POLICY) is Circuit.OPEN


def test_a_token_in_between_forgives_the_failures_before_it():
    assert after(*FAILED_THRICE[:4], (proved, 13.0), *FAILED_THRICE[4:]).circuit(POLICY) is Circuit.CLOSED


def test_a_probe_is_due_five_seconds_after_the_last_proof_and_late_after_one():
    seen = proved(Health(looked_s=0.0), 3.0)
    assert [is_due(seen, POLICY, now) for now in (7.9, 8.0)] == [False, True]
    sent = begun(seen, 8.0)
    assert [is_due(sent, POLICY, 20.0), is_late(sent, POLICY, 8.9), is_late(sent, POLICY, 9.0)] == [False, False, True]
