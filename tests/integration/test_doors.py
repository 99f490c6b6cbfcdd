"""A worker's door over TCP when things break: connections, secrets, frames, the engine; over a fake engine."""

import os
import signal
import socket
import struct
import threading
import time
from select import select

import pytest

from infra.engines.frames import encode_frame
from infra.live import RemoteDoor, wire
from jobs.ports.engine import RequestProfile
from jobs.requests import End, Load
from tests.support.doors import Waiting, a_loop, a_working_worker, seen_from_afar, serve, until
from tests.support.engines import pid_of
from tests.support.live import a_live_request

pytestmark = pytest.mark.integration

SLOW = RequestProfile(key="slow", kind="chat", sampling='{"max_tokens":400}', stream=True)

OPEN = Load(seats=8, open=True)


@pytest.fixture
def place(tmp_path):
    with a_working_worker(tmp_path, max_num_seqs=8, token_latency_s=0.05) as found:
        yield found


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    """One that no test breaks."""
    with a_working_worker(tmp_path_factory.mktemp("steady"), max_num_seqs=8, token_latency_s=0.05) as found:
        yield found


@pytest.fixture
def server(steady):
    opened = serve(steady)
    yield opened
    opened.close()


@pytest.fixture(params=["thread", "loop"])
def told(request):
    """Where a door tells what it hears: the loop it is given."""
    if request.param == "thread":
        yield None
        return
    with a_loop() as loop:
        yield loop


def ask(door, **changes):
    request, ear = a_live_request(**{"profile": SLOW, "prompt": "word " * 200, **changes}), Waiting()
    door.enter(request, ear)
    return request, ear


def connected(server):
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def closed(sock):
    """Whether the other end hangs up without a word."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_broken_connection_ends_its_requests_on_both_sides_and_nobody_pays(steady, server, told):
    door = RemoteDoor("w", server.address, server.secret, told)
    until(lambda: door.load().open)
    request, ear = ask(door)
    ear.until(2)
    for caller in server._there():
        caller.close()
    assert ear.until_ended().end is End.LOST
    until(lambda: steady.worker.live.idle)
    assert steady.posted(request) == []
    until(lambda: door.load().open)
    plain = RequestProfile(key="plain", kind="chat", sampling='{"max_tokens":2}')
    assert ask(door, profile=plain)[1].until_ended().end is End.DONE
    door.close()


def test_a_door_that_is_not_there_refuses_at_once():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    door = RemoteDoor("w", address, "s")
    assert (ask(door)[1].until_ended().end, door.load().open) == (End.REFUSED, False)
    door.close()


def test_a_door_that_is_let_go_tells_what_was_inside_as_lost(steady, server, told):
    door = RemoteDoor("w", server.address, server.secret, told)
    until(lambda: door.load().open)
    _, ear = ask(door)
    ear.until(1)
    door.close()
    assert ear.until_ended().end is End.LOST


@pytest.mark.parametrize(
    "first",
    [
        encode_frame({"op": "hello", "v": 1, "secret": "guessed"}),
        encode_frame({"op": "hello", "v": 1}),
        encode_frame({"op": "enter", "n": 1}),
        struct.pack("<II", 1 << 20, 0),
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 3, 0) + b"{{{",
    ],
    ids=["a wrong secret", "no secret", "a request first", "too long", "no object", "no JSON"],
)
def test_whoever_does_not_begin_with_the_secret_is_told_nothing(server, first):
    with connected(server) as sock:
        sock.sendall(first)
        assert closed(sock)


def test_a_stranger_who_takes_his_time_over_the_secret_is_sent_away(server, monkeypatch):
    monkeypatch.setattr("infra.live.server.HELLO_S", 0.4)
    hello, sent = wire.hello_to_wire(server.secret), 0
    with connected(server) as sock:
        while sent < len(hello) and not select([sock], [], [], 0.05)[0]:  # a byte at a time, each well within the bound
            sent += sock.send(hello[sent : sent + 1])
        assert closed(sock)
    assert sent < 40


def test_a_caller_for_whom_there_is_no_thread_is_sent_away_and_the_next_is_served(server, monkeypatch):
    start, failures = threading.Thread.start, [False, True]

    def starts(thread):
        if thread.name == "door-caller" and failures.pop():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with connected(server) as sock:
        assert closed(sock)
    door = RemoteDoor("w", server.address, server.secret)
    until(lambda: door.load().open)
    door.close()


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack("<II", 1 << 30, 0),
        struct.pack("<II", 3, 0) + b"{{{",
        encode_frame({"op": "enter", "n": 1, "request": {"id": "x"}}),
        encode_frame({"op": "leave"}),
    ],
    ids=["too long", "no JSON", "no request", "no number"],
)
def test_one_that_breaks_the_rules_ends_its_own_connection_and_no_other(steady, server, frame):
    other = RemoteDoor("w", server.address, server.secret)
    until(lambda: other.load().open)
    _, ear = ask(other, profile=RequestProfile(key="plain", kind="chat", sampling='{"max_tokens":8}'))
    with connected(server) as sock:
        sock.sendall(wire.hello_to_wire(server.secret))
        sock.sendall(frame)
        while not closed(sock):  # after its greeting
            pass
    assert ear.until_ended().end is End.DONE
    other.close()


def test_beyond_the_bound_of_a_connection_requests_are_refused(steady, server, monkeypatch):
    monkeypatch.setattr(wire, "REQUESTS", 2)
    door = RemoteDoor("w", server.address, server.secret)
    until(lambda: door.load().open)
    ears = [ask(door)[1] for _ in range(3)]
    assert ears[2].until_ended().reason == "too many requests on one connection"
    assert [ear.end for ear in ears[:2]] == [None, None]
    door.close()


@pytest.mark.parametrize(
    ("greeting", "words"), [(b"", b""), (b"", struct.pack("<II", 3, 0) + b"{{{"), (None, encode_frame({"op": "ended"}))]
)
def test_a_server_that_says_nothing_or_nonsense_is_left_and_what_was_asked_is_lost(told, monkeypatch, greeting, words):
    """None: it greets as it should, and then breaks the rules."""
    monkeypatch.setattr("infra.live.remote.SILENT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        door = RemoteDoor("w", f"127.0.0.1:{server.getsockname()[1]}", "s", told)
        with server.accept()[0] as sock:
            sock.settimeout(10)
            if greeting is None:
                sock.sendall(encode_frame({"op": "hello", "v": 1, "name": "w"}) + wire.load_to_wire(OPEN))
                until(lambda: door.load().open)
                _, ear = ask(door)
            sock.sendall(words)
            while not closed(sock):
                pass
        if greeting is None:
            assert ear.until_ended().end is End.LOST
        door.close()


def test_a_connection_on_which_something_comes_now_and_then_is_kept(steady, server, told, monkeypatch):
    monkeypatch.setattr("infra.live.remote.SILENT_S", 0.3)
    monkeypatch.setattr("infra.live.server.LOAD_AT_LEAST_S", 0.05)
    door = RemoteDoor("w", server.address, server.secret, told)
    until(lambda: door.load().open)
    there = server._there()
    _, ear = ask(door, prompt="word " * 30)
    assert ear.until_ended().end is End.DONE
    time.sleep(1.0)
    assert server._there() == there
    door.close()


def test_a_door_whose_loop_cannot_hear_it_is_tried_again(steady, server, monkeypatch):
    with a_loop() as loop:
        failures = [OSError("no space left on device")]

        class Short:
            """A loop that fails once to look at a socket."""

            def __getattr__(self, name):
                return getattr(loop, name)

            def add_reader(self, fd, read):
                if failures:
                    raise failures.pop()
                loop.add_reader(fd, read)

        door = RemoteDoor("w", server.address, server.secret, Short())
        until(lambda: door.load().open)
        assert not failures
        door.close()


def test_a_loop_that_has_ended_breaks_the_connection(steady, server, monkeypatch):
    monkeypatch.setattr("infra.live.remote.SILENT_S", 0.3)
    with a_loop() as loop:
        door = RemoteDoor("w", server.address, server.secret, loop)
        until(lambda: door.load().open)
        _, ear = ask(door)
    assert ear.until_ended().end is End.LOST
    door.close()


def test_a_loop_that_is_kept_for_a_while_breaks_no_connection(steady, server, monkeypatch):
    monkeypatch.setattr("infra.live.remote.SILENT_S", 0.3)
    monkeypatch.setattr("infra.live.server.LOAD_AT_LEAST_S", 0.05)
    plain = RequestProfile(key="plain", kind="chat", sampling='{"max_tokens":2}')
    with a_loop() as loop:
        door = RemoteDoor("w", server.address, server.secret, loop)
        until(lambda: door.load().open)
        kept = threading.Event()
        loop.call_soon_threadsafe(lambda: (time.sleep(1.5), kept.set()))
        _, ear = ask(door, profile=plain)
        assert ear.until_ended().end is End.DONE
        assert kept.is_set()
        door.close()


def test_a_killed_engine_loses_a_stream_with_what_was_generated_and_the_worker_serves_on(place):
    with seen_from_afar(place) as door:
        request, ear = ask(door)
        ear.until(2)
        os.killpg(pid_of(place.engine), signal.SIGKILL)
        ended = ear.until_ended()
        said = sum(word.output_tokens for word in ear.said[:-1])
        assert (ended.end, ended.result.output_tokens, place.posted(request)) == (End.LOST, said, [])
        plain = RequestProfile(key="plain", kind="chat", sampling='{"max_tokens":2}')
        until(lambda: ask(door, profile=plain)[1].until_ended().end is End.DONE)


def test_a_worker_that_drains_says_so_and_lets_what_is_inside_end(place):
    with seen_from_afar(place) as door:
        _, ear = ask(door, profile=RequestProfile(key="short", kind="chat", sampling='{"max_tokens":2}'))
        ear.until(1)
        place.worker.drain()
        assert ear.until_ended().end is End.DONE
        until(lambda: not door.load().open)
        assert ask(door)[1].until_ended().reason == "the worker drains"
