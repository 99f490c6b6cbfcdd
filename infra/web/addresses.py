"""The address check: which URLs may be called at all, and to which addresses the call then goes. The one place.

A tenant names a URL and this process calls it: it must not lead into the network behind us. So a URL is read strictly,
its host is resolved once, every address that comes back must be public, and the caller connects to those addresses and
asks no name server again: a name that changes its answer in between (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jobs.errors import BadSetting, Refused, Unavailable
from jobs.model import Value

Resolve = Callable[[str, int], Sequence[str]]
"""(host, port) → addresses as text. Raises Unavailable."""

MAX_CHARS = 2048
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<target>[/?].*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_UNFIT = re.compile(r"[^\x21-\x7e]|[\\#]")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NOBODY = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
"""What a resolver says of a name that is nobody's; anything else may be otherwise the next time."""
_LOOKUPS = 8
_LOOKUP_S = 10.0

_NOT_PUBLIC_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
"""IANA's special-purpose addresses, multicast, and what is reserved. Spelled out: Python's own list moves between
releases."""
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
"""Inside of that: protocols of their own (Teredo among them), documentation, 6to4."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(Refused):
    """{url} cannot be called: {reason}."""

    code = "address_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Value):
    """A URL, read. host: ASCII, small letters, without a last dot; of IPv6 without brackets. target: path and query."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def netloc(self) -> str:
        """As the `Host` header has it; all that an error may show of a URL, for what follows can hold a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(url: str) -> Place:
    """Strictly, so that nobody after us can read it otherwise. Raises AddressRefused."""
    found = _URL.fullmatch(url) if len(url) <= MAX_CHARS else None
    if found is None:
        raise _refused(url, f"it is no URL of up to {MAX_CHARS} characters")
    scheme, target = found["scheme"].lower(), found["target"] or "/"
    if scheme not in _PORTS:
        raise _refused(url, "only http:// and https:// can")
    if _UNFIT.search(target):
        raise _refused(url, "its path has a character that must be written as %XX, or a #fragment")
    if "@" in found["authority"]:
        raise _refused(url, "it names a user before its host")
    parts = _AUTHORITY.fullmatch(found["authority"])
    port = int(parts["port"] or _PORTS[scheme]) if parts else 0
    if parts is None or not 0 < port < 65_536:
        raise _refused(url, "its host or port is none")
    host = _host(url, parts["host"])
    return Place(scheme=scheme, host=host, port=port, target=target if target.startswith("/") else f"/{target}")


def _host(url: str, text: str) -> str:
    if text.startswith("["):
        try:
            address = ipaddress.IPv6Address(text[1:-1])
        except ValueError:
            raise _refused(url, "its host is no IPv6 address") from None
        return str(address)  # with its zone, if it has one: none such is public
    try:
        host = text.encode("idna").decode().lower().removesuffix(".")
    except UnicodeError:
        raise _refused(url, "its host is no name") from None
    if _NUMBER.fullmatch(host.rpartition(".")[2]):  # 2130706433, 0x7f.1, 127.1: what some take for an address
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise _refused(url, "its host is a number that is no plain IPv4 address") from None
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise _refused(url, "its host is no name")
    return host


def read_host(text: str, *, setting: str) -> str:
    """A host of a setting, as `Place.host` has it. Raises BadSetting."""
    try:
        return read_url(f"http://[{text}]/" if text.count(":") > 1 else f"http://{text}/").host
    except AddressRefused as error:
        fault = f"{setting}: {text!r} is no host"
        raise BadSetting(reason=fault, faults=(fault,)) from error


def addresses_of(place: Place, *, resolve: Resolve, private_hosts: Collection[str] = ()) -> tuple[str, ...]:
    """Where to connect to, asked once. private_hosts: hosts that may be anywhere, as `Place.host` has them.

    Raises AddressRefused if any address is not public, Unavailable where the name cannot be resolved now.
    """
    found: tuple[str, ...]
    try:
        found = (str(ipaddress.ip_address(place.host)),)
    except ValueError:
        found = tuple(resolve(place.host, place.port))
    if not found:
        raise _refused(place.netloc, "its host has no address")
    if place.host not in private_hosts:
        for address in found:
            if not is_public(address):
                raise _refused(place.netloc, "it is, or resolves to, an address that is not public")
    return found


def is_public(address: str) -> bool:
    """Whether anybody on the Internet could be called so. An IPv6 address that holds another one (NAT64) counts as
    that one; IPv4-mapped ones, 6to4 and Teredo count as none.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # a zone ("fe80::1%eth0") or no address
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in network for network in _NOT_PUBLIC_4)
    if found.scope_id is not None:
        return False
    if found in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF)))
    return found in _GLOBAL_6 and not any(found in network for network in _NOT_PUBLIC_6)


class SystemResolver:
    """Asks the system, and waits no longer than `_LOOKUP_S`: its own patience can be minutes. Nothing for a name that
    is nobody's.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="lookup")

    def __call__(self, host: str, port: int) -> list[str]:
        asked = self._threads.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = asked.result(_LOOKUP_S)
        except TimeoutError:
            raise Unavailable(reason=f"the name {host} could not be resolved within {_LOOKUP_S:g} s") from None
        except socket.gaierror as error:
            if error.errno in _NOBODY:
                return []
            raise Unavailable(reason=f"the name {host} could not be resolved: {error}") from error
        except (OSError, UnicodeError) as error:
            raise Unavailable(reason=f"the name {host} could not be resolved: {error}") from error
        return list(dict.fromkeys(str(info[4][0]) for info in found))


def _refused(url: str, reason: str) -> AddressRefused:
    shown = url if len(url) <= 200 else f"{url[:200]}…"
    return AddressRefused(url=shown, reason=reason)
