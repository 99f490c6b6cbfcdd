"""Rows → segments → tasks: where to cut. Pure functions; what they need to know of the data comes in as numbers."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.model import Value
from jobs.ports.engine import ModelKind
from jobs.ranges import Range, Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPolicy(Value):
    """Sizes of tasks and segments; the reasons are in DEFAULTS.

    task_s: seconds of one worker's work. job_share: at most this share of the job, but never under `min_rows`.
    blind_rows: rows a task while the model's speed is unknown. border_slack: how far, as a share of the target, a cut
    may move to fall between two groups of equal prefixes. min_gain: share of the input tokens that ordering must save.
    block_tokens: the engine's prefix-cache block. order_bytes: what is ordered at once decodes to about this
    much (values that repeat are far smaller in a Parquet file than in memory).
    """

    task_s: float = 30.0
    max_rows: int = 4096
    max_rows_embedding: int = 65_536
    max_tokens: int = 2_000_000
    max_bytes: int = 64 << 20
    min_rows: int = 32
    job_share: float = 0.01
    blind_rows: int = 256
    border_slack: float = 0.2
    segment_rows: int = 200_000
    segment_bytes: int = 64 << 20
    order_bytes: int = 96 << 20
    min_gain: float = 0.02
    block_tokens: int = 32
    tokens_per_char: float = 0.25
    output_tokens: int = 256

    def most_rows(self, kind: ModelKind) -> int:
        return self.max_rows_embedding if kind == "embedding" else self.max_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes(Value):
    """Running sums over rows in planning order, one longer than the rows: `tokens[i]` is the sum of the first i."""

    tokens: Sequence[int]
    bytes: Sequence[int]

    @property
    def rows(self) -> int:
        return len(self.tokens) - 1


def target_rows(
    policy: PlanPolicy, kind: ModelKind, *, total_rows: int, rows_per_s: float | None, rows_per_task: int | None
) -> int:
    """How many rows a task should have."""
    most = policy.most_rows(kind)
    if rows_per_task is not None:
        return max(1, min(rows_per_task, policy.max_rows_embedding))
    by_speed = policy.blind_rows if rows_per_s is None else int(policy.task_s * rows_per_s)
    by_share = max(policy.min_rows, int(policy.job_share * total_rows))
    return max(1, min(by_speed, by_share, most))


def cut(
    sizes: Sizes,
    *,
    target: int,
    most: int,
    policy: PlanPolicy,
    borders: Sequence[Sequence[int]] = (),
    exact: bool = False,
) -> list[int]:
    """Where each task ends (ascending, the last is `sizes.rows`).

    most: rows a task must not pass; tokens and bytes are limited by the policy, though one row always fits.
    borders: places between two prefix groups, the coarsest level first; a cut moves to the nearest one of the coarsest
    level that has one within the slack. Without borders the tasks are evened out, so that no small one is left over.
    exact: the target was asked for and is not moved.
    """
    rows = sizes.rows
    slack = 0 if exact or not borders else int(target * policy.border_slack)
    stops: list[int] = []
    at = 0
    while at < rows:
        aim = target if exact or borders else _evened(rows - at, target, most, policy.border_slack)
        hard = min(
            rows, at + most, _fits(sizes.tokens, at, policy.max_tokens), _fits(sizes.bytes, at, policy.max_bytes)
        )
        hard = max(hard, at + 1)
        if hard == rows and rows <= at + aim + slack:
            at = rows  # a remainder within the slack is no task of its own
        else:
            at = _nearest(borders if slack else (), min(hard, at + aim), at + aim - slack, min(hard, at + aim + slack))
        stops.append(at)
    return stops


def _evened(rows: int, target: int, most: int, slack: float) -> int:
    pieces = max(1, round(rows / target))
    even = -(-rows // pieces)
    return even if target * (1 - slack) <= even <= min(most, target * (1 + slack)) else target


def _fits(sums: Sequence[int], at: int, limit: int) -> int:
    """The last stop such that the rows from `at` sum to no more than `limit`."""
    return bisect_right(sums, sums[at] + limit) - 1


def _nearest(borders: Sequence[Sequence[int]], aim: int, low: int, high: int) -> int:
    for level in borders:
        at = bisect_left(level, aim)
        near = [level[i] for i in (at - 1, at) if 0 <= i < len(level) and low <= level[i] <= high]
        if near:
            return min(near, key=lambda place: (abs(place - aim), place))
    return aim


def segment_stops(groups: Iterable[tuple[int, int]], *, copies: int, rows: int, policy: PlanPolicy) -> list[int]:
    """Where each segment ends, in positions of a job that takes its first `rows` rows from contiguous input.

    groups: (input rows, uncompressed bytes) of each row group, in order. A segment may end inside a row group, so that
    one of 4 GB is planned in pieces. Every input row counts `copies` times.
    """
    stops: list[int] = []
    most = max(1, policy.segment_rows // copies)
    room = max(1, policy.segment_bytes // copies)
    at = held_rows = held_bytes = 0
    for group_rows, group_bytes in groups:
        left = group_rows
        while left:
            fits = (room - held_bytes) * group_rows // group_bytes if group_bytes else left
            take = min(left, most - held_rows, fits)
            if take <= 0 and not held_rows:
                take = 1
            if take <= 0:
                stops.append(at * copies)
                held_rows = held_bytes = 0
                continue
            at, left, held_rows = at + take, left - take, held_rows + take
            held_bytes += take * group_bytes // group_rows
    stops.append(at * copies)
    return _within(stops, rows)


def even_stops(rows: int, *, row_bytes: int, policy: PlanPolicy) -> list[int]:
    """Where each segment ends when a job's rows are scattered over its input (a retry of some rows)."""
    step = max(1, min(policy.segment_rows, policy.segment_bytes // max(1, row_bytes)))
    return [*range(step, rows, step), rows]


def _within(stops: list[int], rows: int) -> list[int]:
    inside = [stop for stop in stops if 0 < stop < rows]
    return [*inside, rows]


def sample_positions(rows: int, size: int, seed: int) -> list[int]:
    """The seeded sample, ascending: the same for the same three numbers, on any machine."""
    return sorted(random.Random(seed).sample(range(rows), min(rows, size)))


def running(values: Iterable[int]) -> list[int]:
    """Running sums from 0."""
    sums = [0]
    total = 0
    for value in values:
        total += value
        sums.append(total)
    return sums


def split(ranges: Sequence[Range], stops: Sequence[int]) -> list[Ranges]:
    """The ranges in pieces that end at these positions (ascending, the last is their whole count)."""
    pieces: list[Ranges] = []
    piece: list[Range] = []
    wanted = iter(stops)
    stop, at = next(wanted, 0), 0
    for low, high in ranges:
        start = low
        while at + high - start >= stop > at:
            end = start + stop - at
            piece.append(Range(start, end))
            pieces.append(tuple(piece))
            piece, start, at = [], end, stop
            stop = next(wanted, at)
        if start < high:
            piece.append(Range(start, high))
            at += high - start
    return pieces
