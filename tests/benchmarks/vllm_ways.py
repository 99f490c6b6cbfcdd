"""Ways through a file of chats without Nightmill, each in a process of its own: `python -m tests.benchmarks.vllm_ways`.

All get the engine arguments that Nightmill's engine has. Figures go to a file, since vLLM talks on stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs

from infra.engines.spec import EngineSpec
from infra.engines.vllm_args import engine_args


def chosen(spec: EngineSpec) -> dict[str, Any]:
    """The engine arguments of Nightmill's engine that are not vLLM's defaults; no row has a schema, so not those."""
    ours, theirs = engine_args(spec), AsyncEngineArgs(model=spec.path)
    names = [field.name for field in fields(EngineArgs)]
    changed = {name: getattr(ours, name) for name in names if getattr(ours, name) != getattr(theirs, name)}
    del changed["structured_outputs_config"]
    return {**changed, "model": spec.path, "served_model_name": [spec.model]}


def raw(spec: EngineSpec, chats: Path) -> dict[str, Any]:
    """`LLM.chat` over all of them at once."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415 - only where it runs: it takes seconds

    llm = LLM(**chosen(spec))
    bodies = [json.loads(line)["body"] for line in chats.read_text().splitlines()]
    params = SamplingParams(max_tokens=bodies[0]["max_tokens"], temperature=bodies[0]["temperature"])
    began = time.monotonic()
    outputs = llm.chat([body["messages"] for body in bodies], params, use_tqdm=False)
    up_s = time.monotonic() - began
    return {
        "rows": len(outputs),
        "up_s": up_s,
        "input_tokens": sum([len(output.prompt_token_ids) for output in outputs]),
        "cached_tokens": sum([output.num_cached_tokens or 0 for output in outputs]),
        "output_tokens": sum([len(output.outputs[0].token_ids) for output in outputs]),
    }


def run_batch(spec: EngineSpec, chats: Path) -> dict[str, Any]:
    """`vllm run_batch`: its main function, with the clock around what it does once its engine is up."""
    from vllm.entrypoints.launchers import run_batch as launcher  # noqa: PLC0415 - as above
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: PLC0415

    output = chats.with_name("run_batch.jsonl")
    parser = launcher.make_arg_parser(FlexibleArgumentParser())
    given = parser.parse_args(["-i", str(chats), "-o", str(output), "--enable-prompt-tokens-details"])
    args = Namespace(**{**vars(given), **chosen(spec)})
    seconds: list[float] = []
    work = launcher.run_batch

    async def timed(*arguments: Any) -> None:
        began = time.monotonic()
        await work(*arguments)
        seconds.append(time.monotonic() - began)

    launcher.run_batch = timed
    asyncio.run(launcher.main(args))
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    usages = [line["response"]["body"]["usage"] for line in lines]
    return {
        "rows": len(usages),
        "up_s": seconds[0],
        "input_tokens": sum([usage["prompt_tokens"] for usage in usages]),
        "cached_tokens": sum([(usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in usages]),
        "output_tokens": sum([usage["completion_tokens"] for usage in usages]),
    }


RAY_BATCH_ROWS, RAY_BATCHES = 64, 8
"""Twice as many rows on their way as the engine has seats."""


def ray_data(spec: EngineSpec, chats: Path) -> dict[str, Any]:
    """Ray Data LLM on a Ray of its own. Its clock begins when its first row enters the engine.

    That moment is not told. It is taken from the row with the earliest difference between the time that it left the
    pipeline and the time that it says the engine took, so a little late, in favour of Ray Data.
    """
    import ray  # noqa: PLC0415 - as above
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig  # noqa: PLC0415 - as above

    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=200 << 20)
    ray.data.DataContext.get_current().enable_progress_bars = False
    arguments = chosen(spec)
    del arguments["model"], arguments["served_model_name"]
    config = vLLMEngineProcessorConfig(
        model_source=spec.path,
        engine_kwargs=arguments,
        concurrency=1,
        batch_size=RAY_BATCH_ROWS,
        max_concurrent_batches=RAY_BATCHES,
        placement_group_config={"bundles": [{"CPU": 1}]},
        log_engine_metrics=False,
    )
    processor = build_processor(config, preprocess=_asked, postprocess=_answered)
    bodies = [json.loads(line)["body"] for line in chats.read_text().splitlines()]
    for body in bodies:
        del body["model"]  # it would be taken for an adapter's name
    rows = processor(ray.data.from_items(bodies)).take_all()
    began = min([row["at"] - row["took"] for row in rows])
    return {
        "rows": len(rows),
        "up_s": max([row["at"] for row in rows]) - began,
        "input_tokens": sum([row["input_tokens"] for row in rows]),
        "cached_tokens": 0,
        "output_tokens": sum([row["output_tokens"] for row in rows]),
    }


def _asked(body: dict[str, Any]) -> dict[str, Any]:
    sampling = {"max_tokens": body["max_tokens"], "temperature": body["temperature"]}
    return {"messages": body["messages"], "sampling_params": sampling}


def _answered(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": row["generated_text"],
        "at": time.time(),
        "took": row["time_taken_llm"],
        "input_tokens": row["num_input_tokens"],
        "output_tokens": row["num_generated_tokens"],
    }


def main() -> None:
    way = {"raw": raw, "run_batch": run_batch, "ray_data": ray_data}[sys.argv[1]]
    order = json.loads(sys.argv[2])
    found = way(EngineSpec.from_wire(order["spec"]), Path(order["chats"]))
    Path(order["result"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
