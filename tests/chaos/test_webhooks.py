"""kill -9 around an end and the message of it: no message before the commit, none missing after it, one id for all."""

import signal
import subprocess
import sys

import pytest

from infra.bootstrap import open_home
from infra.settings import load
from jobs.delivering import new_webhook
from tests.chaos.scene import ROOT
from tests.support.filing import a_batch, a_file
from tests.support.hooks import SECRET, receiver
from tests.support.teller import BATCH, JOB
from tests.support.values import a_job

pytestmark = pytest.mark.chaos


def told(folder, kind, where):
    """How a process ended that ends a job or batch and tells of it."""
    command = [sys.executable, "-m", "tests.support.teller", str(folder), kind, where]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode


def made(folder, url):
    """A job and a batch that are ready to end, and an endpoint that is told of both."""
    home = open_home(load(environ={}, home=folder))
    hook = new_webhook("we_a", tenant="default", url=url, secret=SECRET, seal=home.outward.seal)
    home.store.add_webhook(hook, "test")
    job = home.store.create_job(a_job(id=JOB, tenant="default"), [])
    home.store.plan_segment(job.id, 0, [], last=True)
    home.store.add_file(a_file())
    home.store.add_batch(a_batch(BATCH))
    return home


@pytest.mark.parametrize("kind", ["job", "batch"])
@pytest.mark.parametrize(
    ("where", "ended", "came"),
    [("before-commit", False, 0), ("after-commit", True, 0), ("after-call", True, 1)],
)
def test_a_message_follows_its_end_whoever_dies(tmp_path, kind, where, ended, came):
    with receiver() as there:
        home = made(tmp_path, there.url)
        try:
            assert told(tmp_path, kind, where) == -signal.SIGKILL
            terminal = home.store.job(JOB).state.terminal or home.store.batch(BATCH, "default").status.terminal
            left = [delivery.outcome for delivery in home.store.deliveries()]
            assert (terminal, left, len(there.got)) == (ended, [""] if ended else [], came)
            assert told(tmp_path, kind, "never") == 0
            (delivery,) = home.store.deliveries()
            assert (delivery.subject, delivery.outcome) == (JOB if kind == "job" else BATCH, "delivered")
            assert there.ids() == [delivery.id] * (came + 1)
            assert {got.body for got in there.got} == {delivery.body.encode()}
            assert told(tmp_path, kind, "never") == 0
            assert len(there.got) == came + 1
        finally:
            home.close()
