"""Frames on a socket, and rows and results as frames."""

from array import array

import pytest

from infra.engines import wire
from infra.engines.frames import MAX_FRAME_BYTES, FrameReader, encode_frame
from jobs.ports.engine import EngineInfo, EngineRequest, EngineResult, RequestProfile

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
    requests = [EngineRequest(7, "plain"), EngineRequest(8, (("system", "s"), ("user", "u")))]
    profile = RequestProfile(key="k", kind="chat", sampling='{"seed":1}', schema="{}", cache_salt="t", priority=-1)
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
    "none": [],
}


@pytest.mark.parametrize("results", RESULTS.values(), ids=RESULTS)
def test_results_survive_the_wire(results):
    ((head, tail),) = FrameReader().feed(encode_frame(*wire.results_to_wire(results, moved=12)))
    assert head["moved"] == 12
    assert wire.results_from_wire(head, tail) == results


def test_an_engines_description_survives_the_wire_with_the_time_its_caller_waited():
    info = EngineInfo(engine="e", version="1", model="m", kind="chat", max_model_len=1, max_num_seqs=2)
    ((head, _),) = FrameReader().feed(encode_frame(wire.info_to_wire(info)))
    assert wire.info_from_wire(head, start_s=3.5) == EngineInfo(
        engine="e", version="1", model="m", kind="chat", max_model_len=1, max_num_seqs=2, start_s=3.5
    )
