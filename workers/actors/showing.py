"""The figures of actors, and the list by which Prometheus finds those of other nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import ray
import structlog
from ray.exceptions import RayError
from ray.util import get_node_ip_address, list_named_actors
from structlog.contextvars import bind_contextvars

from infra.bootstrap import Home
from infra.metrics import Shown, read_targets, sweep, write_targets
from jobs.figures import Source
from workers.main import show

log = structlog.get_logger()

LIST_S = 5.0
"""How often the list is made: about as often as Prometheus looks into it."""
ELSEWHERE = "other-nodes.json"
_ANSWER_S = 1.0


def show_actor(home: Home, labels: Mapping[str, str], sources: Sequence[Source]) -> Shown:
    """Show an actor's figures. What is logged in this thread and those that it starts carries the labels too."""
    bind_contextvars(**labels)
    node = ray.get_runtime_context().get_node_id()
    return show(home, {**labels, "node": node}, sources, address=get_node_ip_address())


def to_wire(shown: Shown) -> bytes:
    """What an actor answers when it is asked where its figures are; empty: nowhere for others."""
    return orjson.dumps([shown.target, shown.labels]) if shown.is_far_off else b""


class Listing:
    """Targets on other nodes, in a file beside those that the processes of this node wrote themselves.

    Only what listens on an address that others can reach is listed (setting `metrics_bind`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asked: dict[str, Any] = {}
        self._told: dict[str, bytes] = {}

    def step(self) -> None:
        """Ask all actors that are there; one that does not answer now is listed as it last was."""
        there = set(list_named_actors())
        self._asked = {name: ref for name, ref in self._asked.items() if name in there}
        self._told = {name: told for name, told in self._told.items() if name in there}
        for name in there - self._asked.keys():
            self._ask(name)
        self._hear()
        sweep(self._folder)
        here = read_targets(self._folder, but=ELSEWHERE)
        told = [orjson.loads(answer) for _, answer in sorted(self._told.items()) if answer]
        write_targets(self._folder / ELSEWHERE, [(t, labels) for t, labels in told if t not in here])

    def _ask(self, name: str) -> None:
        try:
            self._asked[name] = ray.get_actor(name).figures.remote()
        except ValueError:  # it ended meanwhile
            return

    def _hear(self) -> None:
        names = {ref: name for name, ref in self._asked.items()}
        ready, _ = ray.wait([*names], num_returns=len(names), timeout=_ANSWER_S) if names else ([], [])
        for ref in ready:
            name = names[ref]
            del self._asked[name]
            try:
                self._told[name] = ray.get(ref)
            except RayError as error:
                log.debug("figures_unasked", asked=name, error=repr(error))
