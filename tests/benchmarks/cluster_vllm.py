"""The same chats on the same tiny model through a cluster, raw `vllm.LLM.chat` and Ray Data LLM, in interleaved rounds.

The cluster's engine is up all the time and idle while the others run, each of which has a process of its own. Rates
are those with an engine that is up; the cluster's count from the job's record to its end, so that planning, hand-over,
commit and publishing are among them.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import psutil

from tests.benchmarks import figures, machine, town
from tests.benchmarks.against_vllm import ENGINE_ARGS, MODEL, OUTPUT_TOKENS, Course, made, of_vllm
from tests.benchmarks.watch import Tree, watching

CLUSTER, RAW, RAY_DATA = "cluster", "LLM.chat", "Ray Data LLM"
GOAL = 0.93
SOURCE = "s3://catalog/chats.parquet"
POOLS = f"""
[pools.batch]
model = "{MODEL}"
num_cpus = 0.1
min_workers = 1
engine_args = {{ {", ".join(f"{name} = {value}" for name, value in ENGINE_ARGS.items())} }}
"""


def run(folder: Path, *, chats: int, rounds: int) -> None:
    """Print a line a round, and medians."""
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed: nothing to compare with.")
        return
    course = made(folder, chats)
    found: dict[str, list[float]] = {CLUSTER: [], RAW: [], RAY_DATA: []}
    with town.cluster(folder, POOLS, [[MODEL, course.spec.path, "--free"]]) as place:
        place.upload(course.rows, SOURCE)
        _in_cluster(place)  # its first rows warm the engine up
        for number in range(rounds):
            names = list(found)
            for name in names[number % 3 :] + names[: number % 3]:
                rate, others = _in_cluster(place) if name == CLUSTER else _outside(course, name)
                found[name].append(rate)
                print(f"round {number + 1}: {name:13} {rate:6.1f} rows/s (others had {others:.0%})", flush=True)
    print(f"\nmedian (least to largest) of {rounds} rounds of {chats:,} chats")
    print(figures.table(["", "rows/s, engine up"], [[name, figures.spread(rates)] for name, rates in found.items()]))
    print(f"cluster / LLM.chat: {figures.ratio(found[CLUSTER], found[RAW])} (goal: at least {GOAL})")
    print(f"cluster / Ray Data LLM: {figures.ratio(found[CLUSTER], found[RAY_DATA])} (goal: more than 1)")
    (folder / "rounds.json").write_text(json.dumps(found, indent=1))


def _in_cluster(place: town.Place) -> tuple[float, float]:
    """Rows a second, and the share of the machine that others had."""
    options = ["--model", MODEL, "--system", "{{ task }}", "--prompt", "{{ question }}", "--id", "id"]
    options += ["--max-tokens", str(OUTPUT_TOKENS), "--temperature", "0", "--output", "s3://results/"]
    tree, busy_s = Tree(psutil.Process()), machine.busy_s()
    tree.begin()
    with watching(tree):
        job = place.ended(place.submit(SOURCE, options))
    assert job.finished_at is not None
    assert job.usage.rows == job.total_rows, job
    wall_s = job.finished_at - job.created_at
    others_s = max(0.0, machine.busy_s() - busy_s - sum([seen.cpu_s for seen in tree.by_name()]))
    return job.total_rows / wall_s, others_s / (wall_s * (psutil.cpu_count() or 1))


def _outside(course: Course, name: str) -> tuple[float, float]:
    took = of_vllm(course, {RAW: "raw", RAY_DATA: "ray_data"}[name])
    return took.rows / took.up_s, took.others
