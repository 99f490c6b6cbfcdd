"""Whatever way a private address is written, it is not called."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.web.addresses import AddressRefused, addresses_of, is_public, read_url

pytestmark = pytest.mark.property

NETWORKS = [ipaddress.ip_network(n) for n in ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12")]
private = st.one_of(*[st.ip_addresses(v=4, network=network) for network in NETWORKS])
PIECES = [
    *("http https : / // @ [ ] ::1 127.0.0.1 0x7f 2130706433 10.0.0.1 localhost example.com . % %00 # ?".split()),
    *("\\", "\t", " ", "é", "１"),
]


def written(address):
    """All ways in which C libraries, browsers and proxies take an IPv4 address."""
    a, b, c, d = address.packed
    number = int(address)
    tails = (str(number), hex(number), f"0{number:o}", f"{a}.{number & 0xFFFFFF}", f"{a}.{b}.{number & 0xFFFF}")
    dotted = (
        f"{a}.{b}.{c}.{d}",
        f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a}.{b}.{c}.0{d:o}",
    )
    six = (f"[::ffff:{address}]", f"[::{address}]", f"[64:ff9b::{address}]", f"[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1]")
    teredo = f"[2001:0:808:808:0:0:{a ^ 255:02x}{b ^ 255:02x}:{c ^ 255:02x}{d ^ 255:02x}]"
    wide = "".join(chr(ord(char) + 0xFEE0) if char.isdigit() else char for char in str(address))
    return [*tails, *dotted, *six, teredo, wide, *(f"{text}." for text in (*tails, *dotted, wide))]


def nobody(host, port):
    raise AssertionError(f"{host} was looked up")


@given(private, st.sampled_from(["http", "https"]))
def test_no_way_of_writing_a_private_address_leads_there(address, scheme):
    for host in written(address):
        with pytest.raises(AddressRefused):
            addresses_of(read_url(f"{scheme}://{host}:8080/x"), resolve=nobody)


@given(private, st.lists(st.sampled_from(["8.8.8.8", "2606:4700::1111"]), max_size=3), st.data())
def test_one_private_address_among_public_ones_is_enough(address, others, data):
    found = data.draw(st.permutations([str(address), *others]))
    with pytest.raises(AddressRefused):
        addresses_of(read_url("https://example.com/"), resolve=lambda *_: found)


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused_and_what_is_read_is_plain(text):
    try:
        place = read_url(text)
    except AddressRefused:
        return
    assert place.host.isascii()
    assert not set(place.target) & set("\r\n\t \\#")
    assert not set(place.host) & set("\r\n\t @\\#%/?[]") or ":" in place.host
    assert place.scheme in {"http", "https"}


@given(st.ip_addresses(v=6))
def test_a_public_ipv6_address_is_global_unicast_or_nat64_of_a_public_one(address):
    if is_public(str(address)):
        nat64 = address in ipaddress.ip_network("64:ff9b::/96")
        assert nat64 or (address.is_global and address.sixtofour is None and address.teredo is None)
