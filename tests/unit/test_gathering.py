"""What leaves an engine's process, when, and in which order: on a time that the test tells."""

import socket

import pytest

from infra.clocks import ManualClock
from infra.engines import wire
from infra.engines.frames import FrameReader
from infra.engines.gathering import COALESCE_S, GATHER_S, PER_ROW_S, STEP_S, Gathering
from infra.engines.outbox import Outbox
from jobs.ports.engine import EnginePiece, EngineResult

pytestmark = pytest.mark.unit


def a_piece(row=1, text="a", **changes):
    return EnginePiece(**{"id": row, "choice": 0, "text": text, "output_tokens": 1, **changes})


def heard_of(*rows, now=0.0):
    """A gathering that told of these rows at that time."""
    gathering = Gathering()
    gathering.add_pieces([a_piece(row) for row in rows], now)
    gathering.take(now)
    return gathering


def test_results_wait_for_each_other_from_the_first_of_them():
    gathering = Gathering()
    assert gathering.due is None
    gathering.add_results([EngineResult(1, "stop")], 10.0)
    gathering.add_results([EngineResult(2, "stop")], 10.001)
    assert gathering.due == 10.0 + GATHER_S
    assert gathering.take(10.002) == ([], [EngineResult(1, "stop"), EngineResult(2, "stop")])
    assert gathering.due is None


def test_the_end_of_a_row_that_is_told_of_waits_only_for_those_of_its_step():
    gathering = heard_of(1, 2)
    gathering.add_results([EngineResult(1, "stop")], 10.0)
    assert gathering.due == 10.0 + STEP_S
    gathering.take(10.0 + STEP_S)
    gathering.add_results([EngineResult(1, "stop")], 11.0)  # another row under its number, of which nothing was told
    assert gathering.due == 11.0 + GATHER_S


def test_a_rows_first_piece_goes_at_once_and_takes_along_what_waits():
    gathering = heard_of(1, now=10.0)
    gathering.add_pieces([a_piece(1)], 10.001)
    gathering.add_pieces([a_piece(2)], 10.001)
    assert gathering.due == 10.001
    assert [piece.id for piece in gathering.take(10.001)[0]] == [1, 2]


@pytest.mark.parametrize(
    ("rows", "now", "due"),
    [
        (1, 10.1, 10.1 + STEP_S),  # long after the last frame: only its step's neighbours are waited for
        (3, 10.0, 10.0 + 3 * PER_ROW_S),
        (1000, 10.0, 10.0 + COALESCE_S),
        (1000, 10.02, 10.0 + COALESCE_S),  # from the last frame on, not from the piece
    ],
)
def test_a_later_piece_waits_the_longer_the_more_rows_are_told_of(rows, now, due):
    gathering = heard_of(*range(rows), now=10.0)
    gathering.add_pieces([a_piece(0)], now)
    assert gathering.due == due


def test_pieces_of_one_answer_that_wait_become_one():
    gathering = heard_of(1, 2)
    one, two = ("a", -0.5, []), ("b", -1.5, [("c", -0.1)])
    gathering.add_pieces([a_piece(1, "a", tokens=[one]), a_piece(2, "x"), a_piece(1, "y", choice=1)], 1.0)
    gathering.add_pieces([a_piece(1, "b", tokens=[two]), a_piece(2, "", output_tokens=2)], 1.0)
    assert gathering.take(1.0)[0] == [
        EnginePiece(1, 0, "ab", 2, [one, two]),
        EnginePiece(2, 0, "x", 3),
        EnginePiece(1, 1, "y", 1),
    ]


def test_a_row_that_comes_again_under_the_same_number_is_a_new_one():
    gathering = heard_of(1)
    gathering.add_results([EngineResult(1, "stop")], 1.0)
    gathering.take(1.0)
    gathering.add_pieces([a_piece(1)], 1.0)
    assert gathering.due == 1.0


def test_the_pieces_of_a_row_are_written_before_its_result():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outbox = Outbox(ours, clock=ManualClock(0.0).monotonic)
        outbox.tell([a_piece(1, "a"), a_piece(2, "\ud83d")])
        outbox.deliver([EngineResult(1, "stop", "ab")])
        outbox.tell([a_piece(2, "c")])
        outbox.flush(moved=7)
        (first, _), (second, tail) = FrameReader().feed(theirs.recv(1 << 16))
    assert (first["moved"], wire.pieces_from_wire(first)) == (7, [a_piece(1, "a"), a_piece(2, "?c", output_tokens=2)])
    assert wire.results_from_wire(second, tail) == [EngineResult(1, "stop", "ab")]
