"""A line between a store and its PostgreSQL server that breaks where a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from tests.support.postgres import USER, Database, Server


class Cutter:
    """A line to the server that breaks at the COMMIT it is told to break at.

    cut(before=…): whether the next COMMIT is lost itself, or only its answer. cuts: how many were cut.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._orders: list[bool] = []
        self._open: list[socket.socket] = []
        self.cuts = 0
        threading.Thread(target=self._accept, name="cutter", daemon=True).start()

    def url(self, database: Database) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self._listener.getsockname()[1]}/{database.name}?sslmode=disable"

    def cut(self, *, before: bool = False, times: int = 1) -> None:
        self._orders += [before] * times

    def close(self) -> None:
        for line in (self._listener, *self._open):
            line.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(("127.0.0.1", self._server.port))
                self._open += [client, upstream]
                threading.Thread(target=self._carry, args=(client, upstream), daemon=True).start()
                threading.Thread(target=_pump, args=(upstream, client), daemon=True).start()

    def _carry(self, client: socket.socket, upstream: socket.socket) -> None:
        """From the client to the server. At a cut the way back is closed first, so that no answer slips through."""
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if b"COMMIT\0" in data and self._orders:  # not "READ COMMITTED"
                    self.cuts += 1
                    if not self._orders.pop(0):
                        client.shutdown(socket.SHUT_RDWR)
                        upstream.sendall(data)
                        time.sleep(0.1)  # until it is made
                    break
                upstream.sendall(data)
        for line in (client, upstream):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)  # a mere close would wait for the thread that reads from it
            line.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
