"""Figures over HTTP for Prometheus, and the files by which it finds them; each process has a port of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from infra.metrics.targets import TargetFile, read_targets, sweep, write_targets
from jobs.figures import Source
from jobs.model import Value

__all__ = ["MetricsPolicy", "Shown", "read_targets", "serve", "sweep", "write_targets"]

log = structlog.get_logger()

_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPolicy(Value):
    """first_port: 0 for none. bind: address to listen on. address: of this machine for others, where bind is all of
    its addresses. folder: of the files by which Prometheus finds the ports.
    """

    first_port: int
    bind: str
    address: str
    folder: Path


@dataclass(slots=True)
class Shown:
    """A process whose figures can be read. target: `host:port`, "" where they are not shown. labels: of the target."""

    target: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    _ends: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Show them no longer. Idempotent."""
        while self._ends:
            self._ends.pop()()

    @property
    def is_far_off(self) -> bool:
        """Whether it can be read from other machines."""
        return self.target.rpartition(":")[0].strip("[]") not in _LOOPBACK | {""}


def serve(policy: MetricsPolicy, labels: Mapping[str, str], sources: Sequence[Source]) -> Shown:
    """Give out the figures of some sources under `/metrics` until closed. Never raises: who cannot show them goes on.

    labels: by which Prometheus tells this process from others; its `role` at least.
    """
    if not policy.first_port:
        return Shown()
    from infra.metrics.exposition import listen  # noqa: PLC0415 - it takes 0.1 s, and most commands show nothing

    try:
        port, end = listen(policy.first_port, policy.bind, sources)
    except OSError as error:
        log.warning("figures_not_shown", address=policy.bind, port=policy.first_port, reason=str(error))
        return Shown()
    host = policy.address if policy.bind in _EVERYWHERE else policy.bind
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    ends = [end]
    try:
        ends.append(TargetFile(policy.folder, f"{labels['role']}-{os.getpid()}-{port}", (target, labels)).close)
    except OSError as error:
        log.warning("figures_not_listed", target=target, reason=str(error))
    log.info("figures_shown", target=target, **labels)
    return Shown(target=target, labels=labels, _ends=ends)
