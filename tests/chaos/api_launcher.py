"""Runs an API with everything behind it in this process, with a trap in it.

    python -m tests.chaos.api_launcher --folder DIR --port 8123 --key nm_… --at db.add_file.after:1

SIGUSR1 makes it print the stacks of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.chaos import points
from tests.chaos.launcher import spring
from tests.chaos.traps import Trap
from tests.support.api import town

API_STEPS = {
    "db.put_tenant": "a tenant",
    "db.add_key": "an API key",
    "db.begin": "the first use of an idempotency key, with the id of what it will make",
    "db.add_file": "the record of a file",
    "db.answered": "the answer that is remembered",
    "db.forget": "a key that is free again, after a refusal",
    "db.give_up": "a key that the same request may take over at once, after a failure",
    "db.add_batch": "a batch's record, and what it holds of the quota",
    "db.change_batch": "a batch's next state",
    "db.forget_replays": "old idempotency keys forgotten",
    "db.forget_deliveries": "old deliveries of webhooks forgotten",
    "db.add_webhook": "an endpoint",
    "db.take_deliveries": "attempts begun at deliveries that are due",
    "db.settle_delivery": "what an attempt came to",
    "db.put_many": "the bytes of a small file, a small part, a small manifest",
    "db.publish_many": "small parts under their final names",
    "db.delete_many": "small objects deleted",
}
"""What an API makes durable beside the steps of a run."""


def main(argv: Sequence[str]) -> int:
    points.STEPS.update(API_STEPS)
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.api_launcher")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--at", type=spring, action="append", default=[])
    parser.add_argument("--count", type=Path, help="write how often each point was passed, as JSON")
    options = parser.parse_args(argv)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    trap, stopped = Trap(springs=tuple(options.at)), threading.Event()
    points.set_up(trap)
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with town(options.folder, api_port=options.port, request_timeout_s=5) as opened:
        opened.key(text=options.key)
        stopped.wait()
    if options.count is not None:
        options.count.write_text(json.dumps(trap.passes))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
