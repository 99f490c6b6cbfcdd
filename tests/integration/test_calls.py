"""infra/web/calls.py over real sockets: where a call goes, what it carries, and when it is given up."""

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from contextlib import contextmanager

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from infra.web.addresses import AddressRefused
from infra.web.calls import CallFailed, CallPolicy, Calls
from tests.support.hooks import receiver

pytestmark = pytest.mark.integration

NAME = "hooks.internal"


def calls(*answers, **policy):
    """Calls whose names resolve so, one answer after the other, and what was asked."""
    left, asked = list(answers or [["127.0.0.1"]]), []

    def resolve(host, port):
        asked.append((host, port))
        return left.pop(0) if len(left) > 1 else left[0]

    return Calls(policy=CallPolicy(**{"private_hosts": frozenset({NAME}), **policy}), resolve=resolve), asked


@pytest.fixture
def there():
    with receiver() as found:
        yield found


def test_a_call_goes_to_the_resolved_address_with_the_host_s_own_name(there):
    call, asked = calls()
    status = call.post(f"http://{NAME}:{there.port}/a?b=%20c", {"webhook-id": "m", "content-type": "x/y"}, b"body")
    (got,) = there.got
    assert (status, asked, got.path, got.body) == (204, [(NAME, there.port)], "/a?b=%20c", b"body")
    assert got.headers == {
        "host": f"{NAME}:{there.port}",
        "webhook-id": "m",
        "content-type": "x/y",
        "content-length": "4",
        "connection": "close",
    }


def test_a_redirect_is_an_answer_like_any_other(there):
    there.answer = lambda _: (302, {"location": f"{there.url}/elsewhere"}, b"")
    call, _ = calls()
    assert (call.post(f"http://{NAME}:{there.port}/", {}, b""), len(there.got)) == (302, 1)


def test_a_name_that_turns_private_after_the_check_is_of_no_use(there, monkeypatch):
    """DNS rebinding: the first answer is public, every later one is this machine."""
    tried = []

    def connect(address, timeout):
        tried.append(address)
        raise ConnectionRefusedError("nobody")

    monkeypatch.setattr(socket, "create_connection", connect)
    call, asked = calls(["8.8.8.8"], ["127.0.0.1"])
    with pytest.raises(CallFailed, match=r"evil\.example:\d+ did not take a call: nobody"):
        call.post(f"http://evil.example:{there.port}/secret-path", {}, b"")
    assert (len(asked), tried, there.got) == (1, [("8.8.8.8", there.port)], [])
    with pytest.raises(AddressRefused):
        call.post(f"http://evil.example:{there.port}/", {}, b"")
    assert (len(tried), there.got) == (1, [])


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"], ["fe80::1%lo"]])
def test_an_address_that_is_not_public_is_never_connected_to(there, answer):
    call, _ = calls(answer)
    with pytest.raises(AddressRefused):
        call.post(f"http://evil.example:{there.port}/", {}, b"")
    assert there.got == []


def test_the_next_address_is_tried_where_one_does_not_answer(there):
    call, _ = calls(["127.255.255.254", "127.0.0.1"] if _is_closed("127.255.255.254", there.port) else ["127.0.0.1"])
    assert call.post(f"http://{NAME}:{there.port}/", {}, b"") == 204


def _is_closed(address, port):
    with socket.socket() as sock:
        return sock.connect_ex((address, port)) != 0


@contextmanager
def talking(*said, every_s=0.0):
    """A server that says this to whoever comes, whatever is asked; the last again and again where every_s is given."""
    stop, sock = threading.Event(), socket.create_server(("127.0.0.1", 0))

    def serve():
        with sock, sock.accept()[0] as client:
            client.settimeout(5)
            try:
                for data in said:
                    client.sendall(data)
                while every_s and not stop.wait(every_s):
                    client.sendall(said[-1])
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://{NAME}:{sock.getsockname()[1]}/"
    finally:
        stop.set()
        thread.join(5)


def test_who_answers_a_letter_at_a_time_is_given_up():
    call, _ = calls(timeout_s=0.3)
    slow = talking(b"HTTP/1.1 200 OK\r\nx: ", b"y", every_s=0.02)
    with slow as url, pytest.raises(CallFailed, match=r"no answer within 0\.3 s"):
        call.post(url, {}, b"")


def test_of_a_body_without_an_end_only_the_status_counts():
    call, _ = calls(timeout_s=5.0)
    with talking(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096, every_s=0.001) as url:
        assert call.post(url, {}, b"") == 200


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200])
def test_what_is_no_answer_fails_the_call(said):
    call, _ = calls(timeout_s=5.0)
    with talking(said) as url, pytest.raises(CallFailed):
        call.post(url, {}, b"")


def test_nobody_there_fails_the_call_naming_the_host_alone():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    call, _ = calls()
    with pytest.raises(CallFailed) as caught:
        call.post(f"http://{NAME}:{port}/token-in-path?key=secret", {}, b"")
    assert "token" not in caught.value.sentence
    assert caught.value.sentence.startswith(f"{NAME}:{port} did not take a call: ")


# ---- TLS --------------------------------------------------------------------------------------------


def certificate(folder, *names):
    """A self-signed one for these names; (file, trust)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    alternatives = [
        x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names
    ]  # fmt: skip
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "cert.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + made.public_bytes(pem))
    return file


@contextmanager
def secured(file):
    """A TLS server with one answer; yields its port and the server names that clients sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    names = []
    context.sni_callback = lambda _sock, name, _context: names.append(name)
    sock = socket.create_server(("127.0.0.1", 0))

    def serve():
        try:
            with sock, context.wrap_socket(sock.accept()[0], server_side=True) as client:
                asked = b""
                while not asked.endswith(b"\r\n\r\nx") and (more := client.recv(65_536)):
                    asked += more  # what is left unread would reset the connection
                client.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        except OSError:
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield sock.getsockname()[1], names
    thread.join(5)


@pytest.mark.parametrize(("names", "good"), [([NAME], True), (["other.internal"], False), (["127.0.0.1"], False)])
def test_the_certificate_must_be_for_the_host_s_name(tmp_path, monkeypatch, names, good):
    file = certificate(tmp_path, *names)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    call, _ = calls(timeout_s=5.0)
    with secured(file) as (port, sent):
        if good:
            assert (call.post(f"https://{NAME}:{port}/", {}, b"x"), sent) == (204, [NAME])
        else:
            with pytest.raises(CallFailed, match="certificate verify failed"):
                call.post(f"https://{NAME}:{port}/", {}, b"x")


def test_a_certificate_that_nobody_vouches_for_fails_the_call(tmp_path):
    call, _ = calls(timeout_s=5.0)
    strange = secured(certificate(tmp_path, NAME))
    with strange as (port, _), pytest.raises(CallFailed, match="certificate verify failed"):
        call.post(f"https://{NAME}:{port}/", {}, b"x")
