"""Engines made as the settings, a model of the registry and a pool say; none is started yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.engines.process import EngineProcess
from infra.engines.several import SeveralEngines, shares
from infra.engines.spec import EngineSpec, RayPlace
from jobs.model import Model, Value
from jobs.pools import Pool

Engines = EngineProcess | SeveralEngines


@dataclass(frozen=True, slots=True, kw_only=True)
class Making(Value):
    """logs: the folder of their log files. The others: as in `EngineSpec`."""

    logs: Path
    cpu_kv_cache_gib: int
    hang_timeout_s: float
    start_timeout_s: float

    def one(self, model: Model, engine_args: Mapping[str, Any], log_name: str) -> EngineProcess:
        """engine_args go before the model's own. log_name: of the log file, without its ending."""
        return EngineProcess(self._spec(model, engine_args, log_name))

    def of_pool(self, model: Model, pool: Pool, log_name: str, ray: RayPlace | None = None) -> Engines:
        """Of a worker of the pool: one, or several behind one port. ray: for one over several nodes."""
        spec = replace(self._spec(model, pool.engine_args, log_name), ray=ray)
        return EngineProcess(spec) if pool.engines == 1 else SeveralEngines(shares(spec, pool.engines))

    def _spec(self, model: Model, engine_args: Mapping[str, Any], log_name: str) -> EngineSpec:
        return EngineSpec(
            model=model.name,
            kind=model.kind,
            backend="fake" if model.engine == "fake" else "vllm",
            path=model.path,
            engine_args={**model.engine_args, **engine_args},
            log_path=self.logs / f"{log_name}.log",
            cpu_kv_cache_gib=self.cpu_kv_cache_gib,
            hang_timeout_s=self.hang_timeout_s,
            start_timeout_s=self.start_timeout_s,
        )
