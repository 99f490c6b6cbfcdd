"""Engines: the adapter of the engine port. The engine runs in a process of its own, behind frames on a socket."""

from __future__ import annotations

from infra.engines.process import EngineProcess
from infra.engines.spec import EngineSpec

__all__ = ["EngineProcess", "EngineSpec"]
