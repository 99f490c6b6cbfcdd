"""`nightmill up` with its API as a user starts it, in a process of its own, and what it takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from infra.deploy.cluster.ray_head import SERVE
from infra.deploy.cluster.service import free_ports
from tests.benchmarks import figures, machine
from tests.benchmarks.callers import Asked, Told, call_all
from tests.benchmarks.nightmill import COMMAND
from tests.benchmarks.watch import Tree, watching

START_S, END_S = 300.0, 90.0
PROCESSES = 2
"""Of the clients, where there are at least as many of them."""
SETTINGS = """
api_port = {port}
api_replicas = {replicas}
"""
POOLS = """
[pools.fake]
model = "fake"
num_cpus = 0.1
min_workers = 1
"""


@dataclass(slots=True, kw_only=True)
class Served:
    """An API that answers. tree: its process and all below it."""

    host: str
    port: int
    key: str
    tree: Tree = field(repr=False)

    def ask(self, clients: int, *, times: int = 0, **options: Any) -> Round:
        """Let so many clients call at the same time."""
        shares = [clients // PROCESSES + (n < clients % PROCESSES) for n in range(PROCESSES)]
        shares = [share for share in shares if share][: times or None]
        asked = [
            Asked(
                host=self.host, port=self.port, key=self.key, clients=share,
                times=times // len(shares) + (n < times % len(shares)), **options,
            )
            for n, share in enumerate(shares)
        ]  # fmt: skip
        busy_s, before_s = machine.busy_s(), self.cpu_s()
        began = time.monotonic()
        with watching(self.tree):
            told = call_all(asked)
        span_s = time.monotonic() - began
        server_s, callers_s = self.cpu_s() - before_s, sum(one.cpu_s for one in told)
        return Round(
            told=told,
            span_s=span_s,
            server_s=server_s,
            callers_s=callers_s,
            others_s=max(0.0, machine.busy_s() - busy_s - server_s - callers_s),
        )

    def cpu_s(self) -> float:
        """Of its processes so far."""
        self.tree.look()
        return sum(seen.cpu_s for seen in self.tree.seen.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What clients saw, and CPU seconds within `span_s`, the start of the clients' processes among them: of the
    server's processes, of the clients', of everybody else's.
    """

    told: Sequence[Told]
    span_s: float
    server_s: float
    callers_s: float
    others_s: float

    @property
    def wall_s(self) -> float:
        return max(one.ended_at for one in self.told) - min(one.began_at for one in self.told)

    @property
    def latencies(self) -> list[float]:
        return sorted(latency for one in self.told for latency in one.latencies)

    @property
    def a_second(self) -> float:
        return len(self.latencies) / self.wall_s

    def share(self, part: float) -> float:
        """Seconds within which such a part of them was answered."""
        found = self.latencies
        return found[min(len(found) - 1, int(part * len(found)))]

    def cells(self) -> list[str]:
        """a second, p50, p99, and what share of the machine each took."""
        cores_s = self.span_s * (psutil.cpu_count() or 1)
        shares = [f"{seconds / cores_s:.0%}" for seconds in (self.server_s, self.callers_s, self.others_s)]
        return [f"{self.a_second:,.0f}", *(f"{1000 * self.share(part):,.1f} ms" for part in (0.5, 0.99)), *shares]


HEAD = ["a second", "p50", "p99", "server's CPU", "clients'", "others'"]


def table(first: str, rounds: Sequence[tuple[str, Round]]) -> str:
    """A line a round."""
    return figures.table([first, *HEAD], [[name, *one.cells()] for name, one in rounds])


@dataclass(slots=True)
class Kin(Tree):
    """All processes of a data directory, by their environment: those of Ray are nobody's children."""

    home: str = ""
    known: dict[int, bool] = field(default_factory=dict)

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        if process.pid not in self.known:
            try:
                self.known[process.pid] = process.environ().get("NIGHTMILL_HOME") == self.home
            except (psutil.Error, OSError):
                return False
        return self.known[process.pid]


@contextmanager
def served(folder: Path, *, cluster: bool, pools: str = POOLS, replicas: int = 2) -> Iterator[Served]:
    """Bring it up over a data directory of its own, with the fake engine unless told otherwise, and end it.

    replicas: of the API, on a cluster.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    config = folder / "settings.toml"
    config.write_text(SETTINGS.format(port=port, replicas=replicas) + pools)
    env = {**os.environ, "NIGHTMILL_HOME": str(folder / "home"), **(SERVE if cluster else {})}
    words = ["up", "--json", "--config", str(config), *(["--cluster"] if cluster else [])]
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, *words], env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            key = _key(process, folder / "up.log")
            tree = Kin(psutil.Process(process.pid), home=env["NIGHTMILL_HOME"])
            yield Served(host="127.0.0.1", port=port, key=key, tree=tree)
        finally:
            _end(process)


def _key(process: subprocess.Popen[str], log: Path) -> str:
    """Once it says where it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if "first_key" in event:
            return str(event["first_key"])
    raise RuntimeError(f"nightmill up ended with {process.wait()}:\n{log.read_text()[-4000:]}")


def _end(process: subprocess.Popen[str]) -> None:
    """What is still under way stays in the data directory, which nobody needs."""
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    for child in psutil.wait_procs(below, timeout=5)[1]:
        child.kill()


def until(answer: Callable[[], bool], within_s: float) -> None:
    """Wait until the callable says yes. Raises RuntimeError."""
    ends = time.monotonic() + within_s
    while not answer():
        if time.monotonic() > ends:
            raise RuntimeError(f"not within {within_s:g} s")
        time.sleep(0.2)
