"""The same chats on the same tiny model through a cluster, raw `vllm.LLM.chat` and Ray Data LLM, in interleaved rounds.

All three get the same rows, sampling, engine arguments, threads and preloaded libraries. Each round has chats of its
own, so that no engine finds those of the round before in its prefix cache: the cluster's is up all the time (idle while
the others run, each of which has a process of its own). A round whose contenders differ in rows or tokens raises.

Clocks, with the engine up, before the first row is templated or tokenised:

    cluster        from the job's record to its end, so that planning, hand-over, commit and publishing are among them
    LLM.chat       from the call to its Parquet file written
    Ray Data LLM   from its engine's being up, on which its rows wait, to its last Parquet file written

and of the whole: of a process with its engine's start, for the cluster from `nightmill submit` to the job's end.
"""

from __future__ import annotations

import importlib.util
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil

from tests.benchmarks import figures, machine, town
from tests.benchmarks.against_vllm import ENGINE_ARGS, MODEL, OUTPUT_TOKENS, Course, Round, made, of_vllm, write_chats
from tests.benchmarks.watch import Tree, watching

CLUSTER, RAW, RAY_DATA = "cluster", "LLM.chat", "Ray Data LLM"
GOAL = 0.93
WAYS = {RAW: "raw", RAY_DATA: "ray_data"}
WARM_UP = 100
"""Chats that the cluster's engine sees first; the others' have seen none."""
TOKENS_APART, HITS_APART = 0.001, 0.05
"""Shares by which contenders may differ in tokens, and in how much of the input was cached."""
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
    course = made(folder, WARM_UP)
    found: dict[str, list[Round]] = {CLUSTER: [], RAW: [], RAY_DATA: []}
    with town.cluster(folder, POOLS, [[MODEL, course.spec.path, "--free"]]) as place:
        _in_cluster(place, course)
        for number in range(rounds):
            write_chats(course, chats, seed=number)
            names = list(found)
            for name in names[number % 3 :] + names[: number % 3]:
                took = _in_cluster(place, course) if name == CLUSTER else of_vllm(course, WAYS[name])
                found[name].append(took)
                print(f"round {number + 1}: {name:13} {_line(took)}", flush=True)
            _check([rounds_of[-1] for rounds_of in found.values()], chats)
            (folder / "rounds.json").write_text(
                json.dumps({name: [asdict(r) for r in rs] for name, rs in found.items()}, indent=1)
            )
    _report(found, chats)


def _line(took: Round) -> str:
    return (
        f"{took.rows / took.up_s:6.1f} rows/s, {took.whole_s:5.1f} s in all, {took.input_tokens:,} tokens in "
        f"({took.cached_tokens / took.input_tokens:.3f} cached), {took.output_tokens:,} out "
        f"(others had {took.others:.0%})"
    )


def _check(rounds: Sequence[Round], chats: int) -> None:
    """Raises RuntimeError unless all did the same work."""
    hits = [took.cached_tokens / took.input_tokens for took in rounds]
    differ = [
        what
        for what, yes in {
            "rows": {took.rows for took in rounds} != {chats},
            "input tokens": _apart([took.input_tokens for took in rounds]) > TOKENS_APART,
            "output tokens": _apart([took.output_tokens for took in rounds]) > TOKENS_APART,
            "prefix-cache hits": max(hits) - min(hits) > HITS_APART,
        }.items()
        if yes
    ]
    if differ:
        msg = f"no comparison, since they differ in {', '.join(differ)}: {list(rounds)}"
        raise RuntimeError(msg)


def _apart(counts: Sequence[int]) -> float:
    return max(counts) / min(counts) - 1


def _report(found: Mapping[str, Sequence[Round]], chats: int) -> None:
    up = {name: [took.rows / took.up_s for took in rounds] for name, rounds in found.items()}
    whole = {name: [took.rows / took.whole_s for took in rounds] for name, rounds in found.items()}
    rows = [[name, figures.spread(up[name]), figures.spread(whole[name])] for name in found]
    print(f"\nmedian (least to largest) of {len(up[CLUSTER])} rounds of {chats:,} chats")
    print(figures.table(["", "rows/s, engine up", "rows/s, whole"], rows))
    print(f"cluster / LLM.chat: {figures.ratio(up[CLUSTER], up[RAW])} (goal: at least {GOAL})")
    print(f"cluster / Ray Data LLM: {figures.ratio(up[CLUSTER], up[RAY_DATA])} (goal: more than 1)")


def _in_cluster(place: town.Place, course: Course) -> Round:
    """The course's rows as they are now. Of the machine's others are also Kafka, PostgreSQL and the S3 server."""
    source = f"s3://catalog/{uuid.uuid4().hex}.parquet"
    place.upload(course.rows, source)
    options = ["--model", MODEL, "--system", "{{ task }}", "--prompt", "{{ question }}", "--id", "id"]
    options += ["--max-tokens", str(OUTPUT_TOKENS), "--temperature", "0", "--output", "s3://results/"]
    tree, busy_s, began_at = Tree(psutil.Process()), machine.busy_s(), time.time()
    tree.begin()
    with watching(tree):
        job = place.ended(place.submit(source, options))
    assert job.finished_at is not None
    whole_s = job.finished_at - began_at
    others_s = max(0.0, machine.busy_s() - busy_s - sum([seen.cpu_s for seen in tree.by_name()]))
    return Round(
        rows=job.usage.rows,
        up_s=job.finished_at - job.created_at,
        whole_s=whole_s,
        others=others_s / (whole_s * (psutil.cpu_count() or 1)),
        input_tokens=job.usage.input_tokens + job.usage.cached_tokens,
        cached_tokens=job.usage.cached_tokens,
        output_tokens=job.usage.output_tokens,
    )
