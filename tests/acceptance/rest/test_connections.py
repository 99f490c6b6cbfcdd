"""What a client may do to a connection, on raw sockets: pieces, upgrades, requests behind each other, leaving."""

import asyncio
import json
import socket
import time
from contextlib import suppress

import pytest
import uvicorn

from api.rest.patience import patient
from tests.support.api import town

pytestmark = pytest.mark.acceptance
GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
UPGRADE = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    with town(tmp_path_factory.mktemp("strict"), client_idle_s=1, stop_grace_s=1) as opened:
        yield opened


def opened(town):
    host, _, port = town.url.removeprefix("http://").partition(":")
    sock = socket.create_connection((host, int(port)), timeout=20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def heard(sock):
    found = b""
    with suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            found += data
    return found


def said(town, *pieces, pause_s=0.05):
    """All that is answered until the connection ends."""
    with opened(town) as sock:
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(pause_s)
        return heard(sock)


def statuses(answers):
    return [int(one[:3]) for one in answers.split(b"HTTP/1.1 ")[1:]]


def post(town, path, body, more="", length=None):
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {town.key()}\r\ncontent-type: application/json\r\n"
    )
    return f"{head}{more}content-length: {len(body) if length is None else length}\r\n\r\n".encode()


@pytest.mark.parametrize("chunk", [200, 69_000], ids=["small", "a long one and the head of the next"])
def test_an_upload_may_come_in_chunks_of_any_size(api, chunk):
    key, data = api.key(), b"a line of a file\n" * 100_000
    form = (
        b'--XX\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--XX\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n' + data + b"\r\n--XX--\r\n"
    )
    chunks = [form[at : at + chunk] for at in range(0, len(form), chunk)]
    head = f"POST /v1/files HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
    head += "content-type: multipart/form-data; boundary=XX\r\ntransfer-encoding: chunked\r\n\r\n"
    heads = [f"{len(one):x}\r\n".encode() for one in chunks] + [b"0\r\n"]
    pieces = [one + b"\r\n" + after for one, after in zip(chunks, heads[1:], strict=True)]
    with opened(api) as sock:
        sock.sendall(head.encode() + heads[0])
        for piece in pieces:
            sock.sendall(piece)
        sock.sendall(b"\r\n")
        answer = heard(sock)
    assert (answer[:12], json.loads(answer.partition(b"\r\n\r\n")[2])["bytes"]) == (b"HTTP/1.1 200", len(data))


@pytest.mark.parametrize("together", [True, False])
def test_a_wish_to_upgrade_is_passed_over_and_a_body_stays_a_body(api, together):
    body = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    head = post(api, "/v1/batches", body, UPGRADE)
    answers = said(api, *([head + body] if together else [head, body]), LAST)
    assert (statuses(answers), answers.count(b"it is not JSON")) == ([400, 200], 1)


def test_what_follows_a_wish_to_upgrade_is_answered_too(api):
    wish = f"GET /healthz HTTP/1.1\r\nhost: x\r\n{UPGRADE}\r\n".encode()
    assert statuses(said(api, wish + wish + LAST)) == [200, 200, 200]


def test_as_many_requests_may_wait_behind_another_and_no_more(api):
    assert statuses(said(api, GET * 16 + LAST)) == [200] * 17
    assert len(statuses(said(api, GET * 5000))) < 100


@pytest.mark.parametrize("hosts", ["", "host: x\r\nhost: y\r\n"], ids=["none", "two"])
def test_a_request_names_one_host(api, hosts):
    assert statuses(said(api, f"GET /healthz HTTP/1.1\r\n{hosts}\r\n".encode())) == [400]


def test_whoever_leaves_is_gone_for_the_request_that_is_answered_also_with_another_behind_it():
    gone, told = [], asyncio.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.append(scope["path"])
        told.set()

    async def left():
        config = uvicorn.Config(app, http=patient(5.0, 1 << 16), lifespan="off", log_config=None)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                server = uvicorn.Server(config)
                serving = tasks.create_task(server.serve([listening]))
                reader, writer = await asyncio.open_connection(*listening.getsockname())
                writer.write(GET.replace(b"healthz", b"first") + GET)
                await reader.readuntil(b"\r\n\r\n")
                writer.close()
                await told.wait()
                server.should_exit = True
                await serving

    asyncio.run(left())
    assert gone == ["/first"]


def test_garbage_behind_a_stream_is_not_answered_in_its_middle(api):
    key = api.key()
    body = {"rows": [{"name": "a"}], "model": "fake", "prompt": "{{ name }}"}
    job = api.http(key).post("/v1/jobs", json=body).json()["id"]
    head = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n"
    assert statuses(said(api, head.encode(), b"\x00garbage\r\n\r\n")) in ([200], [])


def test_a_refused_request_whose_body_does_not_come_holds_no_connection(strict):
    head = b"POST /v1/batches HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
    assert statuses(said(strict, head, b"x")) == [401]
