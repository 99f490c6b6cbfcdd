"""`nightmill up` without a cluster: pools and their workers in this process, the scheduling beside it, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from api.cli.context import AppContext
from api.cli.driving import FAKE
from api.cli.exits import Exit
from api.cli.keys import first_key
from api.cli.output import tell
from api.serve import Live, serve
from infra.cores import keep_to_one
from infra.engines.environment import is_cpu_build
from infra.heap import settle_heap
from infra.locks import LockTaken
from infra.models.shipped import FAKE as FAKE_ENGINE
from infra.standing import save_address, save_pools
from jobs.errors import BadInput, Conflict, NightmillError, Refused
from jobs.model import Model
from jobs.pools import Pool, pool_for
from workers.embedded import Embedded
from workers.main import show
from workers.reports import Phase, Report

_LOOK_S = 0.5
_LED_S = 0.05
_FEW_WORKERS = 4
_START_S = 30.0
_LEAVE_S = 30.0
"""Beyond the grace that rows in the engine have: for commits and for engines to end."""


class UpAlready(Conflict):
    """Nightmill is up here already, in process {pid}."""

    code = "up_already"


class NoModels(Refused):
    """There is no model to serve. Run: nightmill models prepare smollm2, or nightmill models add NAME FOLDER."""

    code = "no_models"


def up_here(app: AppContext, names: Sequence[str], *, as_json: bool = False) -> Exit:
    """Serve the declared pools, or the named models, or all that are ready; until a signal."""
    home = app.home
    try:
        claim = home.locks.claim("up")
    except LockTaken as taken:
        raise UpAlready(pid=taken.pid) from None
    with claim, _stopping() as stopped:
        pools, models = _pools(app, names)
        if _keeps_to_one_core(app, pools, models):
            keep_to_one(os.getpid())
        for model in models:
            home.example_prices(model.name)
            if model.engine == FAKE_ENGINE:
                click.secho(FAKE, err=True, fg="red", bold=True)
        save_pools(home.settings.home, pools)
        town = Embedded(home, pools)
        with _api(app, town) as url:
            save_address(home.settings.home, url)
            _live(app, town, stopped, url, as_json=as_json)
    return Exit.OK


def _live(app: AppContext, town: Embedded, stopped: threading.Event, url: str, *, as_json: bool) -> None:
    """What it is, then a line whenever something changes; after a signal it drains. Raises what ended a loop."""
    home = app.home
    shown = show(home, {"role": "up"}, town.sources())
    town.start()
    _until_led(town, stopped)
    key = first_key(app)
    settle_heap()
    up = f"Nightmill is up in {home.settings.home} with the pools: {_listed(town.pools)}\nREST API: {url}/v1"
    facts = {"home": home.settings.home, "pools": [pool.name for pool in town.pools]}
    facts |= {"metrics": shown.target, "scheduler_metrics": town.elsewhere}
    tell(up, as_json=as_json, event="up", url=url, first_key=key, **facts)
    if not as_json:
        if targets := [target for target in (shown.target, town.elsewhere) if target]:
            click.echo(f"Figures for Prometheus: {' and '.join(f'http://{target}/metrics' for target in targets)}")
        if key is not None:
            click.echo(f"The first API key, an operator's, shown this once: {key}")
        click.echo("Ctrl-C drains the workers and ends it; jobs stay and go on at the next start.")
    _show_until(town, stopped, as_json=as_json)
    tell("Draining …", as_json=as_json, event="draining")
    drained = town.close(home.settings.drain_grace_s + _LEAVE_S)
    shown.close()
    ended = "Nightmill is down." if drained else "Nightmill is down; what was not drained is done again."
    tell(ended, as_json=as_json, event="down", drained=drained)
    if town.alarm.error is not None:
        raise town.alarm.error


def _until_led(town: Embedded, stopped: threading.Event) -> None:
    """A backend that is away is waited for while jobs wait. Raises what the scheduler's process failed at."""
    until = time.monotonic() + _START_S
    while not (town.led or town.alarm.rang or stopped.is_set()) and time.monotonic() < until:
        stopped.wait(_LED_S)
    if town.alarm.error is not None:
        raise town.alarm.error


@contextmanager
def _api(app: AppContext, town: Embedded) -> Iterator[str]:
    """The REST API beside the pools; where it listens. Raises PortTaken."""
    served = serve(app.home, wake=town.wake, live=Live(front=town.front))
    try:
        yield served.url
    finally:
        served.stop()


def _pools(app: AppContext, names: Sequence[str]) -> tuple[list[Pool], list[Model]]:
    """Declared ones and one for each named model; where there is neither, one for each model that is ready.

    Who names a model wants it served: its worker starts at once and stays.
    """
    registry, declared = app.home.registry, app.settings.pools
    models = {name: registry.resolve(name) for name in (*(pool.model for pool in declared), *names)}
    if not models:
        models = {name: model for name in registry.names() if (model := _ready(app, name)) is not None}
    served = {pool.model for pool in declared}
    pools = [*declared, *(_pool(models[name], name in names) for name in models if name not in served)]
    if not pools:
        raise NoModels
    taken = {pool.name for pool in pools}
    if len(taken) < len(pools):
        raise BadInput(source="--model", reason="two of the models would have pools of one name; declare their pools")
    return pools, list(models.values())


def _pool(model: Model, named: bool) -> Pool:
    return pool_for(model).evolve(min_workers=int(named))


def _ready(app: AppContext, name: str) -> Model | None:
    """None for one that is not, and for the fake one, which nobody should be given unasked."""
    try:
        model = app.home.registry.resolve(name)
    except NightmillError:
        return None
    return None if model.engine == FAKE_ENGINE else model


def _keeps_to_one_core(app: AppContext, pools: Sequence[Pool], models: Sequence[Model]) -> bool:
    """Not beside an engine that needs every core: what holds up one of its threads holds up all of them. Nor with many
    workers: what they compress and hash needs no interpreter.
    """
    computes = is_cpu_build() and any(model.engine != FAKE_ENGINE for model in models)
    few = sum(pool.max_workers for pool in pools) <= _FEW_WORKERS
    return app.settings.one_core == "yes" and few and not computes


def _listed(pools: Sequence[Pool]) -> str:
    return ", ".join(pool.name if pool.name == pool.model else f"{pool.name} ({pool.model})" for pool in pools)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set by the first Ctrl-C or SIGTERM; the second ends the process at once, and its engines with it."""
    stopped = threading.Event()

    def on_signal(*_: object) -> None:
        if stopped.is_set():
            os.write(2, b"\nStopped at once; what was committed is kept.\n")
            os._exit(Exit.INTERRUPTED)
        stopped.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_until(town: Embedded, stopped: threading.Event, *, as_json: bool) -> None:
    """A line whenever a worker comes, goes or changes."""
    shown: dict[str, tuple[Phase, str]] = {}
    while not (stopped.wait(_LOOK_S) or town.alarm.rang):
        reports = {report.name: report for report in town.reports()}
        for name, report in reports.items():
            if shown.get(name) != (report.phase, report.reason):
                facts = {"worker": name, "pool": report.pool, "phase": report.phase, "reason": report.reason}
                tell(_line(report), as_json=as_json, event="worker", **facts)
        for name in shown.keys() - reports.keys():
            tell(f"worker {name}: gone", as_json=as_json, event="worker", worker=name, phase="gone")
        shown = {name: (report.phase, report.reason) for name, report in reports.items()}


def _line(report: Report) -> str:
    return f"worker {report.name}: {report.phase}" + (f" ({report.reason})" if report.reason else "")
