"""What a request may take, and what its answer always has."""

import json
import socket
import time
from contextlib import suppress

import pytest

from tests.support.api import town, until

pytestmark = pytest.mark.acceptance
BYTES = 1 << 20


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """Little of everything."""
    limits = {"max_body_mib": 1, "max_upload_mib": 2, "client_idle_s": 1, "stop_grace_s": 1}
    with town(tmp_path_factory.mktemp("strict"), **limits) as opened:
        yield opened


def test_every_answer_has_a_request_id_its_own_or_the_clients(api):
    client = api.http(api.key())
    own = client.get("/v1/files").headers["x-request-id"]
    named = client.get("/v1/nothing", headers={"x-request-id": "mine-1"})
    odd = client.get("/healthz", headers={"x-request-id": "a b"}).headers["x-request-id"]
    assert (own[:4], named.headers["x-request-id"], named.status_code, odd[:4]) == ("req_", "mine-1", 404, "req_")


def test_what_nobody_knows_is_refused_in_openais_words(api):
    client = api.http(api.key())
    answers = [client.get("/v1/nothing"), client.put("/v1/files"), client.get("/v1/files", params={"limit": "many"})]
    assert [(one.status_code, one.json()["error"]["code"], one.json()["error"]["param"]) for one in answers] == [
        (404, "not_found", None),
        (405, "method_not_allowed", None),
        (400, "bad_input", "limit"),
    ]


def test_a_body_that_is_too_large_is_refused_whether_its_length_is_said_or_not(strict):
    client = strict.http(strict.key())

    def chunks():
        for _ in range(20):
            yield b"x" * (BYTES // 8)

    said = client.post("/v1/batches", content=b"x" * (BYTES + 1))
    unsaid = client.post("/v1/batches", content=chunks())
    form = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("big", b"x" * (2 * BYTES))})
    assert [(one.status_code, one.json()["error"]["code"]) for one in (said, unsaid, form)] == [(413, "too_large")] * 3


def test_headers_that_are_too_long_are_refused(strict):
    client = strict.http(strict.key())
    answer = client.get("/v1/files", headers={"x-long": "x" * 40_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (431, "too_large")


def raw(town, request):
    host, _, port = town.url.removeprefix("http://").partition(":")
    sock = socket.create_connection((host, int(port)), timeout=20)
    sock.sendall(request)
    return sock


def test_a_client_that_does_not_end_its_headers_is_cut_off(strict):
    with raw(strict, b"GET /healthz HTTP/1.1\r\nHost: x\r\n") as sock:
        assert sock.recv(100) == b""


def test_nor_may_the_headers_of_a_later_request_take_their_time(strict):
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with raw(strict, whole) as sock:
        first = sock.recv(4096)
        sock.sendall(whole[:-2])
        assert (first[:12], until_closed(sock)) == (b"HTTP/1.1 200", b"")


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /healthz HTTP/1.1\r\nx-long: ",
        b"GET /",
        b"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
    ],
    ids=["a header", "an address", "a trailer"],
)
def test_what_is_kept_of_headers_that_do_not_end_is_bounded(strict, begin):
    with raw(strict, begin.replace(b"KEY", strict.key().encode())) as sock:
        sent = 0
        with suppress(ConnectionError):
            while sent < 64 << 20:
                sent += sock.send(b"x" * 65536)
        assert sent < 16 << 20  # what the system's own buffers took


def until_closed(sock):
    found = b""
    while data := sock.recv(4096):
        found += data
    return found


def test_a_client_that_does_not_send_its_body_is_told_so(strict):
    head = f"POST /v1/batches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {strict.key()}\r\nContent-Length: 10\r\n\r\n"
    with raw(strict, head.encode() + b"{") as sock:
        assert sock.recv(4096).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/batches", "/v1/files", "/v1/jobs/quote", "/v1/jobs/x/retry"])
def test_without_a_key_nothing_of_a_body_is_read(api, path):
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10000000\r\n\r\n"
    with raw(api, head.encode()) as sock:
        assert sock.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_who_forgets_v1_is_told_so(api):
    client = api.http(api.key())
    assert [client.get(path).json()["error"]["message"] for path in ("/files", "/v1/images/generations")] == [
        "There is nothing at /files, but at /v1/files: a client's base_url ends in /v1.",
        "There is nothing at /v1/images/generations; see /openapi.json.",
    ]


def test_a_query_parameter_that_is_not_known_is_refused_by_name(api):
    answer = api.http(api.key()).get("/v1/files", params={"purpos": "batch"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "purpos")


def test_the_methods_of_an_address_are_named_where_another_is_used(api):
    client = api.http(api.key())
    found = {path: client.put(path).headers["allow"] for path in ("/v1/files", "/v1/jobs/quote", "/v1/files/x/content")}
    assert found == {"/v1/files": "GET, POST", "/v1/jobs/quote": "POST", "/v1/files/x/content": "GET"}


def log_of(town):
    return town.home.settings.log_file.read_text()


def test_a_client_that_leaves_in_the_middle_of_its_upload_leaves_nothing_and_is_no_failure(strict):
    key = strict.key("leaver")
    head = f"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nX-Request-Id: leaver-1\r\n"
    head += "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: 2000000\r\n\r\n"
    body = '--XX\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + "x" * 1_500_000
    with raw(strict, (head + body).encode()):
        folder = strict.home.settings.home / "objects" / "tenants" / "leaver"
        until(lambda: [*folder.rglob("*.tmp")], "the upload's beginning")
    lines = until(lambda: [line for line in log_of(strict).splitlines() if "leaver-1" in line], "the request's line")
    assert ([json.loads(line)["event"] for line in lines], [*folder.rglob("*.tmp")]) == (["request"], [])


def test_no_key_is_in_the_log(strict):
    good, unknown, expired = strict.key("secretive"), "nm_" + "0" * 32, strict.key(expires_at=1.0)
    for key in (good, unknown, expired):
        client = strict.http(key)
        client.get("/v1/files")
        client.get(f"/v1/files/{key}")
        client.post("/v1/jobs", json={"model": "fake", "webhook": {"url": "https://x", "secret": "whsec_hidden"}})
        client.post("/v1/batches", content=f'{{"input_file_id": "{key}"')
    found = log_of(strict)
    assert [secret for secret in (good, unknown, expired, "whsec_hidden") if secret in found] == []


def test_no_answer_shows_a_place(api):
    client = api.http(api.key("curious"))
    file = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a", b"PAR1 and more")}).json()["id"]
    body = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "input_file_id": file}
    batch = client.post("/v1/batches", json=body).json()["id"]
    end = time.monotonic() + 20
    while (found := client.get(f"/v1/batches/{batch}")) and found.json()["status"] == "validating":
        assert time.monotonic() < end
    home = str(api.home.settings.home)
    assert (found.json()["status"], home in found.text, "objects/tenants" in found.text) == ("failed", False, False)


def test_a_stopped_server_answers_what_had_begun(tmp_path):
    with town(tmp_path, client_idle_s=5, stop_grace_s=10) as opened:
        key = opened.key()
        body = b'{"endpoint": "x"}'
        head = f"POST /v1/batches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n"
        with raw(opened, f"{head}Content-Type: application/json\r\n\r\n".encode()) as sock:
            deadline = time.monotonic() + 20
            while not opened.served._server.server_state.tasks:
                assert time.monotonic() < deadline
            opened.served._server.should_exit = True
            sock.sendall(body)
            assert sock.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert opened.served.stop()


def test_a_stopping_server_ends_its_event_streams(tmp_path):
    with town(tmp_path, engine_args={"rows_per_s": 5}) as opened:
        http = opened.http(opened.key())
        rows = [{"name": f"thing {number}"} for number in range(500)]
        job = http.post("/v1/jobs", json={"rows": rows, "model": "fake", "prompt": "{{ name }}"}).json()
        with http.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
            blocks = stream.iter_text()
            first = next(blocks)
            opened.served._app.state.parts.closing.set()
            rest = "".join(blocks)
        assert ("event: state" in first, "event: end" in first + rest) == (True, False)
        assert opened.served.stop()
