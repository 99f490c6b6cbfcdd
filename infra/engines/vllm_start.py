"""The door to the vLLM backend: what can be refused before vLLM's imports, which take seconds, is refused here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from infra.engines.backend import Backend, Deliver, Die, StartFailed, Tell
from infra.engines.spec import EngineSpec


def make(spec: EngineSpec, deliver: Deliver, tell: Tell, die: Die) -> Backend:
    """The backend's maker. Raises StartFailed."""
    check_folder(spec)
    if find_spec("vllm") is None:
        raise StartFailed("vLLM is not installed. Run: make setup, or on a GPU: pip install nightmill[gpu]")
    backend: Backend = import_module("infra.engines.vllm_backend").VllmBackend(spec, deliver, tell, die)
    return backend


def check_folder(spec: EngineSpec) -> None:
    """Raise StartFailed if there is no model where the spec says, in words better than an engine's."""
    path = Path(spec.path)
    if not spec.path or not path.exists():
        raise StartFailed(f"the model folder {spec.path or '(none)'} does not exist")
    if path.is_dir() and not (path / "config.json").is_file():
        raise StartFailed(f"the folder {spec.path} holds no config.json, so no model")
