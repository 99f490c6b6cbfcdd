"""kill -9 of the API at every durable step of a batch's life: the client's retry ends with one of everything."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from infra.deploy.cluster.service import free_ports
from tests.chaos.scene import ROOT
from tests.chaos.stage import THOROUGH
from tests.support.api import some_lines

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

LINES = 12
KEY = "nm_chaos0chaos0chaos0chaos0chaos0"
SERVED_S = 60.0
"""How long a client's whole life may take while a process listens: one that lasts longer hangs. 2 s if it is idle, and
10 s more where a killed process leaves an idempotency key behind (`Limits.stale_s`).
"""
STARTING_S = 300.0
"""How long none may listen: two starts of 1.5 s each, but 50 s each where twenty others want the same two cores."""
SHORT = (
    "db.begin.after:1",
    "db.put_many.after:1",
    "db.add_file.after:1",
    "db.add_batch.after:1",
    "db.change_batch.before:1",
)
"""Held in a short session too."""
STEPS = (
    "db.begin",
    "db.put_many",
    "db.add_file",
    "db.answered",
    "db.add_batch",
    "db.create_job",
    "db.change_batch",
)
ENDED = {"completed", "failed", "expired", "cancelled"}


@dataclass(slots=True)
class Server:
    """One data directory and the processes that served it. started: the newest."""

    folder: Path
    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *more: str) -> None:
        given = ["--folder", str(self.folder), "--port", str(self.port), "--key", KEY, *more]
        with (self.folder / "server.txt").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.api_launcher", *given], cwd=ROOT, stdout=out, stderr=out
            )
        self.processes.append(process)

    def stop(self) -> None:
        self.processes[-1].send_signal(signal.SIGTERM)
        self.processes[-1].wait(60)

    def keep_up(self) -> None:
        """As a service manager does."""
        if self.processes[-1].poll() is not None:
            self.start()


def life(server: Server) -> dict:
    """Upload, create and poll as a program does that repeats whatever was not answered, with the same keys."""
    began, starting = time.monotonic(), 0.0
    with httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}", headers={"authorization": f"Bearer {KEY}"}, timeout=30
    ) as client:

        def ask(method: str, path: str, **given) -> dict:
            nonlocal starting
            while True:
                asked = time.monotonic()
                served = asked - began - starting
                in_time = served < SERVED_S, starting < STARTING_S
                assert in_time == (True, True), (served, starting, (server.folder / "server.txt").read_text()[-3000:])
                server.keep_up()
                try:
                    answer = client.request(method, path, **given)
                    if answer.status_code == 200:
                        return answer.json()
                    assert answer.status_code in {401, 409, 503}, answer.text  # 401: the key is not made yet
                    time.sleep(0.1)
                except httpx.ConnectError:
                    time.sleep(0.1)
                    starting += time.monotonic() - asked
                except httpx.TransportError:
                    time.sleep(0.1)

        content = some_lines(LINES)
        file = ask(
            "POST",
            "/v1/files",
            data={"purpose": "batch"},
            files={"file": ("in.jsonl", content)},
            headers={"idempotency-key": "file"},
        )
        body = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = ask("POST", "/v1/batches", json=body, headers={"idempotency-key": "batch"})
        while batch["status"] not in ENDED:
            time.sleep(0.05)
            batch = ask("GET", f"/v1/batches/{batch['id']}")
        return {
            "status": batch["status"],
            "counts": batch["request_counts"],
            "files": sorted(one["purpose"] for one in ask("GET", "/v1/files")["data"]),
            "batches": len(ask("GET", "/v1/batches")["data"]),
            "objects": objects(server.folder / "home/nightmill.db"),
        }


def objects(database: Path) -> int:
    """Uploads and results of batches; small ones lie in the database."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        return connection.execute("SELECT count(*) FROM blobs WHERE uri LIKE '%/files/%'").fetchone()[0]


WHOLE = {
    "status": "completed",
    "counts": {"total": LINES, "completed": LINES, "failed": 0},
    "files": ["batch", "batch_output"],
    "batches": 1,
    "objects": 2,
}


def lived(folder: Path, *at: str) -> tuple[dict, list[int | None]]:
    """What the client has in the end, and how the server's processes ended."""
    folder.mkdir()
    server = Server(folder, *free_ports(1))
    server.start(*at)
    try:
        return life(server), [process.poll() for process in server.processes[:-1]]
    finally:
        server.stop()


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """Point → how often a life passes it in which nobody dies."""
    folder = tmp_path_factory.mktemp("quiet")
    found, deaths = lived(folder / "api", "--count", str(folder / "passes.json"))
    assert (found, deaths) == (WHOLE, [])
    return json.loads((folder / "passes.json").read_text())


def test_killed_at_any_durable_step_the_clients_retry_ends_with_one_file_and_one_batch(passes, tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    every = [
        f"{step}.{side}:{n + 1}"
        for step in STEPS
        for side in ("before", "after")
        for n in range(passes[f"{step}.{side}"])
    ]
    wanted = every if THOROUGH else SHORT
    assert set(wanted) <= set(every)
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(lived, root / f"{n}", "--at", point) for n, point in enumerate(wanted)]
        found = {point: run.result() for point, run in zip(wanted, runs, strict=True)}
    assert found == dict.fromkeys(wanted, (WHOLE, [-signal.SIGKILL]))
