"""What the cores show of themselves: their counts as samples of the table in `jobs.figures`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from jobs.errors import Unavailable
from jobs.figures import Sample
from jobs.pools import PRIVATE, is_private
from jobs.ports.census import Census, CensusStore
from jobs.ports.clock import Clock
from jobs.ports.queue import Queue
from workers.dispatcher import Dispatcher
from workers.fleet import Fleet
from workers.ingress import Ingress
from workers.live import Live
from workers.scheduler import Steps
from workers.worker import Worker


def pool_label(pool: str) -> str:
    """A declared pool's name; `run` for all those that embedded runs make for a job each."""
    return PRIVATE.rstrip("-") if is_private(pool) else pool


def worker_figures(worker: Worker, pool: str, name: str) -> Iterator[Sample]:
    """Of one worker and its engine. name: the worker's; several of a pool may follow each other in one process, and a
    counter must not fall when one of them goes.
    """
    me, tally, committed = (pool_label(pool), name), worker.tally, worker.committed
    for outcome, rows in sorted(committed.outcomes.items()):
        yield Sample("nightmill_rows_total", rows, (*me, outcome))
    for token_class, tokens in sorted(committed.tokens.items()):
        yield Sample("nightmill_tokens_total", tokens, (*me, token_class))
    yield Sample("nightmill_commit_seconds", committed.seconds, me)
    for priority, waits in tally.waits.items():
        yield Sample("nightmill_release_to_engine_seconds", waits, (*me, priority))
    yield Sample("nightmill_open_tasks", worker.open_tasks, me)
    yield Sample("nightmill_leases_lost_total", tally.lost, me)
    yield from _request_figures(worker.live, me)
    yield from _engine_figures(worker, me)


def _request_figures(live: Live, me: tuple[str, str]) -> Iterator[Sample]:
    if not live.pool:
        return
    ends = {"done": live.done, "aborted": live.aborted, "refused": live.doorstep.refused, "lost": live.lost}
    for outcome, requests in ends.items():
        yield Sample("nightmill_worker_requests_total", requests, (*me, outcome))
    yield Sample("nightmill_worker_postings_total", live.poster.posted, (*me, "written"))
    yield Sample("nightmill_worker_postings_total", live.poster.unposted, (*me, "lost"))
    load = live.doorstep.load()
    yield Sample("nightmill_worker_requests_waiting", load.waiting, me)
    yield Sample("nightmill_worker_seats", load.used, (*me, "used"))
    yield Sample("nightmill_worker_seats", load.seats - load.used, (*me, "free"))


def _engine_figures(worker: Worker, me: tuple[str, str]) -> Iterator[Sample]:
    inside, spent = worker.occupancy(), worker.tally.spent
    yield Sample("nightmill_engine_rows", inside.running, (*me, "running"))
    yield Sample("nightmill_engine_rows", inside.waiting, (*me, "waiting"))
    if inside.kv_use is not None:
        yield Sample("nightmill_engine_kv_use_ratio", inside.kv_use, me)
    if inputs := spent.input_tokens + spent.cached_tokens:
        yield Sample("nightmill_engine_prefix_hit_ratio", spent.cached_tokens / inputs, me)
    yield Sample("nightmill_engine_rows_total", worker.tally.rows, me)
    by_class = {"input": spent.input_tokens, "cached": spent.cached_tokens, "output": spent.output_tokens}
    for token_class, tokens in by_class.items():
        yield Sample("nightmill_engine_tokens_total", tokens, (*me, token_class))
    yield Sample("nightmill_engine_deaths_total", worker.tally.engine_deaths, me)


def dispatcher_figures(dispatcher: Dispatcher, pool: str) -> Iterator[Sample]:
    """Of one dispatcher."""
    label = pool_label(pool)
    yield Sample("nightmill_messages_leased_total", dispatcher.leased, (label,))
    for reason, messages in sorted(dispatcher.dropped.items()):
        yield Sample("nightmill_messages_dropped_total", messages, (label, reason))


def scheduler_figures(steps: Steps) -> Iterator[Sample]:
    """Of the scheduler of one pool: what it took back, and rows that no worker will ever commit."""
    label = pool_label(steps.pool)
    for cause, tasks in sorted(steps.reaper.reaped.items()):
        yield Sample("nightmill_tasks_reaped_total", tasks, (label, cause))
    for outcome, rows in sorted(steps.finaliser.voided.items()):
        yield Sample("nightmill_rows_void_total", rows, (label, outcome))


def ingress_figures(ingress: Ingress) -> Iterator[Sample]:
    """Of submissions that came by messages."""
    for outcome, submissions in sorted(ingress.counts.items()):
        yield Sample("nightmill_submissions_total", submissions, (outcome,))


def fleet_figures(fleet: Fleet) -> Iterator[Sample]:
    """Of whoever keeps the pools at their workers."""
    for pool, standing in list(fleet.standings.items()):
        yield Sample("nightmill_workers_wanted", standing.wanted, (pool,))
        for phase, workers in sorted(Counter(report.phase for report in [*standing.reports.values()]).items()):
            yield Sample("nightmill_workers", workers, (pool, phase))
        for cause, workers in sorted(standing.ends.items()):
            yield Sample("nightmill_worker_ends_total", workers, (pool, cause))


@dataclass(slots=True, kw_only=True)
class DatabaseFigures:
    """A source of what waits in the database and the dead letters, asked of them at most every `keep_s`, however many
    read it. While the database is away only `nightmill_database_up` is left.
    """

    store: CensusStore
    broker: Queue
    dead_topic: str
    clock: Clock
    keep_s: float = 5.0
    _kept: list[Sample] = field(default_factory=list)
    _asked_s: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> Iterable[Sample]:
        with self._lock:
            now = self.clock.monotonic()
            if self._asked_s is None or now - self._asked_s >= self.keep_s:
                self._kept = [*self._ask_database(), *self._ask_broker()]
                self._asked_s = now
            return list(self._kept)

    def _ask_database(self) -> Iterator[Sample]:
        try:
            census = self.store.census()
        except Unavailable:
            yield Sample("nightmill_database_up", 0)
            return
        yield Sample("nightmill_database_up", 1)
        yield from census_figures(census)

    def _ask_broker(self) -> Iterator[Sample]:
        try:
            facts = self.broker.facts(self.dead_topic)
        except Unavailable:
            return
        letters = sum(facts.log_end.values()) - sum(facts.log_start.values()) if facts is not None else 0
        yield Sample("nightmill_dead_letters", letters)


def census_figures(census: Census) -> Iterator[Sample]:
    """Of what waits in the database."""
    for (pool, state), jobs in census.jobs.items():
        yield Sample("nightmill_jobs", jobs, (pool_label(pool), state))
    for (pool, priority), heap in census.backlog.items():
        labels = pool_label(pool), priority
        yield Sample("nightmill_backlog_rows", heap.rows, labels)
        yield Sample("nightmill_backlog_tokens", heap.tokens, labels)
        yield Sample("nightmill_backlog_oldest_seconds", heap.oldest_s, labels)
    for pool, lag in census.outbox.items():
        yield Sample("nightmill_outbox_messages", lag.count, (pool_label(pool),))
        yield Sample("nightmill_outbox_oldest_seconds", lag.oldest_s, (pool_label(pool),))
    for pool, leases in census.leases.items():
        yield Sample("nightmill_leases", leases, (pool_label(pool),))
    yield Sample("nightmill_reservations", census.reservations)
    yield Sample("nightmill_reservations_pico", census.reserved_pico)
    yield Sample("nightmill_folder_inbox_transactions", census.inbox.count)
    yield Sample("nightmill_folder_oldest_seconds", census.inbox.oldest_s)
    for currency, pico in census.waste_pico.items():
        yield Sample("nightmill_waste_pico", pico, (currency,))
