"""`nightmill up` in a process of its own, as a user starts it, over a data directory that the test reads too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import psutil
import sqlalchemy as sa

from infra.bootstrap import Home, open_home
from infra.deploy.cluster.ray_head import SERVE
from infra.settings import load
from tests.support.api import a_key_of
from tests.support.shown import shown

COMMAND = [sys.executable, "-c", "from api.cli.main import main; main()"]
START_S, END_S = 60.0, 30.0


@dataclass(slots=True, kw_only=True)
class Up:
    """home: opened by this process, not by the one that serves. cluster: on a Ray of its own, behind HAProxy. url: with
    /v1.
    """

    folder: Path
    home: Home
    cluster: bool = False
    process: subprocess.Popen[str] | None = None
    url: str = ""
    _clients: list[openai.OpenAI] = field(default_factory=list)

    def start(self) -> None:
        """Until it says where it listens."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTMILL_")} | (SERVE if self.cluster else {})
        with (self.folder / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "--home", str(self.home.settings.home), "up", "--json", *(["--cluster"] * self.cluster)],
                env=env, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.folder,
            )  # fmt: skip
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == ("api" if self.cluster else "up"):
                self.url = f"{event['url'].removesuffix('/v1')}/v1"
                return
        raise AssertionError((self.folder / "up.log").read_text()[-4000:])

    def kill(self) -> None:
        """As the kernel does, with all below it."""
        assert self.process is not None
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        for child in psutil.wait_procs(below, timeout=5)[1]:
            child.kill()

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def client(self, key: str, **options: Any) -> openai.OpenAI:
        """The stock client, which asks once."""
        made = openai.OpenAI(base_url=self.url, api_key=key, **{"max_retries": 0, "timeout": 60.0, **options})
        self._clients.append(made)
        return made

    def key(self, tenant: str = "acme", **changes: Any) -> str:
        return a_key_of(self.home, tenant, **changes)

    def engines(self, pool: str) -> list[psutil.Process]:
        """The engine processes of a pool's workers, by the file that is their stdout."""
        assert self.process is not None
        below = psutil.Process(self.process.pid).children()
        return [child for child in below if f"/engine-{pool}-" in _stdout_of(child.pid)]

    def ready(self, client: openai.OpenAI, model: str, within_s: float = START_S) -> None:
        """Until the model answers."""
        until(lambda: _answers(client, model), f"a worker of {model}", within_s)

    def figure(self, name: str, **labels: str) -> float:
        """See `shown`."""
        return shown(self.home.settings.home, name, **labels)

    # ---- what is written down ---------------------------------------------------------------------

    def records(self, tenant: str = "acme") -> list[tuple[str, str, int]]:
        """Of each request that was served: id, outcome, output tokens; the oldest first."""
        rows = self._rows("SELECT id, outcome, usage FROM requests WHERE tenant = :tenant ORDER BY at", tenant=tenant)
        return [(name, outcome, json.loads(usage)["output_tokens"]) for name, outcome, usage in rows]

    def charge(self, place: str, name: str) -> int:
        """Pico-units that a tenant was charged. place: `task` (a request's id is one) or `job`."""
        query = f"SELECT sum(amount_pico) FROM entries WHERE {place} = :name AND account LIKE 'tenant:%'"
        found = self._rows(query, name=name)
        return int(found[0][0] or 0)

    def _rows(self, query: str, **values: str) -> list[tuple[Any, ...]]:
        with self.home.store._db.read() as connection:
            return [tuple(row) for row in connection.execute(sa.text(query), values)]


@contextmanager
def upped(folder: Path, settings: str, *models: str, cluster: bool = False) -> Iterator[Up]:
    """models: NAME:KIND, of the fake engine, priced as the shipped one."""
    path = folder / "home"
    path.mkdir(parents=True, exist_ok=True)
    (path / "nightmill.toml").write_text(settings)
    home = open_home(load(home=path, environ={}))
    home.example_prices("fake")
    for name, _, kind in (model.partition(":") for model in models):
        home.registry.add(name, None, kind=kind, engine="fake")
        home.store.set_price(home.store.price("fake").evolve(model=name))
    opened = Up(folder=folder, home=home, cluster=cluster)
    try:
        opened.start()
        yield opened
    finally:
        opened.stop()
        home.close()


def until(seen: Callable[[], object], what: str, within_s: float = START_S) -> None:
    """Look again and again."""
    ends = time.monotonic() + within_s
    while not seen():
        if time.monotonic() > ends:
            raise AssertionError(f"no {what} within {within_s:g} s")
        time.sleep(0.05)


def _stdout_of(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/fd/1").readlink())
    except OSError:
        return ""


def _answers(client: openai.OpenAI, model: str) -> bool:
    try:
        if model in {"embedder", "minilm"}:
            client.embeddings.create(model=model, input="a")
        else:
            client.completions.create(model=model, prompt="a", max_tokens=1)
    except (openai.RateLimitError, openai.InternalServerError, openai.APIConnectionError):
        return False
    return True
