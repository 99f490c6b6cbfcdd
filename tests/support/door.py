"""`python -m tests.support.door CONFIG WHERE TOPIC`: a process that takes submissions, and dies by its own hand.

WHERE: before-job, after-job or after-letter, of the first message; or "never": then it ends once the group is past
every message of TOPIC.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from infra.bootstrap import open_home
from infra.settings import load
from jobs.topics import ingress_group
from workers.ingress import ingress_loops
from workers.loops import Alarm
from workers.main import ingress_of


def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(work):
    def wrapped(*args, **kwargs):
        work(*args, **kwargs)
        die()

    return wrapped


def main(config, where, topic):
    home = open_home(load(environ={}, config=Path(config)))
    home.example_prices("fake")
    store, broker = home.store, home.broker
    if where == "before-job":
        store.create_jobs = die
    elif where == "after-job":
        store.create_jobs = then_die(store.create_jobs)
    elif where == "after-letter":
        broker.publish = then_die(broker.publish)
    loops = ingress_loops(ingress_of(home, home.settings.pools), Alarm())
    for loop in loops:
        loop.start()
    group = ingress_group(home.settings.topic_prefix)
    while (facts := broker.facts(topic)) is None or any(
        (broker.committed(group, topic, part) or 0) < end for part, end in facts.log_end.items()
    ):
        time.sleep(0.05)
    for loop in loops:
        loop.stop()
    home.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
