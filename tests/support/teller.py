"""`python -m tests.support.teller HOME KIND WHERE`: ends a job or batch, tells of it, and dies by its own hand.

KIND: job or batch. WHERE: before-commit, after-commit, after-call, or never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sqlalchemy.engine.default import DefaultDialect

from infra.bootstrap import open_home
from infra.settings import load
from jobs.filing import BatchStatus
from jobs.model import JobState, Usage
from workers.wiring import delivering_of

JOB, BATCH = "job-a", "batch_a"


def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def end(store, kind):
    """Whether it is at its end now, by us or before us."""
    if kind == "batch":
        batch = store.batch(BATCH, "default")
        return batch.status.terminal or store.change_batch(batch.evolve(status=BatchStatus.COMPLETED)) is not None
    job = store.job(JOB)
    return job.state.terminal or store.finalise(
        JOB, version=job.version, to=JobState.COMPLETED, reason="", manifest="m", void=Usage()
    )


def main(home, kind, where):
    opened = open_home(load(environ={"NIGHTMILL_PRIVATE_HOSTS": "127.0.0.1"}, home=Path(home)))
    store, commit = opened.store, DefaultDialect.do_commit
    if where == "before-commit":
        DefaultDialect.do_commit = die
    assert end(store, kind)
    DefaultDialect.do_commit = commit
    if where == "after-commit":
        die()
    if where == "after-call":
        store.settle_delivery = die
    delivering = delivering_of(opened)
    delivering.policy = delivering.policy.evolve(hold_s=0.0)
    delivering.step()
    delivering.close()
    opened.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
