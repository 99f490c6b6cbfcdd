"""The engine port while rows run: pieces of what they generate, aborts in the middle, and the way to wake a poll."""

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest

from infra.engines import process, several
from infra.engines.link import Bell, wait
from jobs.errors import EngineDied
from jobs.ports.engine import Several
from tests.support.engines import (
    LONG,
    PATIENCE_S,
    a_profile,
    a_spec,
    chat,
    collect,
    gone,
    pid_of,
    requests_of,
    run_rows,
    running,
)

pytestmark = pytest.mark.contract
SCHEMA = json.dumps({"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]})
TOOLS = json.dumps([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])


@pytest.fixture(autouse=True)
def left_empty(request):
    yield
    if "engine" in request.fixturenames:
        engine = request.getfixturevalue("engine")
        assert (engine.in_flight(), engine.take_pieces()) == (0, [])


@pytest.fixture
def busy(slow):
    """Long rows beside the test's own: they slow a model down, and what is aborted has to be found among them."""
    crowd = requests_of([chat(f"Count on from {n}.") for n in range(24)])
    slow.submit(a_profile(sampling=f"{{{LONG}}}"), crowd)
    yield slow
    slow.abort([request.id for request in crowd])
    collect(slow, slow.in_flight())
    assert (slow.in_flight(), slow.take_pieces()) == (0, [])


def listen(engine, rows, on_piece=lambda _: None):
    """The results of these rows and the pieces, in order; no piece comes after its row's result."""
    results, pieces = {}, []
    deadline = time.monotonic() + PATIENCE_S
    while not rows <= results.keys():
        assert time.monotonic() < deadline
        ended = set(results)
        results |= {result.id: result for result in engine.poll(1.0)}
        new = engine.take_pieces()
        assert not ended & {piece.id for piece in new}
        pieces += new
        for piece in new:
            on_piece(piece)
    return [results[row] for row in sorted(rows)], pieces


def ids_of(requests):
    return {request.id for request in requests}


def told(pieces, row, answers=1):
    """(text, output tokens, places) of each of its answers, as the pieces tell it. answers: at least so many."""
    found = {choice: ("", 0, []) for choice in range(answers)}
    for piece in pieces:
        if piece.id == row:
            text, count, places = found.get(piece.choice, ("", 0, []))
            found[piece.choice] = (text + piece.text, count + piece.output_tokens, places + list(piece.tokens or ()))
    return [found[choice] for choice in sorted(found)]


def said(result):
    """The same of its result: (texts, output tokens of all, places)."""
    answers = json.loads(result.answers) if result.answers else [{"text": result.text}]
    places = [[_place(*place) for place in answer.get("tokens", ())] for answer in answers]
    return [answer["text"] for answer in answers], result.output_tokens, places


def _place(token, logprob, others):
    return token, logprob, [tuple(other) for other in others]


def joined(pieces, row, answers=1):
    found = told(pieces, row, answers)
    return [text for text, _, _ in found], sum(count for _, count, _ in found), [places for _, _, places in found]


@pytest.mark.parametrize(
    ("sampling", "changes"),
    [
        ('{"temperature":0,"max_tokens":40}', {}),
        ('{"temperature":1,"max_tokens":20,"seed":7,"n":2}', {}),
        ('{"temperature":0,"max_tokens":20,"logprobs":2,"n":2}', {}),
        ('{"temperature":0,"max_tokens":40,"stop":["on","er "," the"]}', {}),
        ('{"temperature":0,"max_tokens":60}', {"schema": SCHEMA}),
    ],
    ids=["one", "two by a seed", "with log probabilities", "up to a word", "by a schema"],
)
def test_the_pieces_of_a_row_joined_are_its_result(engine, sampling, changes):
    profile = a_profile(sampling=sampling, stream=True, **changes)
    requests = requests_of([chat("Tell me of the sea."), chat("And of the hills?")])
    engine.submit(profile, requests)
    results, pieces = listen(engine, ids_of(requests))
    assert [joined(pieces, result.id) for result in results] == [said(result) for result in results]
    assert len(pieces) > len(results)


def test_a_row_that_is_told_of_has_the_result_of_one_that_is_not(engine):
    prompts = [chat("Tell me of the sea."), chat("And of the hills?")]
    silent = run_rows(engine, prompts, a_profile())
    requests = requests_of(prompts)
    engine.submit(a_profile(stream=True), requests)
    results, _ = listen(engine, ids_of(requests))
    assert [replace(result, id=0, cached_tokens=0) for result in results] == [
        replace(result, id=0, cached_tokens=0) for result in silent
    ]


def test_answers_to_several_texts_are_told_by_text_and_then_by_choice(engine):
    profile = a_profile("completion", sampling='{"temperature":1,"seed":3,"max_tokens":8,"n":2}', stream=True)
    (request,) = requests_of([Several(("Once upon a time", "The sea"))])
    engine.submit(profile, [request])
    (result,), pieces = listen(engine, {request.id})
    assert {piece.choice for piece in pieces} == {0, 1, 2, 3}
    assert joined(pieces, request.id) == said(result)


@pytest.mark.parametrize("more", ["", ',"n":3', ',"n":3,"logprobs":1'], ids=["one", "three", "log probabilities"])
def test_a_row_aborted_in_the_middle_comes_back_with_what_was_told_of_it(busy, more):
    """It is charged: its prompt and what was generated. Of a later answer there may be nothing yet."""
    (request,) = requests_of([chat("Count to a thousand.")])
    busy.submit(a_profile(sampling=f"{{{LONG}{more}}}", stream=True), [request])
    (result,), pieces = listen(busy, {request.id}, on_piece=lambda piece: busy.abort([piece.id]))
    assert (result.finish_reason, joined(pieces, request.id, 3 if more else 1)) == ("abort", said(result))
    assert result.output_tokens > 0
    assert result.input_tokens > 0


def test_a_row_that_is_not_told_of_is_aborted_with_its_counts_too(busy):
    """A neighbour that is told of says when it has begun; they began together."""
    silent, loud = requests_of([chat("Count to a thousand."), chat("Count to a thousand!")])
    busy.submit(a_profile(sampling=f"{{{LONG}}}"), [silent])
    busy.submit(a_profile(sampling=f"{{{LONG}}}", stream=True), [loud])
    heard = []

    def end(piece):
        heard.append(piece)
        if len(heard) == 3:
            busy.abort([silent.id, loud.id])

    (result, _), _ = listen(busy, {silent.id, loud.id}, on_piece=end)
    assert (result.finish_reason, result.answers) == ("abort", None)
    assert result.output_tokens > 0
    assert result.input_tokens > 0
    assert result.text


def test_a_row_aborted_before_its_first_token_counts_nothing(slow):
    requests = requests_of([chat(f"Count, {n}.") for n in range(100)])
    slow.submit(a_profile(sampling=f"{{{LONG}}}"), requests)
    slow.abort([request.id for request in requests])
    results = collect(slow, 100)
    assert {result.finish_reason for result in results} == {"abort"}
    assert (results[-1].input_tokens, results[-1].output_tokens, results[-1].text) == (0, 0, "")


@pytest.mark.parametrize("changes", [{}, {"stream": True, "tools": TOOLS}], ids=["not asked for", "with tools"])
def test_nothing_is_told_of_other_rows(engine, changes):
    requests = requests_of([chat("How is it?")])
    engine.submit(a_profile(**changes), requests)
    assert listen(engine, ids_of(requests))[1] == []


def test_nothing_is_told_of_an_embedding(embedder):
    (request,) = requests_of(["A cat."])
    embedder.submit(a_profile("embedding", sampling="{}", stream=True), [request])
    (result,), pieces = listen(embedder, {request.id})
    assert (result.finish_reason, pieces) == ("stop", [])


def test_another_thread_wakes_the_poll_that_runs_or_the_next_one(engine, monkeypatch):
    monkeypatch.setattr(process, "LOOK_S", PATIENCE_S)
    monkeypatch.setattr(several, "LOOK_S", PATIENCE_S)
    began, rung = time.monotonic(), threading.Event()

    def ring():
        rung.set()
        engine.wake()

    engine.wake()
    engine.wake()
    assert engine.poll(PATIENCE_S) == []
    later = threading.Timer(0.05, ring)
    later.start()
    while not rung.is_set():
        assert engine.poll(PATIENCE_S) == []
    later.join()
    assert time.monotonic() - began < PATIENCE_S / 2


def test_what_was_told_before_a_death_is_taken_before_it_is_known(tmp_path):
    with running(a_spec(tmp_path, engine_args={"token_latency_s": 0.2})) as engine:
        pid = pid_of(engine)
        (request,) = requests_of([chat("Count.")])
        engine.submit(a_profile(stream=True), [request])
        wait([engine.link], Bell(), PATIENCE_S)  # it has come, and nobody has looked
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
        assert engine.poll(PATIENCE_S) == []
        assert [(piece.id, piece.output_tokens) for piece in engine.take_pieces()] == [(request.id, 1)]
        with pytest.raises(EngineDied):
            engine.poll(PATIENCE_S)
        assert (engine.in_flight(), engine.take_pieces()) == (0, [])
