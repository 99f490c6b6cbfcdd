"""What an engine is started from: a value that travels to the engine's process as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from jobs.ports.engine import ModelKind

BackendName = Literal["vllm", "fake"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlace:
    """Where the workers of an engine over several nodes begin: a named placement group of a Ray cluster."""

    address: str
    namespace: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine to start.

    model: the registry's name, used in messages. path: the model folder; not used by the fake engine.
    engine_args: passed to the backend by name (for vLLM the fields of `AsyncEngineArgs`).
    env: environment of the engine's process; it overrides the caller's environment and our defaults.
    cpu_kv_cache_gib: room for the KV cache where vLLM runs on a CPU, unless VLLM_CPU_KVCACHE_SPACE says otherwise.
    hang_timeout_s: rows inside and no token moved for this long is a hang.
    start_timeout_s: weights on a cold network disk can take many minutes, so this is long.
    stop_grace_s: how long `stop` waits before it kills. ray: for an engine over several nodes.
    """

    model: str
    kind: ModelKind
    backend: BackendName
    log_path: Path
    path: str = ""
    engine_args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cpu_kv_cache_gib: int = 2
    hang_timeout_s: float = 120.0
    start_timeout_s: float = 1800.0
    stop_grace_s: float = 10.0
    ray: RayPlace | None = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON object that the engine's process reads first."""
        return {**asdict(self), "log_path": str(self.log_path)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> EngineSpec:
        """The inverse of `to_wire`."""
        place = wire.get("ray")
        ray = RayPlace(**place) if place is not None else None
        return cls(**{**wire, "log_path": Path(wire["log_path"]), "ray": ray})
