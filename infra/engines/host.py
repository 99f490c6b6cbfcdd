"""The engine's process: reads rows from a socket, lets a backend work on them, writes results back.

Started by `EngineProcess` as `python -m infra.engines.host SOCKET_FD LIFE_FD`, leader of its own process group, so that
the terminal's Ctrl-C does not reach it and its whole group can be killed. No module-level import of torch or vLLM.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from infra.engines import wire
from infra.engines.backend import Backend, Maker, SchemaRefused, StartFailed, error_row
from infra.engines.frames import FrameReader
from infra.engines.group import end_group
from infra.engines.outbox import Outbox
from infra.engines.spec import EngineSpec
from infra.heap import settle_heap
from jobs.ports.engine import RequestProfile

MAX_WORDS = 600
EXIT_START_FAILED = 70
EXIT_ENGINE_DEAD = 71
GUARD_S = 5.0
"""What the guard has to end the group before this process does it itself."""

_MAKERS = {
    "fake": "infra.engines.fake_backend",
    "vllm": "infra.engines.vllm_start",
}
_log = logging.getLogger("nightmill.engine")


class Host:
    """Connects one backend with the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._outbox = Outbox(sock)
        self._backend: Backend | None = None
        self._profiles: dict[str, RequestProfile] = {}
        self._early: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(self) -> int:
        """Serve until the other side stops or is gone; returns the exit code."""
        spec = EngineSpec.from_wire(self._read_first()["spec"])
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        try:
            backend = _maker(spec.backend)(spec, self._outbox.deliver, self._outbox.tell, self._die)
            self._open(backend)
            info = backend.load()
        except Exception as error:  # noqa: BLE001 - the process edge: whatever it is, the user must read it
            _log.exception("engine_start_failed")
            self._outbox.send({"op": "failed", "reason": _words(error)})
            return EXIT_START_FAILED
        settle_heap()
        self._outbox.start(backend.tokens_moved, backend.occupancy, spec.hang_timeout_s)
        self._outbox.send(wire.info_to_wire(info))
        self._stopped.wait()
        backend.close()
        return 0

    def _read_first(self) -> dict[str, Any]:
        """The first frame; what came along with it waits for the backend."""
        while data := self._sock.recv(1 << 16):
            heads = [head for head, _ in self._reader.feed(data)]
            if heads:
                self._early += heads[1:]
                return heads[0]
        sys.exit(0)

    def _read(self) -> None:
        """The reader thread. The end of the stream means that the caller is gone."""
        try:
            while data := self._sock.recv(1 << 20):
                for head, _ in self._reader.feed(data):
                    self._take(head)
        except Exception as error:  # noqa: BLE001 the thread's edge: without its reader the process is dead
            _log.exception("reader_failed")
            self._die(_words(error))
        if not self._stopped.is_set():
            time.sleep(GUARD_S)  # the guard sees the same and ends the group; only if it is gone do we
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def _open(self, backend: Backend) -> None:
        """From here schemas are answered at once, while the model still loads; serve what waited."""
        with self._lock:
            self._backend = backend
            early, self._early = self._early, []
            for head in early:
                self._handle(backend, head)

    def _take(self, head: dict[str, Any]) -> None:
        if head["op"] == "stop":
            self._stopped.set()
            return
        with self._lock:
            if self._backend is None:
                self._early.append(head)
                return
        self._handle(self._backend, head)

    def _handle(self, backend: Backend, head: dict[str, Any]) -> None:
        match head["op"]:
            case "submit":
                self._submit(backend, head)
            case "abort":
                backend.abort(head["ids"])
            case "profile":
                profile = wire.profile_from_wire(head)
                self._profiles[profile.key] = profile
            case "forget":
                for key in head["keys"]:
                    self._profiles.pop(key, None)
                backend.forget(head["keys"])
            case "schema":
                self._outbox.send({"op": "schema", "n": head["n"], "error": _refusal(backend, head["schema"])})

    def _submit(self, backend: Backend, head: dict[str, Any]) -> None:
        requests = wire.requests_from_wire(head)
        try:
            backend.submit(self._profiles[head["key"]], requests)
        except Exception as error:  # noqa: BLE001 - a chunk that cannot enter is error rows, not a dead engine
            _log.exception("submit_failed")
            self._outbox.deliver([error_row(r.id, "engine_error", _words(error)) for r in requests])

    def _die(self, reason: str) -> None:
        """The engine is dead: say why, then leave at once (its threads may be stuck)."""
        _log.error("engine_dead: %s", reason)
        self._outbox.send({"op": "died", "reason": reason})
        os._exit(EXIT_ENGINE_DEAD)


def _maker(name: str) -> Maker:
    if name not in _MAKERS:
        raise StartFailed(f"unknown engine {name}: known are {', '.join(sorted(_MAKERS))}")
    maker: Maker = import_module(_MAKERS[name]).make
    return maker


def _refusal(backend: Backend, schema: str) -> str | None:
    try:
        backend.check_schema(schema)
    except SchemaRefused as refused:
        return str(refused)
    except Exception as error:  # noqa: BLE001 whatever it is, the schema cannot be used
        _log.exception("schema_check_failed")
        return f"the check failed: {_words(error)}"
    return None


def _words(error: Exception) -> str:
    """One line of an exception's words; pydantic's take many, and end in an address."""
    if isinstance(error, StartFailed):
        return str(error)
    text = " ".join(str(error).split("For further information visit")[0].split())
    return f"{type(error).__name__}: {text[:MAX_WORDS]}"


def guard_life(life_fd: int) -> None:
    """Leave a tiny process behind that ends our group when the caller is gone, whatever this process is doing then.

    The caller holds the only write end of the pipe and never writes. Forked first, while this is one small thread.
    PR_SET_PDEATHSIG would follow the death of the *thread* that started us, and would not reach the engine's own
    children; the reader thread alone would depend on the interpreter lock being free.
    """
    group = os.getpgrp()
    if os.fork():
        os.close(life_fd)
        return
    os.setpgid(0, 0)
    os.closerange(3, life_fd)
    os.closerange(life_fd + 1, os.sysconf("SC_OPEN_MAX"))
    while os.read(life_fd, 1):
        pass
    end_group(group)
    os._exit(0)


def main(argv: Sequence[str]) -> None:
    """Entry point: `SOCKET_FD LIFE_FD`."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    guard_life(int(argv[2]))
    with socket.socket(fileno=int(argv[1])) as sock:
        code = Host(sock).run()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv)
