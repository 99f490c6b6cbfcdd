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

import pyarrow as pa
import pyarrow.parquet as pq
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
    """`LLM.chat` over all of them at once, from the call to the Parquet file of its answers."""
    from vllm import LLM, SamplingParams  # noqa: PLC0415 - only where it runs: it takes seconds

    llm = LLM(**chosen(spec))
    lines = [json.loads(line) for line in chats.read_text().splitlines()]
    bodies = [line["body"] for line in lines]
    params = SamplingParams(max_tokens=bodies[0]["max_tokens"], temperature=bodies[0]["temperature"])
    began = time.monotonic()
    outputs = llm.chat([body["messages"] for body in bodies], params, use_tqdm=False)
    answers = {"id": [line["custom_id"] for line in lines], "text": [output.outputs[0].text for output in outputs]}
    pq.write_table(pa.table(answers), chats.with_name("raw.parquet"))
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


def ray_data(spec: EngineSpec, chats: Path) -> dict[str, Any]:
    """Ray Data LLM, see `ray_data_way`."""
    from tests.benchmarks import ray_data_way  # noqa: PLC0415 - as above

    arguments = chosen(spec)
    del arguments["model"], arguments["served_model_name"]
    return ray_data_way.run(spec.path, arguments, chats)


def main() -> None:
    way = {"raw": raw, "run_batch": run_batch, "ray_data": ray_data}[sys.argv[1]]
    order = json.loads(sys.argv[2])
    found = way(EngineSpec.from_wire(order["spec"]), Path(order["chats"]))
    Path(order["result"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
