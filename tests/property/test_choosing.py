"""jobs/choosing.py: whichever doors there are, room goes before a known beginning, and nobody is asked in vain."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.choosing import LENGTHS, SPREAD, Choice, Memory, beginnings, order
from jobs.requests import Load

pytestmark = pytest.mark.property

loads = st.builds(
    Load,
    seats=st.integers(1, 8),
    used=st.integers(0, 8),
    waiting=st.integers(0, 3),
    wait_s=st.sampled_from([0.0, 0.5, 2.0]),
    open=st.booleans(),
)
choices = st.lists(
    st.builds(Choice, name=st.sampled_from("abcdef"), load=loads, rank=st.integers(0, 2), mine=st.integers(0, 4)),
    max_size=6,
    unique_by=lambda choice: choice.name,
)
seats = st.integers(1, 10)
texts = st.text("ab", min_size=0, max_size=3).map(lambda text: text * 1500)


@given(choices, seats, st.sampled_from("abcdefx"))
def test_each_door_that_is_open_is_asked_once_and_no_other(choices, seats, known):
    assert sorted(order(choices, seats, known)) == sorted(one.name for one in choices if one.load.open)


@given(choices, seats, st.sampled_from("abcdefx"))
def test_who_has_room_is_asked_before_who_has_none_and_pools_in_their_order(choices, seats, known):
    by_name = {one.name: one for one in choices}
    asked = [by_name[name] for name in order(choices, seats, known)]
    keys = [(not one.has_room(seats), one.rank if one.has_room(seats) else one.load.wait_s) for one in asked]
    assert keys == sorted(keys)


@given(choices, seats, st.sampled_from("abcdefx"))
def test_the_first_is_the_emptiest_or_knows_the_beginning_and_is_not_much_fuller(choices, seats, known):
    by_name = {one.name: one for one in choices}
    roomy = [by_name[name] for name in order(choices, seats, known) if by_name[name].has_room(seats)]
    if not roomy:
        return
    least = min(one.share for one in roomy if one.rank == roomy[0].rank)
    assert roomy[0].share == least or (roomy[0].name == known and roomy[0].share <= least + SPREAD)


@given(choices, seats)
def test_who_knows_the_beginning_is_asked_first_among_equals(choices, seats):
    even = [one.evolve(load=one.load.evolve(open=True, used=0, waiting=0), rank=0, mine=0) for one in choices]
    for one in even:
        assert order(even, seats, one.name)[0] == one.name


@given(texts, texts)
def test_prompts_share_as_many_hashes_as_lengths_of_their_common_beginning(one, other):
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    shared = set(beginnings(one)) & set(beginnings(other))
    assert len(shared) == sum(length <= common for length in LENGTHS)


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("ab")), max_size=60))
def test_the_memory_knows_what_was_noted_last_and_forgets_the_oldest(notes):
    memory = Memory(kept=5)
    for one, name in notes:
        memory.note([one], name)
    last = {}
    for one, name in notes:
        last.pop(one, None)
        last[one] = name
    kept = dict(list(last.items())[-5:])
    assert {one: memory.known([one]) for one in range(21)} == {one: kept.get(one) for one in range(21)}
