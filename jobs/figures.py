"""What a process shows of itself: the table of figures, and the samples that a source gives of them.

Cores only count. A source reads their counts when it is asked, so that a row costs nothing. No label names a tenant, a
job, a task or a row: figures may be read by people who may not know of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

from jobs.model import Value


class Kind(StrEnum):
    """As Prometheus has them. Samples with equal labels are added up; of a `peak`, a gauge too, the largest counts."""

    COUNTER = "counter"
    GAUGE = "gauge"
    PEAK = "peak"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Value):
    """A line of the table."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Histogram:
    """How values lie between bounds, ascending. Values are noted by one thread, or under a lock of their owner."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def note(self, value: float) -> None:
        """A value on a bound lies below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def plus(self, other: Histogram) -> Histogram:
        """Both together; they have the same bounds."""
        both = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        return Histogram(self.bounds, both, self.total + other.total)

    def buckets(self) -> list[tuple[str, int]]:
        """(bound, how many are not above it), the last one `+Inf`."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(names, accumulate(self.counts), strict=True))


@dataclass(frozen=True, slots=True)
class Sample(Value):
    """A figure's value now. labels: values in the order of the table."""

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


Source = Callable[[], Iterable[Sample]]
"""Asked for its samples, from any thread."""


def _figure(kind: Kind, name: str, labels: str, text: str) -> Figure:
    return Figure(name=f"nightmill_{name}", kind=kind, labels=tuple(labels.split()), help=text)


FIGURES: tuple[Figure, ...] = (
    # ---- of the database, by whoever schedules
    _figure(Kind.GAUGE, "database_up", "", "1 if the database answered when it was last asked for these figures."),
    _figure(Kind.GAUGE, "jobs", "pool state", "Jobs that are not at their end."),
    _figure(Kind.GAUGE, "backlog_rows", "pool priority", "Rows of running jobs that are not committed."),
    _figure(Kind.GAUGE, "backlog_tokens", "pool priority", "Tokens that these rows will take, estimated."),
    _figure(Kind.PEAK, "backlog_oldest_seconds", "pool priority", "Age of the oldest running job with rows left."),
    _figure(Kind.GAUGE, "outbox_messages", "pool", "Messages of released tasks that are not published."),
    _figure(Kind.PEAK, "outbox_oldest_seconds", "pool", "Age of the oldest of them."),
    _figure(Kind.GAUGE, "leases", "pool", "Tasks in the hands of workers."),
    _figure(Kind.GAUGE, "reservations", "", "Open reservations: tasks that are released or leased."),
    _figure(Kind.GAUGE, "reservations_pico", "", "What they reserve, in pico-units of the book's currency."),
    _figure(Kind.GAUGE, "folder_inbox_transactions", "", "Transactions that the folder has not folded."),
    _figure(Kind.PEAK, "folder_oldest_seconds", "", "Age of the oldest of them."),
    _figure(Kind.GAUGE, "waste_pico", "currency", "Balance of the account of repeated work, in pico-units."),
    _figure(Kind.GAUGE, "dead_letters", "", "Messages in the dead-letter topic."),
    # ---- of a scheduler
    _figure(Kind.COUNTER, "tasks_reaped_total", "pool cause", "Tasks that the reaper queued again."),
    _figure(
        Kind.COUNTER, "rows_void_total", "pool outcome", "Rows written at the end of their job without having run."
    ),
    _figure(
        Kind.COUNTER, "submissions_total", "outcome", "Submissions by messages: taken, or the code of the refusal."
    ),
    # ---- of a dispatcher
    _figure(Kind.COUNTER, "messages_leased_total", "pool", "Messages whose task was leased."),
    _figure(Kind.COUNTER, "messages_dropped_total", "pool reason", "Messages that were no (more) news."),
    # ---- of a worker
    _figure(Kind.COUNTER, "rows_total", "pool worker outcome", "Rows committed."),
    _figure(
        Kind.COUNTER, "tokens_total", "pool worker class", "Tokens of the committed rows; the classes are disjoint."
    ),
    _figure(Kind.HISTOGRAM, "commit_seconds", "pool worker", "How long the commit of a task took."),
    _figure(
        Kind.HISTOGRAM,
        "release_to_engine_seconds",
        "pool worker priority",
        "From a task's release to the entry of its first row into the engine.",
    ),
    _figure(Kind.GAUGE, "open_tasks", "pool worker", "Tasks that workers hold, from reading to settling."),
    _figure(Kind.COUNTER, "leases_lost_total", "pool worker", "Leases that ended before the worker settled them."),
    _figure(Kind.GAUGE, "engine_rows", "pool worker state", "Rows inside the engine."),
    _figure(Kind.GAUGE, "engine_kv_use_ratio", "pool worker", "Share of the KV cache in use."),
    _figure(Kind.GAUGE, "engine_prefix_hit_ratio", "pool worker", "Cached share of all input tokens since its start."),
    _figure(Kind.COUNTER, "engine_rows_total", "pool worker", "Rows that the engine finished, committed or not."),
    _figure(Kind.COUNTER, "engine_tokens_total", "pool worker class", "Tokens of these rows."),
    _figure(Kind.COUNTER, "engine_deaths_total", "pool worker", "How often an engine died or hung."),
    # ---- of a worker that takes interactive requests
    _figure(Kind.COUNTER, "worker_requests_total", "pool worker outcome", "Requests that ended at the worker, by how."),
    _figure(Kind.GAUGE, "worker_requests_waiting", "pool worker", "Requests at the worker that have no seat yet."),
    _figure(Kind.COUNTER, "worker_postings_total", "pool worker outcome", "Charges of requests: written, or lost."),
    _figure(Kind.GAUGE, "worker_seats", "pool worker state", "Sequences that the engine runs at once: used, and free."),
    # ---- of an API, and of its health probes
    _figure(Kind.COUNTER, "requests_total", "model outcome", "Interactive requests that ended, by how they ended."),
    _figure(Kind.GAUGE, "requests_open", "model", "Interactive requests that are under way."),
    _figure(
        Kind.COUNTER, "request_retries_total", "model reason", "Requests taken to another worker before a first piece."
    ),
    _figure(
        Kind.HISTOGRAM, "request_first_token_seconds", "model", "From a streamed request's arrival to its first token."
    ),
    _figure(
        Kind.HISTOGRAM, "request_seconds", "model", "From a request's arrival to its end, of those that were served."
    ),
    _figure(Kind.GAUGE, "circuits", "model state", "Workers that take requests, by the state of their circuit."),
    _figure(Kind.COUNTER, "probes_total", "model outcome", "Probes of workers' health by one token."),
    # ---- of the fleet
    _figure(Kind.GAUGE, "workers", "pool phase", "Workers by phase."),
    _figure(Kind.GAUGE, "workers_wanted", "pool", "Workers that the pool should have now."),
    _figure(Kind.COUNTER, "worker_ends_total", "pool cause", "Workers that ended, by cause."),
    # ---- of every process
    _figure(Kind.GAUGE, "build_info", "version", "1, with the release that runs."),
)
