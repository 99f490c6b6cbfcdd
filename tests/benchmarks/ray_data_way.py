"""Ray Data LLM over a file of chats: what of `vllm_ways` its worker processes import too.

Ray Data templates and tokenises rows while its engine still starts, which no clock with the engine up would see. So its
first stage waits until the engine is up, and the clock begins there: before the first row is worked on.

Its workers get the preloaded libraries by their runtime environment. Preloaded already where Ray is started from,
libiomp5 binds all that Ray forks to a single CPU, and its engine would have half of this comparison's machine.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import ray
from ray.data.llm import build_processor, vLLMEngineProcessorConfig
from ray.llm._internal.batch.stages.chat_template_stage import ChatTemplateUDF
from ray.llm._internal.batch.stages.vllm_engine_stage import vLLMEngineStageUDF

from infra.cores import allowed_cpus
from tests.benchmarks.against_vllm import WORKERS_PRELOAD

BATCH_ROWS, BATCHES = 64, 8
"""Twice as many rows on their way as the engine has seats; more than that Ray Data keeps out of the engine itself."""
LOOK_S = 0.02
CPUS = 4 + 2
"""As Ray counts them: one for each of its four stages, which would run one after the other on a Ray of two, and two for
tasks. All run on the CPUs that there are."""


class FirstStage(ChatTemplateUDF):
    """Ray Data's own, which waits until the engine is up. It is an actor: waiting takes no task's place."""

    up: Path

    async def udf(self, batch: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        while not self.up.exists():  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(LOOK_S)
        async for row in super().udf(batch):
            yield row


class EngineStage(vLLMEngineStageUDF):
    """Ray Data's own, which tells when it is up, and of each row how much of its prompt was cached.

    Raises RuntimeError when it may not use the CPUs that the others may.
    """

    up: Path
    cpus: Sequence[int]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        if allowed_cpus() != self.cpus:
            msg = f"Ray Data's engine is bound to the CPUs {allowed_cpus()} of {self.cpus}"
            raise RuntimeError(msg)
        super().__init__(*arguments, **named)
        self._cached: dict[int, int] = {}
        self._generate = self.llm._generate_async
        self.llm._generate_async = self._noted
        part = self.up.with_suffix(".part")
        part.write_text(str(time.time()))
        part.rename(self.up)

    async def _noted(self, request: Any) -> Any:
        output = await self._generate(request)
        self._cached[request.request_id] = output.num_cached_tokens or 0
        return output

    async def udf(self, batch: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        async for row in super().udf(batch):
            yield {**row, "cached_tokens": self._cached.pop(row["request_id"])}


def run(path: str, engine_kwargs: dict[str, Any], chats: Path) -> dict[str, Any]:
    """On a Ray of its own, from the engine's being up to the last Parquet file written; not the engine's end."""
    up, output = chats.with_name("ray_data.up"), chats.with_name("ray_data")
    up.unlink(missing_ok=True)
    env = {"env_vars": {"LD_PRELOAD": os.environ[WORKERS_PRELOAD]}}
    ray.init(address="local", num_cpus=CPUS, include_dashboard=False, object_store_memory=200 << 20, runtime_env=env)
    ray.data.DataContext.get_current().enable_progress_bars = False
    config = vLLMEngineProcessorConfig(
        model_source=path,
        engine_kwargs=engine_kwargs,
        concurrency=1,
        batch_size=BATCH_ROWS,
        max_concurrent_batches=BATCHES,
        placement_group_config={"bundles": [{"CPU": 1}]},
        log_engine_metrics=False,
    )

    def answered(row: dict[str, Any]) -> dict[str, Any]:
        """A task's process gets it by value: it need not import this module, and so vLLM, while the clock runs."""
        return {
            "id": row["id"],
            "text": row["generated_text"],
            "input_tokens": row["num_input_tokens"],
            "cached_tokens": row["cached_tokens"],
            "output_tokens": row["num_generated_tokens"],
        }

    lines = [json.loads(line) for line in chats.read_text().splitlines()]
    rows = [{"id": line["custom_id"], **_chat(line["body"])} for line in lines]
    processor = build_processor(config, postprocess=answered)
    _put_in(processor, "ChatTemplateStage", FirstStage, up=up)
    _put_in(processor, "vLLMEngineStage", EngineStage, up=up, cpus=allowed_cpus())
    given = ray.data.from_items(rows, override_num_blocks=math.ceil(len(rows) / BATCH_ROWS))
    processor(given).write_parquet(str(output), mode="overwrite")
    written_at = max([file.stat().st_mtime for file in output.glob("*.parquet")])
    answers = pq.read_table(output)
    return {
        "rows": len(set(answers["id"].to_pylist())),
        "up_s": written_at - float(up.read_text()),
        **{name: sum(answers[name].to_pylist()) for name in ("input_tokens", "cached_tokens", "output_tokens")},
    }


def _put_in(processor: Any, name: str, stage: type, **given: Any) -> None:
    """Setting the attribute of the stage that is there would validate it anew, and lose its placement."""
    ours = type(stage.__name__, (stage,), given)
    processor.stages[name] = processor.stages[name].model_copy(update={"fn": ours})


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    sampling = {"max_tokens": body["max_tokens"], "temperature": body["temperature"]}
    return {"messages": body["messages"], "sampling_params": sampling}
