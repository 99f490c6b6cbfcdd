"""What a worker says of itself: JSON, so that nothing of a tenant is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from jobs.model import Priority, Value


class Phase(StrEnum):
    """A worker's life. `pending`: it has not answered yet (its place may still be looked for). `drained` and `failed`
    are its end: nothing is in its hands, and its process may go.
    """

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    DRAINED = "drained"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Value):
    """owner: as leases name it. room: tokens of work still wanted, by priority. open_tasks: in its hands.

    rows, output_tokens: generated since its start; rows_per_s: of the last seconds. uptime_s: since its engine started.
    going: its machine is to be taken away; it drains, and holds its place until then. requests: in its hands.
    door: where it takes requests, as `HOST:PORT`, empty if nowhere; secret: to be shown there first.
    """

    name: str
    pool: str
    phase: Phase
    owner: str = ""
    reason: str = ""
    host: str = ""
    node: str = ""
    pid: int = 0
    accelerators: str = ""
    room: Mapping[Priority, int] = field(default_factory=dict)
    open_tasks: int = 0
    rows: int = 0
    output_tokens: int = 0
    rows_per_s: float = 0.0
    engine_deaths: int = 0
    uptime_s: float = 0.0
    going: bool = False
    requests: int = 0
    door: str = ""
    secret: str = field(default="", repr=False)

    @property
    def over(self) -> bool:
        return self.phase in {Phase.DRAINED, Phase.FAILED}

    @property
    def leaving(self) -> bool:
        return self.phase is Phase.DRAINING or self.over


def encode(report: Report) -> bytes:
    """As JSON."""
    return json.dumps(asdict(report)).encode()


def decode(data: bytes) -> Report:
    """The inverse of `encode`."""
    body: dict[str, Any] = json.loads(data)
    room = {Priority(name): rows for name, rows in body.pop("room").items()}
    return Report(**{**body, "phase": Phase(body["phase"]), "room": room})
