"""jobs.ports.live.Door: one body over a worker's own door and over its door seen through TCP."""

from contextlib import ExitStack

import pytest

from jobs.model import Usage
from jobs.ports.engine import RequestProfile, Several
from jobs.requests import End, Load, Piece
from tests.support.doors import Waiting, a_loop, a_working_worker, seen_from_afar, until
from tests.support.live import a_live_request, many_inputs
from workers.doorstep import LivePolicy

pytestmark = pytest.mark.contract

SLOW = RequestProfile(key="slow", kind="chat", sampling='{"max_tokens":400}', stream=True)
STREAM = RequestProfile(key="stream", kind="chat", sampling='{"max_tokens":8}', stream=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with a_working_worker(tmp_path_factory.mktemp("door"), max_num_seqs=4, token_latency_s=0.01) as found:
        yield found


@pytest.fixture(scope="module")
def embedder(tmp_path_factory):
    with a_working_worker(tmp_path_factory.mktemp("door"), kind="embedding", max_num_seqs=8) as found:
        yield found


@pytest.fixture
def tight(tmp_path):
    policy = LivePolicy(max_wait_s=0.0)
    with a_working_worker(tmp_path, live=policy, max_num_seqs=4, row_latency_s=30.0) as found:
        yield found


@pytest.fixture(params=["near", "afar", "in a loop"])
def seen(request):
    """How a place's door is seen: what is told in the worker's threads, in one of the door's, or in an event loop."""

    def near(place):
        return place

    if request.param == "near":
        yield near
        return
    with ExitStack() as opened:
        loop = opened.enter_context(a_loop()) if request.param == "in a loop" else None
        yield lambda place: opened.enter_context(seen_from_afar(place, loop))


def ask(door, **changes):
    request, ear = a_live_request(**changes), Waiting()
    door.enter(request, ear)
    return request, ear


def test_an_answer_is_told_once_it_is_posted(place, seen):
    request, ear = ask(seen(place), profile=RequestProfile(key="plain", kind="chat", sampling='{"max_tokens":8}'))
    ended = ear.until_ended()
    (posting,) = place.posted(request)
    assert (ended.end, ended.usage, ended.usage.outcomes) == (End.DONE, posting.usage, {posting.outcome: 1})
    assert (posting.tenant, posting.price, posting.pool, posting.worker) == ("t", request.price, "pool", "w")
    assert (ended.usage.output_tokens, bool(ended.result.text), len(ear.said)) == (8, True, 1)


def test_the_pieces_of_a_stream_are_its_text_and_its_tokens(place, seen):
    _, ear = ask(seen(place), profile=STREAM)
    ended = ear.until_ended()
    tokens = sum(word.output_tokens for word in ear.said if isinstance(word, Piece))
    assert (ear.text, tokens) == (ended.result.text, ended.usage.output_tokens)
    assert len(ear.said) > 2, "it came piece by piece"


def test_the_places_of_log_probabilities_are_told_with_the_pieces(place, seen):
    sampling = '{"max_tokens":3,"logprobs":2,"n":2}'
    _, ear = ask(seen(place), profile=RequestProfile(key="log", kind="chat", sampling=sampling, stream=True), seats=2)
    ear.until_ended()
    pieces = [word for word in ear.said if isinstance(word, Piece)]
    assert {piece.choice for piece in pieces} == {0, 1}
    assert [len(piece.tokens) for piece in pieces] == [piece.output_tokens for piece in pieces]
    token, logprob, others = pieces[0].tokens[0]
    assert (type(token), type(logprob), len(others)) == (str, float, 2)


def test_a_client_that_leaves_pays_for_what_was_generated(place, seen):
    door = seen(place)
    request, ear = ask(door, profile=SLOW)
    ear.until(2)
    door.leave(request.id)
    ended = ear.until_ended()
    (posting,) = place.posted(request)
    assert (ended.end, posting.outcome, posting.usage) == (End.ABORTED, "cancelled", ended.usage)
    assert 0 < ended.usage.output_tokens < 400
    door.leave(request.id)


def test_beyond_its_room_a_worker_refuses_at_once_and_has_room_again_later(tight, seen):
    door = seen(tight)
    first, ear = ask(door, seats=4)
    until(lambda: door.load().used == 4)
    refused = [ask(door)[1].until_ended() for _ in range(3)]
    assert {ended.end for ended in refused} == {End.REFUSED}
    assert min(ended.retry_after_s for ended in refused) > 0
    door.leave(first.id)
    assert ear.until_ended().end is End.ABORTED
    until(lambda: door.load().used == 0)
    assert door.load().evolve(tokens_moved=0) == Load(seats=4, open=True)
    assert (ask(door)[1].said, ask(door)[1].said) == ([], []), "they are let in"


def test_an_error_of_the_request_is_its_end_and_costs_nothing(place, seen):
    _, ear = ask(seen(place), prompt="word " * 9000)
    ended = ear.until_ended()
    assert (ended.end, ended.usage) == (End.DONE, Usage(rows=1, outcomes={"error": 1}))
    assert (ended.result.error_code, bool(ended.result.error_message)) == ("context_length_exceeded", True)


def test_an_embedding_comes_back_as_its_numbers(embedder, seen):
    profile = RequestProfile(key="e", kind="embedding")
    _, ear = ask(seen(embedder), profile=profile, prompt="one text", output_tokens=0)
    _, again = ask(embedder, profile=profile, prompt="one text", output_tokens=0)
    ended = ear.until_ended()
    assert (ended.end, len(ended.result.embedding)) == (End.DONE, 64)
    assert list(ended.result.embedding) == list(again.until_ended().result.embedding)


def test_many_inputs_are_as_each_of_them_alone(embedder, seen):
    door, ear = seen(embedder), Waiting()
    request = many_inputs(100)
    door.enter(request, ear)
    whole = ear.until_ended()
    alone, found = many_inputs(1, prompt=Several((request.prompt.inputs[37],))), Waiting()
    door.enter(alone, found)
    one = found.until_ended().result.answers.strip("[]")
    answers = whole.result.answers.strip("[]").split(",")
    assert (len(answers), answers[37], len(embedder.posted(request))) == (100, one, 1)
