"""infra/live/channel.Channel: what goes out, in which order, and by whom."""

import socket
import threading

import pytest

from infra.live.channel import Channel

pytestmark = pytest.mark.unit

LARGE = 1 << 16


@pytest.fixture(params=[None, 5.0], ids=["blocking", "with a time-out"])
def ends(request):
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.settimeout(10)
    ours.settimeout(request.param)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(autouse=True)
def any_socket(monkeypatch):
    """A pair of sockets is no TCP."""
    monkeypatch.setattr("infra.live.channel.lively", lambda sock: None)


def a_channel(ours):
    return Channel(ours, b"".join, "writer")


def received(sock, size):
    data = b""
    while len(data) < size:
        data += sock.recv(1 << 16)
    return data


def test_a_word_in_a_hurry_goes_out_by_the_thread_that_says_it(ends, monkeypatch):
    ours, theirs = ends
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)  # nobody else writes
    channel = a_channel(ours)
    channel.hurry(b"now")
    assert received(theirs, 3) == b"now"
    channel.put(b"later")
    channel.hurry(b"behind it")
    theirs.settimeout(0.05)
    with pytest.raises(TimeoutError):
        theirs.recv(1)


def test_nobody_waits_for_a_reader_that_takes_nothing_and_all_comes_in_order(ends):
    ours, theirs = ends
    channel, words = a_channel(ours), []
    for number in range(20):
        words.append(bytes([65 + number]) * LARGE)
        (channel.put if number % 3 == 2 else channel.hurry)(words[-1])
    assert received(theirs, 20 * LARGE) == b"".join(words)
    channel.free()


@pytest.mark.parametrize("say", [Channel.put, Channel.hurry])
def test_words_to_an_end_that_is_gone_close_the_channel(ends, say):
    ours, theirs = ends
    channel = a_channel(ours)
    theirs.close()
    while not channel.closed:
        say(channel, b"a")
    say(channel, b"a")
    channel.free()


def test_a_channel_that_is_closed_keeps_its_socket_for_whoever_reads_from_it(ends):
    ours, theirs = ends
    channel = a_channel(ours)
    channel.close()
    assert (list(channel.frames(lambda: 100)), theirs.recv(1), ours.fileno() >= 0) == ([], b"", True)
    channel.free()
    assert ours.fileno() == -1
