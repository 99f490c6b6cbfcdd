"""Speed, measured: `make bench`, or `python -m tests.benchmarks [NAME …]`.

    against_vllm   the same chats through raw vllm.LLM.chat, vLLM's run_batch and `nightmill run`
    million        a Parquet file of a million rows through `nightmill run` with the fake engine
    commits        commits of tasks a second on PostgreSQL and SQLite
    embeddings     short embeddings by one engine process and by two

of the REST API, only where named (`make bench-api`):

    api            creates, reads, inline rows, batches of one line, large files; by uvicorn and by Ray Serve
    large_batch    one batch of five million lines, from the upload to every line's result (embedded)

of interactive requests, only where named (`make bench-interactive`):

    doors          pieces from a worker to the API: our frames over TCP, and Ray's streaming generators
    interactive    streamed chats and embeddings beside vLLM's own server
    beside         the time to the first token beside full batch and embedding pools, and alone

and of a cluster, only where named (`make bench-cluster`):

    cluster        the million through Kafka, PostgreSQL, S3 and Ray beside the embedded run
    urgent         how long a critical row waits for an engine that a batch job fills
    cluster_vllm   chats through the cluster with vLLM, raw vllm.LLM.chat and Ray Data LLM

ROUNDS (5; cluster 3): rounds of those that compare. ROWS (1,000,000): rows of million and cluster. WORKERS (1): of the
cluster's pool. URGENT (100): small jobs of each priority. CHATS (4000): of cluster_vllm. Of the API: SECONDS (3) of
each round of creates and reads, API_ROWS (100,000), BATCHES (1000), UPLOAD_MIB (256) and DOWNLOAD_MIB (1024) go through
it; SERVE (1): 0 leaves Ray Serve out; LINES (5,000,000) of large_batch. Of interactive requests: TURN (10) seconds a
turn; ROUNDS, SERVE, REPLICAS (1) behind it. Files go to build/benchmarks.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.benchmarks import (
    against_vllm,
    api,
    beside,
    cluster,
    cluster_vllm,
    commits,
    doors,
    embeddings,
    interactive,
    large_batch,
    machine,
    million,
    urgent,
)

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "benchmarks"


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name, default))


PIECES: dict[str, Callable[[Path], None]] = {
    "against_vllm": lambda folder: against_vllm.run(folder, rounds=_number("ROUNDS", 5)),
    "commits": lambda folder: _if_possible(lambda: commits.run(folder, rounds=_number("ROUNDS", 5))),
    "embeddings": lambda folder: _if_possible(lambda: embeddings.run(folder, rounds=_number("ROUNDS", 5))),
    "million": lambda folder: million.run(folder, rows=_number("ROWS", 1_000_000)),
}
OF_A_CLUSTER: dict[str, Callable[[Path], None]] = {
    "cluster": lambda folder: cluster.run(
        folder, rows=_number("ROWS", 1_000_000), rounds=_number("ROUNDS", 3), workers=_number("WORKERS", 1)
    ),
    "urgent": lambda folder: urgent.run(folder, jobs=_number("URGENT", 100)),
    "cluster_vllm": lambda folder: cluster_vllm.run(folder, chats=_number("CHATS", 4000), rounds=_number("ROUNDS", 5)),
}


OF_THE_API: dict[str, Callable[[Path], None]] = {
    "api": lambda folder: api.run(
        folder,
        api.Sizes(
            seconds=_number("SECONDS", 3),
            rows=_number("API_ROWS", 100_000),
            batches=_number("BATCHES", 1000),
            upload_mib=_number("UPLOAD_MIB", 256),
            download_mib=_number("DOWNLOAD_MIB", 1024),
        ),
        cluster=bool(_number("SERVE", 1)),
    ),
    "large_batch": lambda folder: large_batch.run(folder, lines=_number("LINES", 5_000_000)),
}


OF_REQUESTS: dict[str, Callable[[Path], None]] = {
    "doors": lambda folder: doors.run(folder, seconds=_number("SECONDS", 3)),
    "interactive": lambda folder: interactive.run(folder, _turns()),
    "beside": lambda folder: beside.run(folder, _turns()),
}


def _turns() -> interactive.Sizes:
    return interactive.Sizes(
        seconds=_number("TURN", 10),
        rounds=_number("ROUNDS", 5),
        cluster=bool(_number("SERVE", 1)),
        replicas=_number("REPLICAS", 1),
    )


def _if_possible(piece: Callable[[], None]) -> None:
    """A service that is not there skips a test, and a benchmark too."""
    try:
        piece()
    except pytest.skip.Exception as skipped:
        print(f"left out: {skipped}")


def main() -> None:
    usage, *rest = (__doc__ or "").split("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog="\n\n".join(rest), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    pieces = PIECES | OF_THE_API | OF_REQUESTS | OF_A_CLUSTER
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"{' or '.join(pieces)}; default: {', '.join(PIECES)}")
    names = parser.parse_args().name or list(PIECES)
    if unknown := sorted(set(names) - set(pieces)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(pieces)}")
    for name in names:
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"\n== {name} ==\n{machine.described(folder)}", flush=True)
        pieces[name](folder)


if __name__ == "__main__":
    main()
