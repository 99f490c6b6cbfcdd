"""Plays a plan on a site: submit, strike, mend, wait for the end, look at everything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from jobs.model import Job
from tests.chaos_cluster import checker
from tests.chaos_cluster.checker import Ended
from tests.chaos_cluster.counting import Count
from tests.chaos_cluster.plans import REPEATS, Fault, Plan
from tests.chaos_cluster.site import Site
from tests.chaos_cluster.story import Struck, Told, too_much
from tests.chaos_cluster.strikes import Striker

LOOK_S = 0.1
COUNT_S = 1.0
LIMIT_S = 900.0
"""A job that is not at its end after so long will not come there. No figure is asserted: a machine may be slow."""


def play(plan: Plan, site: Site, quiet: Ended | None) -> Told:
    """Submit, strike, mend, wait for the end, look at everything."""
    count = Count(ask=site.reports)
    known = set(site.home.store.verify().faults)  # of a seed that went wrong before
    began = time.monotonic()
    job = site.submit(plan.rows, *(["--order", "input"] if plan.ordered else []))
    run = _Run(plan=plan, site=site, job=job, striker=Striker(site=site, seed=plan.seed), count=count, began=began)
    try:
        came = run.to_its_end()
    finally:
        run.mend_all()
        (site.folder / f"seed-{plan.seed}.txt").write_text("\n".join(run.timeline))
    told = Told(
        plan=plan,
        total_s=time.monotonic() - began,
        struck=run.struck,
        commits_s=run.commits_s,
        lost=len(run.striker.dead_tokens),
    )
    if not came:
        told.wrong.append(f"the job is not at its end after {LIMIT_S:g} s: {site.job(job)}")
        return told
    count.look()
    ended = checker.read(site.home.store, job.id, site.folder_of(job))
    # At least: what a worker did after it was last asked and before its death nobody knows.
    told.repeated_tokens = max(0, count.output_tokens - ended.usage["output"])
    ended = told.ended = replace(ended, book=[fault for fault in ended.book if fault not in known])
    told.wrong += checker.faults(ended, rows=plan.rows, quiet=quiet)
    told.wrong += checker.zombies(ended, run.striker.dead_tokens)
    if plan.large:
        told.wrong += too_much(told)
    return told


@dataclass(kw_only=True)
class _Run:
    plan: Plan
    site: Site
    job: Job
    striker: Striker
    count: Count
    began: float
    counted_s: float = 0.0
    mendings: list[Mending] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    rows: int = 0
    commits_s: list[float] = field(default_factory=list)
    timeline: list[str] = field(default_factory=list)

    def to_its_end(self) -> bool:
        """Whether it came there."""
        left = list(self.plan.faults)
        while time.monotonic() - self.began < LIMIT_S:
            self._look()
            self._keep_count()
            if left and self.rows >= left[0].at * self.plan.rows and self._strike(left[0]):
                left.pop(0)
            if self.site.is_over(self.job):
                return True
            time.sleep(LOOK_S)
        return False

    def _look(self) -> None:
        standing, now = self.site.standing(self.job), time.monotonic() - self.began
        self.timeline.append(
            f"{now:7.1f} s  {'-' if standing is None else f'{standing.rows:,} rows, {standing.tasks}'}"
        )
        if standing is not None and standing.rows > self.rows:
            self.rows = standing.rows
            self.commits_s.append(now)

    def _keep_count(self) -> None:
        """Now and then, so that of a worker that dies by itself something is known."""
        if time.monotonic() - self.counted_s >= COUNT_S:
            self.count.look()
            self.counted_s = time.monotonic()

    def _strike(self, fault: Fault) -> bool:
        if fault.kind in REPEATS:
            self.count.look()
        at_s = time.monotonic() - self.began
        mend = self.striker.strike(fault)
        if mend is None:
            return False
        self.struck.append(Struck(fault=fault, at_s=at_s, rows=self.rows))
        self.mendings.append(Mending(mend, fault.seconds))
        return True

    def mend_all(self) -> None:
        """The site is whole afterwards, or what could not be mended is raised."""
        for mending in self.mendings:
            mending.now()


class Mending:
    """Mends after a while, in a thread: a broker is long in starting, and a frozen database holds up whoever asks."""

    def __init__(self, mend: Callable[[], None], after_s: float) -> None:
        self._mend = mend
        self._once = threading.Lock()
        self._done: Future[None] = Future()
        self._timer = threading.Timer(after_s, self._run)
        self._timer.start()

    def now(self) -> None:
        """At the latest. Raises what went wrong with it."""
        self._timer.cancel()
        self._run()
        self._done.result()

    def _run(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        try:
            self._mend()
            self._done.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for it
            self._done.set_exception(error)
