"""infra/web/addresses.py: which URLs may be called, and where the call goes."""

import ipaddress
import socket
import threading

import pytest

from infra.web import addresses
from infra.web.addresses import AddressRefused, Place, SystemResolver, addresses_of, is_public, read_url
from jobs.errors import Unavailable

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "place", "netloc"),
    [
        ("https://example.com", ("https", "example.com", 443, "/"), "example.com"),
        ("HTTP://Example.COM.:80/a?b=c", ("http", "example.com", 80, "/a?b=c"), "example.com"),
        ("https://example.com:8443?x=1", ("https", "example.com", 8443, "/?x=1"), "example.com:8443"),
        ("http://[2606:4700::1111]:81/", ("http", "2606:4700::1111", 81, "/"), "[2606:4700::1111]:81"),
        ("http://8.8.8.8/", ("http", "8.8.8.8", 80, "/"), "8.8.8.8"),
        ("https://bücher.example/", ("https", "xn--bcher-kva.example", 443, "/"), "xn--bcher-kva.example"),
        ("http://１２７.0.0.1/", ("http", "127.0.0.1", 80, "/"), "127.0.0.1"),
        ("http://ｅxample.com/", ("http", "example.com", 80, "/"), "example.com"),
    ],
)
def test_a_url_is_read_as_the_call_will_be_made(url, place, netloc):
    found = read_url(url)
    wanted = dict(zip(("scheme", "host", "port", "target"), place, strict=True))
    assert (found, found.netloc) == (Place(**wanted), netloc)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.com/", "only http:// and https:// can"),
        ("file:///etc/passwd", "only http:// and https:// can"),
        ("gopher://example.com/", "only http:// and https:// can"),
        ("//example.com/", "it is no URL"),
        ("example.com", "it is no URL"),
        ("", "it is no URL"),
        ("https://example.com/" + "a" * 2048, "it is no URL"),
        ("https://user:secret@example.com/", "it names a user"),
        ("https://example.com@10.0.0.1/", "it names a user"),
        ("https://example.com\\@10.0.0.1/", "it names a user"),
        ("https://example.com/\r\nx: y", "its path has a character"),
        ("https://example.com/a b", "its path has a character"),
        ("https://example.com/#x", "its path has a character"),
        ("https://example.com:0/", "its host or port is none"),
        ("https://example.com:65536/", "its host or port is none"),
        ("https://example.com:/", "its host or port is none"),
        ("https://example.com:８０/", "its host or port is none"),
        ("https://:443/", "its host is no name"),
        ("https:///x", "its host is no name"),
        ("https://exa mple.com/", "its host is no name"),
        ("https://example.com\t/", "its host is no name"),
        ("https://example..com/", "its host is no name"),
        ("https://example.com../", "its host is no name"),
        ("https://-example.com/", "its host is no name"),
        ("https://exam%70le.com/", "its host is no name"),
        ("https://127.0.0.1%2f@example.com/", "it names a user"),
        ("http://[::1/", "its host or port is none"),
        ("http://[127.0.0.1]/", "its host is no IPv6 address"),
        ("http://2130706433/", "its host is a number"),
        ("http://017700000001/", "its host is a number"),
        ("http://0x7f000001/", "its host is a number"),
        ("http://0x7f.1/", "its host is a number"),
        ("http://127.1/", "its host is a number"),
        ("http://127.0.1/", "its host is a number"),
        ("http://0177.0.0.1/", "its host is a number"),
        ("http://127.0.0.0x1/", "its host is a number"),
        ("http://127.0.0.01/", "its host is a number"),
        ("http://127.0.0.256/", "its host is a number"),
        ("http://1.2.3.4.5/", "its host is a number"),
        ("http://example.0x1/", "its host is a number"),
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url, reason):
    with pytest.raises(AddressRefused, match=reason):
        read_url(url)


PRIVATE = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.254 127.0.0.1 127.255.255.255 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1
239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:8.8.8.8 ::8.8.8.8 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1
64:ff9b::a9fe:a9fe
64:ff9b:1::8.8.8.8 100::1 2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:10::1 2001:db8::1 2002:7f00:1::
2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 2606:4700::1111%1
""".split()
PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 172.15.255.255 172.32.0.0
192.0.1.0 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700:4700::1111 2a00:1450:4001::1
2001:4860:4860::8888 2003::1 64:ff9b::8.8.8.8
""".split()


def test_which_addresses_are_public():
    assert {address: is_public(address) for address in (*PRIVATE, *PUBLIC, "localhost", "")} == {
        **dict.fromkeys(PRIVATE, False), **dict.fromkeys(PUBLIC, True), "localhost": False, "": False,
    }  # fmt: skip


def asked(*found):
    """A resolver that answers so, and what it was asked."""
    questions = []

    def resolve(host, port):
        questions.append((host, port))
        return found

    return resolve, questions


def test_a_name_is_refused_when_any_of_its_addresses_is_not_public():
    for found in (["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["2606:4700::1111", "fe80::1%eth0"]):
        resolve, _ = asked(*found)
        with pytest.raises(AddressRefused) as caught:
            addresses_of(read_url("https://evil.example/token"), resolve=resolve)
        assert caught.value.sentence == (
            "evil.example cannot be called: it is, or resolves to, an address that is not public."
        )


def test_a_name_is_resolved_once_and_an_address_never():
    resolve, questions = asked("8.8.8.8", "2606:4700::1111")
    assert addresses_of(read_url("https://example.com"), resolve=resolve) == ("8.8.8.8", "2606:4700::1111")
    assert addresses_of(read_url("http://[2606:4700::1111]"), resolve=resolve) == ("2606:4700::1111",)
    with pytest.raises(AddressRefused):
        addresses_of(read_url("http://127.0.0.1:8000"), resolve=resolve)
    assert questions == [("example.com", 443)]


def test_a_host_that_is_allowed_by_name_may_be_anywhere():
    resolve, _ = asked("10.0.0.1")
    found = {
        url: addresses_of(read_url(url), resolve=resolve, private_hosts={"hooks.internal", "127.0.0.1"})
        for url in ("http://Hooks.Internal.:9/x", "http://127.0.0.1:9/")
    }
    assert found == {"http://Hooks.Internal.:9/x": ("10.0.0.1",), "http://127.0.0.1:9/": ("127.0.0.1",)}
    with pytest.raises(AddressRefused):
        addresses_of(read_url("http://sub.hooks.internal/"), resolve=resolve, private_hosts={"hooks.internal"})


def test_a_name_without_an_address_is_refused():
    resolve, _ = asked()
    with pytest.raises(AddressRefused, match=r"nobody\.example cannot be called: its host has no address"):
        addresses_of(read_url("https://nobody.example"), resolve=resolve)


@pytest.mark.parametrize(("fault", "found"), [(socket.EAI_NONAME, []), (socket.EAI_AGAIN, "away"), (None, "away")])
def test_a_name_that_is_nobody_s_is_told_from_a_name_server_that_is_away(monkeypatch, fault, found):
    def fails(*_, **__):
        raise OSError("no network") if fault is None else socket.gaierror(fault, "words")

    monkeypatch.setattr("socket.getaddrinfo", fails)
    try:
        told = SystemResolver()("nobody.example", 443)
    except Unavailable:
        told = "away"
    assert told == found


def test_a_resolver_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(addresses, "_LOOKUP_S", 0.01)
    hung = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: hung.wait(60))
    with pytest.raises(Unavailable, match=r"slow\.example could not be resolved within 0\.01 s"):
        SystemResolver()("slow.example", 443)
    hung.set()


def test_the_system_s_answers_come_once_each(monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("8.8.8.8", 443))] * 2)
    assert SystemResolver()("example.com", 443) == ["8.8.8.8"]


def test_what_is_public_is_global_to_python_too():
    assert [a for a in PUBLIC if not a.startswith("64:") and not ipaddress.ip_address(a).is_global] == []
