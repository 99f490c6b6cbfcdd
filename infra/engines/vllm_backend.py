"""The vLLM backend: one AsyncLLM on a loop of its own, fed with token ids.

Threads of the engine's process: the reader hands chunks over; a tokeniser thread renders and encodes them; the loop
thread runs AsyncLLM. The model itself runs in vLLM's own child processes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from vllm.exceptions import VLLMClientError
from vllm.inputs.engine import tokens_input
from vllm.platforms import current_platform
from vllm.renderers import renderer_from_config
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from infra.engines.answers import Generated, embedded_row, generated_row
from infra.engines.backend import Deliver, Die, Tell, at_input, error_row, too_long
from infra.engines.last_words import exit_words
from infra.engines.spec import EngineSpec
from infra.engines.vllm_args import engine_args
from infra.engines.vllm_outputs import Deltas, embedded, generated, one_of, vllm_version
from infra.engines.vllm_params import Plan, SchemaCheck
from infra.engines.vllm_progress import Progress, stat_logger
from infra.engines.vllm_prompts import Outcome, Prompts
from infra.engines.vllm_streams import Streams
from infra.engines.vllm_tools import ARGUMENT
from jobs.ports.engine import EngineInfo, EngineRequest, EngineResult, Occupancy, RequestProfile
from jobs.prompts import inputs_of

WATCH_S = 0.5
SHUTDOWN_S = 5.0
"""For accelerators to be released in order; on a CPU there is nothing but memory, and the group is killed next."""
_log = logging.getLogger("nightmill.engine.vllm")


Ready = tuple[int, list[list[int]]]
"""A row with the token ids of its inputs."""


class VllmBackend:
    """See `infra.engines.backend.Backend`."""

    def __init__(self, spec: EngineSpec, deliver: Deliver, tell: Tell, die: Die) -> None:
        self._spec = spec
        self._deliver = deliver
        self._die = die
        self._args = engine_args(spec)
        self._config = self._args.create_engine_config(UsageContext.LLM_CLASS)
        if spec.ray is not None:
            from infra.engines.vllm_ray import join  # noqa: PLC0415 - Ray is there only in a cluster

            join(self._config.parallel_config, spec.ray)
        self._renderer = renderer_from_config(self._config)
        self._check_schema = SchemaCheck(self._config, self._renderer.get_tokenizer())
        self._streams = Streams(tell)
        self._progress = Progress(self._streams.look)
        self._tokeniser = ThreadPoolExecutor(1, thread_name_prefix="tokeniser")
        self._loop = asyncio.new_event_loop()
        self._plans: dict[str, Plan] = {}
        self._rows: dict[int, asyncio.Task[None]] = {}
        self._preparing: set[int] = set()
        self._aborted_early: set[int] = set()
        self._calls: dict[int, list[str]] = {}
        self._closing = False

    def check_schema(self, schema: str) -> None:
        self._check_schema(schema)

    def load(self) -> EngineInfo:
        prompts = self._tokeniser.submit(Prompts, self._renderer, self._spec.kind)
        self._engine = AsyncLLM.from_vllm_config(
            self._config,
            usage_context=UsageContext.LLM_CLASS,
            stat_loggers=[stat_logger(self._progress)],
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

    def forget(self, keys: Sequence[str]) -> None:
        self._tokeniser.submit(self._drop_plans, keys)  # behind the rows that came before

    def abort(self, ids: Sequence[int]) -> None:
        self._loop.call_soon_threadsafe(self._abort, ids)

    def tokens_moved(self) -> int:
        return self._progress.moved

    def occupancy(self) -> Occupancy:
        told = self._progress.occupancy
        return replace(told, waiting=told.waiting + len(self._preparing))

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
            parser = self._spec.engine_args.get(ARGUMENT)
            plan = self._plans[profile.key] = Plan(profile, self._config, self._renderer.get_tokenizer(), parser)
        return plan

    def _drop_plans(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._plans.pop(key, None)

    def _sort_out(self, plan: Plan, requests: Sequence[EngineRequest]) -> tuple[list[Ready], list[EngineResult]]:
        if plan.refused is not None:
            return [], [error_row(r.id, "invalid_request", plan.refused) for r in requests]
        inputs = [inputs_of(request.prompt) for request in requests]
        ids = iter(self._prompts.token_ids([prompt for several in inputs for prompt in several], plan))
        ready: list[Ready] = []
        refused: list[EngineResult] = []
        for request, several in zip(requests, inputs, strict=True):
            found = [next(ids) for _ in several]
            faults = [(place, fault) for place, one in enumerate(found) if (fault := self._fault(request.id, one))]
            if faults:
                place, fault = faults[0]
                embeds = plan.profile.kind == "embedding"
                refused.append(fault if len(several) == 1 else at_input(fault, place, embeds=embeds))
            else:
                ready.append((request.id, found))  # type: ignore[arg-type]  # no exception is among them
        return ready, refused

    def _fault(self, row: int, ids: Outcome) -> EngineResult | None:
        longest: int = self._config.model_config.max_model_len - (self._spec.kind != "embedding")
        if isinstance(ids, Exception):
            return error_row(row, "invalid_request", f"{type(ids).__name__}: {ids}")
        if not ids:
            return error_row(row, "invalid_request", "the prompt is empty: it has no tokens")
        if len(ids) > longest:
            return too_long(row, len(ids), self._config.model_config.max_model_len)
        return None

    # ---- the loop thread -------------------------------------------------------------------------

    def _enter(self, plan: Plan, ready: Sequence[Ready], refused: Sequence[int]) -> None:
        self._preparing.difference_update(refused)
        for row, ids in ready:
            self._preparing.discard(row)
            if row in self._aborted_early:
                self._aborted_early.discard(row)
                self._deliver([EngineResult(row, "abort")])
            else:
                self._rows[row] = self._loop.create_task(self._run(plan, row, ids))
        self._aborted_early.difference_update(refused)

    def _abort(self, ids: Sequence[int]) -> None:
        running = [call for row in ids if row in self._rows for call in self._calls.get(row, (str(row),))]
        self._aborted_early.update([row for row in ids if row in self._preparing])
        if running:
            self._loop.create_task(self._abort_calls(running))

    async def _abort_calls(self, names: Sequence[str]) -> None:
        """What they came to is told at once: of the others vLLM may be in the middle of a long step."""
        await self._engine.abort(names)
        self._streams.look()

    async def _run(self, plan: Plan, row: int, ids: list[list[int]]) -> None:
        """One row, from entry to its result; whatever happens to it, it is answered once."""
        try:
            more = plan.more or len(ids) > 1
            result = await (self._answers(plan, row, ids) if more else self._answer(plan, row, ids[0]))
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
        if plan.profile.kind == "embedding":
            return embedded(row, await self._final(self._call(plan, str(row), ids)))
        return generated(row, await self._text(plan, row, str(row), ids))

    async def _answers(self, plan: Plan, row: int, inputs: list[list[int]]) -> EngineResult:
        """Each answer is a call of its own, as vLLM's own `n` is inside; so each says what it found cached."""
        names = [f"{row}:{at}" for at in range(len(inputs) * plan.choices)]
        self._calls[row] = names
        try:
            if plan.profile.kind == "embedding":
                calls = [self._final(self._call(plan, name, ids)) for name, ids in zip(names, inputs, strict=True)]
                return embedded_row(row, [embedded(row, final) for final in await asyncio.gather(*calls)])
            texts = [self._text(plan, row, name, inputs[at // plan.choices], at) for at, name in enumerate(names)]
            flat = await asyncio.gather(*texts)
        except BaseException:
            await self._abort_calls(names)
            raise
        finally:
            del self._calls[row]
        grouped = [flat[at : at + plan.choices] for at in range(0, len(flat), plan.choices)]
        return generated_row(row, grouped, plan.extract)

    async def _text(self, plan: Plan, row: int, name: str, ids: list[int], at: int = 0) -> Generated:
        """One answer, told of on its way where that is asked for. at: its number in the row."""
        if not plan.profile.streams:
            return one_of(await self._final(self._call(plan, name, ids, at % plan.choices)), plan.logprobs)
        prompt, params, priority = self._asked(plan, ids, at % plan.choices)
        outputs = await self._engine.add_request(name, prompt, params, priority=priority)
        try:
            return await self._streams.whole(outputs, Deltas(row, at, plan.logprobs))
        except EngineDeadError:
            raise
        except Exception:  # nobody hears it any more
            await self._abort_calls([name])
            raise

    async def _final(self, outputs: AsyncGenerator[Any, None]) -> Any:
        final: Any = None
        async for output in outputs:
            final = output
        return final

    def _call(self, plan: Plan, name: str, ids: list[int], choice: int = 0) -> AsyncGenerator[Any, None]:
        prompt, params, priority = self._asked(plan, ids, choice)
        call = self._engine.encode if plan.profile.kind == "embedding" else self._engine.generate
        outputs: AsyncGenerator[Any, None] = call(prompt, params, name, priority=priority)
        return outputs

    def _asked(self, plan: Plan, ids: list[int], choice: int = 0) -> tuple[Any, Any, int]:
        """(prompt, parameters, priority) of a call."""
        prompt = tokens_input(ids, cache_salt=plan.profile.cache_salt or None)
        return prompt, plan.params(len(ids), choice), plan.profile.priority

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
            version=vllm_version(),
            model=self._spec.model,
            kind=self._spec.kind,
            max_model_len=model.max_model_len,
            max_num_seqs=self._config.scheduler_config.max_num_seqs,
            kv_cache_tokens=0 if embeds else (cache.num_gpu_blocks or 0) * cache.block_size,
            block_size=cache.block_size,
            embedding_size=model.embedding_size if embeds else None,
        )
