"""A call to a URL that a tenant named: to the addresses that were checked, no redirect, bounded in time and size."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from infra.web.addresses import Place, Resolve, SystemResolver, addresses_of, read_url
from jobs.errors import Unavailable
from jobs.model import Value


class CallFailed(Unavailable):
    """{host} did not take a call: {reason}."""

    code = "call_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy(Value):
    """timeout_s: of the whole call once the name is resolved, however slowly the other side sends. answer_bytes: so
    much of the answer's body is read. private_hosts: hosts that may be at an address that is not public.
    """

    timeout_s: float = 15.0
    answer_bytes: int = 64 << 10
    private_hosts: frozenset[str] = frozenset()


@dataclass(eq=False, kw_only=True)
class Calls:
    """`jobs.ports.webhooks.Post`. Safe to use from several threads."""

    policy: CallPolicy = CallPolicy()
    resolve: Resolve = field(default_factory=SystemResolver)

    def check(self, url: str) -> None:
        """Raises AddressRefused, and Unavailable where its name cannot be resolved now."""
        self._addresses(read_url(url))

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer, whatever it is: redirects are not followed. Raises AddressRefused, CallFailed."""
        place = read_url(url)
        connection = _Pinned(place, self._addresses(place), self.policy.timeout_s, self._tls)
        watch = threading.Timer(self.policy.timeout_s, connection.give_up)
        watch.daemon = True
        watch.start()
        try:
            return self._exchange(connection, place, headers, body)
        except (OSError, http.client.HTTPException) as error:
            reason = f"no answer within {self.policy.timeout_s:g} s" if connection.given_up else _words(error)
            raise CallFailed(host=place.netloc, reason=reason) from error
        finally:
            watch.cancel()
            connection.close()

    def _addresses(self, place: Place) -> tuple[str, ...]:
        return addresses_of(place, resolve=self.resolve, private_hosts=self.policy.private_hosts)

    def _exchange(self, connection: _Pinned, place: Place, headers: Mapping[str, str], body: bytes) -> int:
        connection.putrequest("POST", place.target, skip_host=True, skip_accept_encoding=True)
        whole = {"host": place.netloc, **headers, "content-length": str(len(body)), "connection": "close"}
        for name, value in whole.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        if connection.given_up:  # its headers end where they were cut off
            raise TimeoutError
        with suppress(OSError, http.client.HTTPException):  # its status is all that counts; to read on is polite
            answer.read(self.policy.answer_bytes)
        return answer.status

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The machine's certificates, or those that `SSL_CERT_FILE` names."""
        return ssl.create_default_context()


class _Pinned(http.client.HTTPConnection):
    """Connects to given addresses, and to nothing else; the host's name is for TLS and the `Host` header alone."""

    def __init__(self, place: Place, addresses: tuple[str, ...], timeout_s: float, tls: ssl.SSLContext) -> None:
        super().__init__(place.host, place.port, timeout=timeout_s)
        self.given_up = False
        self._place = place
        self._addresses = addresses
        self._tls_context = tls

    def connect(self) -> None:
        """Raises OSError of the last address that was tried."""
        self.sock = self._reach()
        if self._place.scheme == "https":
            self.sock = self._tls_context.wrap_socket(
                self.sock, server_hostname=self._place.host, do_handshake_on_connect=False
            )
            self.sock.do_handshake()

    def give_up(self) -> None:
        """From another thread: whoever reads or writes sees the connection end."""
        self.given_up = True
        sock = self.sock
        if sock is not None:
            try:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # past TLS, whose own state another thread is using
            except OSError:
                return

    def _reach(self) -> socket.socket:
        fault = OSError("there is no address")
        for address in self._addresses:
            if self.given_up:
                raise TimeoutError
            try:
                return socket.create_connection((address, self._place.port), self.timeout)
            except OSError as error:
                fault = error
        raise fault


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
