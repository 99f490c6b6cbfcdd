"""Frames on a socket, and rows and results as frames."""

from array import array

import pytest

from infra.engines import wire
from infra.engines.frames import MAX_FRAME_BYTES, FrameReader, encode_frame
from infra.engines.spec import EngineSpec, RayPlace
from jobs.ports.engine import EngineInfo, EnginePiece, EngineRequest, EngineResult, RequestProfile, Several
from tests.support.engines import a_spec

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("step", [1, 3, 8, 1000])
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(step):
    frames = [({"op": "a", "text": "Äpfel"}, b""), ({}, b"\x00\xff" * 9), ({"n": [1, None]}, b"")]
    stream = b"".join(encode_frame(*frame) for frame in frames)
    reader = FrameReader()
    cut = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [frame for data in cut for frame in reader.feed(data)] == frames


def test_a_stream_that_lost_its_place_is_refused():
    with pytest.raises(ValueError, match="not a frame"):
        FrameReader().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little") + bytes(4))


def test_requests_and_profiles_survive_the_wire():
    requests = [
        EngineRequest(7, "plain"),
        EngineRequest(8, (("system", "s"), ("user", "u"))),
        EngineRequest(9, (("assistant", "", '{"tool_calls":[]}'), ("user", "u"))),
        EngineRequest(10, (4, 5)),
        EngineRequest(11, Several(("a", (4, 5)))),
    ]
    given = {"sampling": '{"seed":1}', "schema": "{}", "cache_salt": "t", "priority": -1, "tools": "[]"}
    profile = RequestProfile(key="k", kind="chat", tool_choice="required", stream=True, **given)
    reader = FrameReader()
    (first, _), (second, _) = reader.feed(
        encode_frame(wire.profile_to_wire(profile)) + encode_frame(wire.requests_to_wire("k", requests))
    )
    assert wire.profile_from_wire(first) == profile
    assert (second["key"], wire.requests_from_wire(second)) == ("k", requests)


RESULTS = {
    "text": [EngineResult(1, "stop", "ja", None, 9, 8, 2), EngineResult(2, "length", "", None, 1, 0, 1)],
    "errors": [
        EngineResult(1, "stop", "ja", None, 9, 8, 2),
        EngineResult(2, "error", error_code="engine_error", error_message="no"),
        EngineResult(3, "abort"),
    ],
    "vectors": [
        EngineResult(1, "stop", embedding=array("f", [0.5, -0.25]), input_tokens=3),
        EngineResult(2, "error", error_code="invalid_request", error_message="no"),
        EngineResult(3, "stop", embedding=array("f", [1.0]), input_tokens=1),
    ],
    "answers": [
        EngineResult(1, "stop", "ja", None, 9, 8, 2, answers='[{"text":"ja"}]'),
        EngineResult(2, "stop", "nein", None, 9, 8, 2),
        EngineResult(3, "error", error_code="engine_error", error_message="no"),
    ],
    "none": [],
}


@pytest.mark.parametrize("results", RESULTS.values(), ids=RESULTS)
def test_results_survive_the_wire(results):
    ((head, tail),) = FrameReader().feed(encode_frame(*wire.results_to_wire(results, moved=12)))
    assert head["moved"] == 12
    assert wire.results_from_wire(head, tail) == results


PLACE = ("ja", -0.5, [("ja", -0.5), ("nein", -1.5)])


@pytest.mark.parametrize("pieces", [[], [EnginePiece(1, 0, "ja", 1)], [EnginePiece(1, 0, "ja", 1, [PLACE, PLACE])]])
def test_pieces_survive_the_wire(pieces):
    pieces = [EnginePiece(2, 3, "", 2), *pieces]
    ((head, _),) = FrameReader().feed(encode_frame(wire.pieces_to_wire(pieces, moved=12)))
    assert (head["moved"], wire.pieces_from_wire(head)) == (12, pieces)


def test_an_engines_description_survives_the_wire_with_the_time_its_caller_waited():
    info = EngineInfo(engine="e", version="1", model="m", kind="chat", max_model_len=1, max_num_seqs=2)
    ((head, _),) = FrameReader().feed(encode_frame(wire.info_to_wire(info)))
    assert wire.info_from_wire(head, start_s=3.5) == EngineInfo(
        engine="e", version="1", model="m", kind="chat", max_model_len=1, max_num_seqs=2, start_s=3.5
    )


@pytest.mark.parametrize("ray", [None, RayPlace(address="10.0.0.1:6379", namespace="n", group="worker.big-1")])
def test_a_spec_survives_the_wire(tmp_path, ray):
    spec = a_spec(tmp_path, engine_args={"max_num_seqs": 8}, env={"X": "1"}, ray=ray)
    ((head, _),) = FrameReader().feed(encode_frame({"spec": spec.to_wire()}))
    assert EngineSpec.from_wire(head["spec"]) == spec
