"""The same chats on the same tiny model through raw `LLM.chat`, vLLM's `run_batch` and `nightmill run`.

Each contender has a process of its own each round, the same engine arguments, thread binding and preloaded libraries;
the order rotates. Rates are given with the engine up (from the first prompt handed over to the last result) and for
the whole process, engine start included.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from infra.engines.environment import child_environment
from infra.engines.spec import EngineSpec
from infra.models.prepare import prepare_tiny
from tests.benchmarks import figures, nightmill, words
from tests.benchmarks.watch import watched

ROWS, PREFIXES, PREFIX_WORDS, OWN_WORDS, OUTPUT_TOKENS = 1000, 20, 400, 50, 32
ENGINE_ARGS = {"max_num_seqs": 256, "max_num_batched_tokens": 4096}
"""What vLLM would choose for `LLM`; its batch runner would choose other figures, so they are given to all."""
MODEL = "tiny"
WORKERS_PRELOAD = "WORKERS_PRELOAD"
"""LD_PRELOAD for Ray Data's workers, see `ray_data_way`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One contender's figures. up_s: with the engine up; whole_s: the whole process; others: see `Watched`."""

    rows: int
    up_s: float
    whole_s: float
    others: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What all contenders are given."""

    folder: Path
    spec: EngineSpec

    @property
    def chats(self) -> Path:
        return self.folder / "chats.jsonl"

    @property
    def rows(self) -> Path:
        return self.folder / "chats.parquet"

    @property
    def home(self) -> Path:
        return self.folder / "home"


def run(folder: Path, *, rounds: int) -> None:
    """Print the comparison."""
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed: nothing to compare with.")
        return
    course = made(folder, ROWS)
    contenders = {"LLM.chat": _raw, "run_batch": _run_batch, "nightmill run": _nightmill}
    found: dict[str, list[Round]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders)
        for name in names[number % 3 :] + names[: number % 3]:
            took = contenders[name](course)
            found[name].append(took)
            print(
                f"round {number + 1}: {name:14} {took.rows / took.up_s:6.1f} rows/s with the engine up, "
                f"{took.whole_s:5.1f} s in all (others had {took.others:.0%} of the machine)",
                flush=True,
            )
    _report(found)
    (folder / "rounds.json").write_text(json.dumps({n: [asdict(r) for r in rs] for n, rs in found.items()}, indent=1))


def made(folder: Path, count: int) -> Course:
    """So many chats, in both of their files, and a data directory that knows the model."""
    model = prepare_tiny(folder.parent / "models" / MODEL)
    spec = EngineSpec(
        model=MODEL,
        kind="chat",
        backend="vllm",
        path=str(model),
        engine_args=ENGINE_ARGS,
        log_path=folder / "engine.log",
    )
    course = Course(folder=folder, spec=spec)
    write_chats(course, count)
    nightmill.nightmill(course.home, "models", "add", MODEL, str(model), "--free")
    return course


def write_chats(course: Course, count: int, seed: int = 20) -> None:
    """Other seeds have neither a prefix nor an own part in common."""
    rng = random.Random(seed)
    shared = [words.text(rng, PREFIX_WORDS) for _ in range(PREFIXES)]
    rows = [
        {"id": f"r{n:05d}", "task": rng.choice(shared), "question": words.text(rng, OWN_WORDS)} for n in range(count)
    ]
    pq.write_table(pa.Table.from_pylist(rows), course.rows)
    course.chats.write_text("".join([json.dumps(_request(row)) + "\n" for row in rows]))


def _request(row: dict[str, str]) -> dict[str, Any]:
    """A line of OpenAI's batch form."""
    messages = [{"role": "system", "content": row["task"]}, {"role": "user", "content": row["question"]}]
    body = {"model": MODEL, "messages": messages, "max_tokens": OUTPUT_TOKENS, "temperature": 0}
    return {"custom_id": row["id"], "method": "POST", "url": "/v1/chat/completions", "body": body}


def _raw(course: Course) -> Round:
    return of_vllm(course, "raw")


def _run_batch(course: Course) -> Round:
    return of_vllm(course, "run_batch")


def of_vllm(course: Course, which: str) -> Round:
    """One of the ways without Nightmill, by the script beside this one, in the environment of our engine's process."""
    order = {"spec": course.spec.to_wire(), "chats": str(course.chats), "result": str(course.folder / f"{which}.json")}
    command = [sys.executable, "-m", "tests.benchmarks.vllm_ways", which, json.dumps(order)]
    log = course.folder / f"{which}.log"
    env = child_environment(course.spec, os.environ)
    if which == "ray_data":
        env[WORKERS_PRELOAD] = env.pop("LD_PRELOAD", "")
    done = watched(command, env=env, log=log)
    if done.exit_code:
        msg = f"{which} ended with {done.exit_code}:\n{log.read_text()[-4000:]}"
        raise RuntimeError(msg)
    figures_of = json.loads(Path(order["result"]).read_text())
    return Round(whole_s=done.wall_s, others=done.others, **figures_of)


def _nightmill(course: Course) -> Round:
    options = ["--model", MODEL, "--system", "{{ task }}", "--prompt", "{{ question }}"]
    options += ["--max-tokens", str(OUTPUT_TOKENS), "--temperature", "0"]
    for name, value in ENGINE_ARGS.items():
        options += ["--engine-arg", f"{name}={value}"]
    ran = nightmill.run(course.home, course.rows, course.folder / "out", options)
    return Round(
        rows=ran.end["rows"],
        up_s=ran.end["seconds"],
        whole_s=ran.watched.wall_s,
        others=ran.watched.others,
        input_tokens=ran.end["input_tokens"],
        cached_tokens=ran.end["cached_tokens"],
        output_tokens=ran.end["output_tokens"],
    )


def _report(found: dict[str, list[Round]]) -> None:
    up = {name: [r.rows / r.up_s for r in rounds] for name, rounds in found.items()}
    whole = {name: [r.rows / r.whole_s for r in rounds] for name, rounds in found.items()}
    rows = [
        [
            name,
            figures.spread(up[name]),
            figures.spread(whole[name]),
            f"{_a_row([r.input_tokens for r in rounds])} + {_a_row([r.output_tokens for r in rounds])}",
            figures.spread([r.cached_tokens / r.input_tokens for r in rounds], ".3f"),
        ]
        for name, rounds in found.items()
    ]
    head = ["", "rows/s, engine up", "rows/s, whole process", "tokens a row", "prefix-cache hits"]
    print(f"\nmedian (least to largest) of {len(up['LLM.chat'])} rounds\n{figures.table(head, rows)}")
    for other, goal in (("LLM.chat", "at least 0.95"), ("run_batch", "more than 1")):
        print(
            f"nightmill / {other}: {figures.ratio(up['nightmill run'], up[other])} with the engine up (goal: {goal}), "
            f"{figures.ratio(whole['nightmill run'], whole[other])} whole process"
        )


def _a_row(tokens: Sequence[int]) -> str:
    return f"{statistics.median(tokens) / ROWS:.1f}"
