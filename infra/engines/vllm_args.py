"""vLLM's engine arguments: ours where nothing was said, the spec's otherwise."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import current_platform

from infra.engines.backend import StartFailed, check_argument_names
from infra.engines.spec import EngineSpec
from infra.engines.vllm_tools import ARGUMENT, check_parser

CPU_BLOCK_SIZE = 32
"""Only whole blocks of a prefix hit; vLLM takes 128 on a CPU, and 32 cost nothing measurable."""
_GUIDED = {"backend": "xgrammar", "disable_any_whitespace": True}
"""One grammar library for all: under vLLM's `auto` the first schema chooses for the engine's life, and a later one,
checked for another library, would fail in this one. No free whitespace: small models fill their limit with it."""
_OURS = frozenset({"model", "runner"})


def engine_args(spec: EngineSpec) -> AsyncEngineArgs:
    """The arguments. Raises StartFailed naming one that does not exist or is not the caller's to set."""
    check_argument_names(spec.engine_args, [ARGUMENT, *(field.name for field in fields(AsyncEngineArgs))])
    if ARGUMENT in spec.engine_args:
        check_parser(spec.engine_args[ARGUMENT])
    for name in sorted(_OURS.intersection(spec.engine_args)):
        raise StartFailed(f"the engine argument {name} follows from the model's entry and cannot be set")
    args = {**_defaults(spec), **spec.engine_args}
    args.pop(ARGUMENT, None)
    if isinstance(guided := args.get("structured_outputs_config"), dict):
        args["structured_outputs_config"] = {**_GUIDED, **guided}
    return AsyncEngineArgs(**args)


def _defaults(spec: EngineSpec) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "model": spec.path,
        "served_model_name": spec.model,
        "disable_log_stats": True,  # our own counter reads the statistics; the default loggers would cost each step
        "enable_log_requests": False,
        "scheduling_policy": "priority",
        "runner": "pooling" if spec.kind == "embedding" else "generate",
    }
    if spec.ray is not None:
        defaults["distributed_executor_backend"] = "ray"
    if spec.kind != "embedding":
        defaults["enable_prefix_caching"] = True
        defaults["structured_outputs_config"] = _GUIDED
    if current_platform.is_cpu():
        defaults["enforce_eager"] = True  # compiling costs more minutes than it gives back
        defaults["block_size"] = CPU_BLOCK_SIZE
    return defaults
