"""How the faults of a plan strike a site, and how they are mended.

Processes are found below the test's own process, by their titles: no answer of theirs is needed, and no other Ray on
the machine is touched.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from jobs.errors import Unavailable
from jobs.model import Priority
from jobs.topics import topic as topic_of
from tests.chaos_cluster.plans import Fault
from tests.chaos_cluster.site import POOL, PREFIX, Site

TITLES = {
    "worker": "ray::WorkerActor",
    "dispatcher": "ray::DispatcherActor",
    "scheduler": "ray::SchedulerActor",
    "fleet": "ray::FleetActor",
    "engine": "infra.engines.host",
}


def found(role: str) -> list[psutil.Process]:
    """Living processes of a role, the oldest first. Of an engine's processes only the leader."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            titled = TITLES[role] in " ".join(process.cmdline())
            leads = role != "engine" or os.getpgid(process.pid) == process.pid
            if titled and leads and process.status() not in _NOT_LIVING:
                processes.append(process)
    return sorted(processes, key=lambda process: (process.create_time(), process.pid))


_NOT_LIVING = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD, psutil.STATUS_STOPPED}


@dataclass(kw_only=True)
class Striker:
    """dead_tokens: of leases that ended while their worker was frozen."""

    site: Site
    seed: int
    dead_tokens: list[str] = field(default_factory=list)

    def strike(self, fault: Fault) -> Callable[[], None] | None:
        """What mends it; None if there is nothing to strike at this moment: then try again."""
        what, _, rest = fault.kind.partition(" ")
        if what == "kill":
            return self._kill(rest, fault)
        if what == "freeze":
            return self._freeze(rest, fault)
        if what == "broker":
            return self._broker(rest)
        if what == "database":
            return self._database(rest)
        if what == "topic":
            return self._topic(rest, fault)
        self.site.weather.turn(fault.kind, self.seed)
        return self.site.weather.clear

    # ---- processes ------------------------------------------------------------------------------

    def _victim(self, role: str, fault: Fault) -> psutil.Process | None:
        there = found(role)
        return there[fault.which % len(there)] if there else None

    def _kill(self, role: str, fault: Fault) -> Callable[[], None] | None:
        victim = self._victim(role, fault)
        if victim is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
        return _nothing

    def _freeze(self, role: str, fault: Fault) -> Callable[[], None] | None:
        victim = self._victim(role, fault)
        if victim is None:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.suspend()
        held = self._held_by(victim.pid) if role == "worker" else {}

        def thaw() -> None:
            self.dead_tokens += [token for token, task in held.items() if self._has_ended(token, task)]
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.resume()

        return thaw

    def _held_by(self, pid: int) -> dict[str, str]:
        """token → task, of the leases of a worker's process. Nothing while the database is away."""
        store, locks = self.site.home.store, self.site.home.locks
        with contextlib.suppress(Unavailable):
            owners = [owner for owner in store.owners() if locks.pid_of(owner) == pid]
            return {str(task.token): task.id for owner in owners for task, _ in store.leased_by(owner)}
        return {}

    def _has_ended(self, token: str, task: str) -> bool:
        """Whether another than its holder ended the lease: a commit that was on its way when he froze leaves a part."""
        with contextlib.suppress(Unavailable):
            now = self.site.home.store.task(task)
            committed = any(part.uri.endswith(f"-{token}.parquet") for part in self.site.home.store.parts(now.job))
            return now.token != token and not committed
        return False

    # ---- services -------------------------------------------------------------------------------

    def _broker(self, how: str) -> Callable[[], None] | None:
        service = self.site.broker.service
        pid = service.pid
        if pid is None:
            return None
        if how == "frozen":
            return _stopped(psutil.Process(pid))
        service.kill()

        def start() -> None:
            service.start()

        return start

    def _database(self, how: str) -> Callable[[], None] | None:
        server = self.site.database.server
        lock = server.folder / "data" / "postmaster.pid"
        if not lock.exists():
            return None
        if how == "frozen":
            postmaster = psutil.Process(int(lock.read_text().split()[0]))
            return _stopped(postmaster, *postmaster.children())
        server.control("stop", "-m", "immediate")
        return lambda: server.control("start")

    def _topic(self, how: str, fault: Fault) -> Callable[[], None] | None:
        """Mostly the one that the job is in."""
        priority = [Priority.NORMAL, Priority.NORMAL, Priority.HIGH][fault.which % 3]
        topic = topic_of(PREFIX, POOL, priority)
        broker = self.site.home.broker
        try:
            broker.delete_topic(topic)
            if how == "wiped":
                broker.ensure_topics([topic])
        except Unavailable:
            return None
        return _nothing


def _nothing() -> None:
    """What died is replaced by others."""


def _stopped(*processes: psutil.Process) -> Callable[[], None]:
    """Stop them; what lets them go on."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()

    def go_on() -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    return go_on
