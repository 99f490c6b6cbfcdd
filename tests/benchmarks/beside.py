"""The time to the first token of interactive requests beside batch and embedding pools that are full, and alone.

On engines of clockwork, which take no CPU: what Nightmill itself costs an interactive pool when others are full. Two
kinds of neighbours: a batch and an embedding pool; and batch work in the same pool, which has to leave seats free.
Alone and beside are measured in turns; that the neighbours are full is looked at before and after each measurement.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks import figures, machine, nightmill, words
from tests.benchmarks.interactive import Sizes, ask, pool, share, up, warm
from tests.benchmarks.served import Served, until
from tests.benchmarks.talkers import Heard, Talk, talked
from tests.support.shown import shown

GOAL = 1.5
SEATS, KEPT_FREE = 64, 0.25
TOKEN_S, EMBEDDING_S = 0.02, 0.1
CLIENTS, TOKENS, PAUSE_S = 8, 8, 0.1
LEAST_S = 15.0
"""Of a measurement: some 450 requests, four of which are slower than the p99. With 80 it was the slowest one of all."""
ROWS = {"fake": 20_000, "embedder": 60_000}
"""Of a job, by model: more than is done while it is measured."""
FULL_S, STILL_S = 120.0, 5.0
"""Rows that end together leave an engine empty for a moment: whether it is full is seen by looking more than once."""
_CLOCKWORK = {"max_num_seqs": SEATS, "token_latency_s": TOKEN_S}
_EMBEDDINGS = {"max_num_seqs": SEATS, "row_latency_s": EMBEDDING_S, "embedding_size": 384}
_TALK = pool("talk", "fake", "interactive", _CLOCKWORK)
_BATCH = pool("batch", "fake", "batch", _CLOCKWORK)
_EMBED = pool("embed", "embedder", "embedding", _EMBEDDINGS)
_BOTH = pool("both", "fake", "batch", _CLOCKWORK, requests=True, kept_free=KEPT_FREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A pool that a job fills. rows: inside its engine when it is full."""

    pool: str
    model: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Alone and beside. others: what share of the machine others had meanwhile. queued: rows that waited before and
    after, by pool.
    """

    heard: tuple[Heard, Heard]
    others: tuple[float, float]
    queued: Sequence[Mapping[str, int]]


def run(folder: Path, sizes: Sizes) -> None:
    """Print a table."""
    batch = Neighbour(pool="batch", model="fake", rows=SEATS)
    embed = Neighbour(pool="embed", model="embedder", rows=SEATS)
    both = Neighbour(pool="both", model="fake", rows=int(SEATS * (1 - KEPT_FREE)))
    scenes: list[tuple[str, str, list[Neighbour]]] = [
        ("batch and embedding pools", _TALK + _BATCH + _EMBED, [batch, embed]),
        ("one pool for both", _BOTH, [both]),
    ]
    lines = []
    for number, (name, pools, neighbours) in enumerate(scenes):
        home = folder / str(number) / "home"
        if any(one.model == "embedder" for one in neighbours):
            home.parent.mkdir(parents=True)
            nightmill.nightmill(home, "models", "add", "embedder", "--engine", "fake", "--kind", "embedding", "--free")
        with up(home.parent, pools, []) as api:
            lines.append([name, *_cells(list(_turns(api, home, neighbours, sizes)))])
    head = ["first token, ms, beside full", "alone p50", "p99", "beside p50", "p99", "p99 / alone p99"]
    head += ["others' CPU alone", "beside"]
    print(f"\n{figures.table(head, lines)}\ngoal: at most {GOAL:g} with an engine of its own", flush=True)


def _turns(api: Served, home: Path, neighbours: Sequence[Neighbour], sizes: Sizes) -> Iterator[Turn]:
    talk = Talk(
        kind="chat", host=api.host, port=api.port, key=api.key, model="fake", clients=CLIENTS,
        seconds=max(LEAST_S, sizes.seconds), max_tokens=TOKENS, pause_s=PAUSE_S,
    )  # fmt: skip
    warm(talk)
    for _ in range(sizes.rounds):
        alone, idle_others = _measured(api, talk)
        with _full(api, home, neighbours) as queued:
            beside, others = _measured(api, talk)
        turn = Turn(heard=(alone, beside), others=(idle_others, others), queued=queued)
        print(_told(turn), flush=True)
        yield turn


def _measured(api: Served, talk: Talk) -> tuple[Heard, float]:
    """With the share of the machine that others had."""
    began, busy_s, server_s = time.monotonic(), machine.busy_s(), api.cpu_s()
    heard = talked(talk)
    span_s, server_s = time.monotonic() - began, api.cpu_s() - server_s
    others_s = max(0.0, machine.busy_s() - busy_s - server_s - heard.cpu_s)
    return heard, others_s / span_s / (psutil.cpu_count() or 1)


def _told(turn: Turn) -> str:
    slowest = [", ".join(f"{1000 * seconds:.0f}" for seconds in sorted(heard.first_s)[-3:]) for heard in turn.heard]
    counts = " and ".join(str(len(heard.first_s)) for heard in turn.heard)
    waited = "; then ".join(", ".join(f"{name} {rows:,}" for name, rows in queued.items()) for queued in turn.queued)
    return f"{counts} requests, the slowest {slowest[0]} ms alone, {slowest[1]} beside; rows that waited: {waited}"


def _cells(turns: Sequence[Turn]) -> list[str]:
    """Alone p50, p99, beside p50, p99, ratio, others alone, others beside."""
    values = [[[1000 * share(heard.first_s, part) for part in (0.5, 0.99)] for heard in turn.heard] for turn in turns]
    cells = [figures.spread([turn[who][part] for turn in values]) for who in (0, 1) for part in (0, 1)]
    ratio = figures.ratio([turn[1][1] for turn in values], [turn[0][1] for turn in values])
    return [*cells, ratio, *(figures.spread([turn.others[who] for turn in turns], ".0%") for who in (0, 1))]


# ---- full pools ---------------------------------------------------------------------------------


@contextmanager
def _full(api: Served, home: Path, neighbours: Sequence[Neighbour]) -> Iterator[list[Mapping[str, int]]]:
    """A job for each, which fills it for as long as it takes and is cancelled at the end; the rows that waited.

    Raises RuntimeError where one was not full any more at the end.
    """
    jobs = [_job(api, one.model) for one in neighbours]
    try:
        until(lambda: all(_is_full(home, one) for one in neighbours), FULL_S)
        waited = [_waiting(home, neighbours)]
        yield waited
        until(lambda: all(_is_full(home, one) for one in neighbours), STILL_S)
        waited.append(_waiting(home, neighbours))
    finally:
        for job in jobs:
            ask(api, f"/v1/jobs/{job}/cancel", b"{}")
        until(lambda: all(ask(api, f"/v1/jobs/{job}")["state"] == "cancelled" for job in jobs), FULL_S)


def _job(api: Served, model: str) -> str:
    rng = random.Random(5)
    rows = [{"text": words.text(rng, 20)} for _ in range(ROWS[model])]
    body: dict[str, Any] = {"rows": rows, "model": model, "prompt": "{{ text }}", "pause_on": "never"}
    if model == "fake":
        body["max_tokens"] = 64
    return str(ask(api, "/v1/jobs", json.dumps(body).encode())["id"])


def _is_full(home: Path, one: Neighbour) -> bool:
    """Its engine has nine tenths of the rows that it takes, at least, and more of them wait outside."""
    inside = shown(home, "nightmill_engine_rows", pool=one.pool)
    return 10 * inside >= 9 * one.rows and shown(home, "nightmill_backlog_rows", pool=one.pool) > inside


def _waiting(home: Path, neighbours: Sequence[Neighbour]) -> Mapping[str, int]:
    return {one.pool: int(shown(home, "nightmill_backlog_rows", pool=one.pool)) - one.rows for one in neighbours}
