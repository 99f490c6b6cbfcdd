"""`nightmill up`, `down`, `pools`, `workers`, `drain`, `restart`: a cluster's workers, seen from a terminal."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import print_json, table
from jobs.errors import NotFound, Refused, Unavailable
from jobs.pools import Pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from workers.actors.cluster import Cluster

_LOOK_S = 2.0
_DOWN_S = 60.0


class NotUp(Unavailable):
    """Nightmill is not up on a Ray cluster at {address}. Run: nightmill up --cluster."""

    code = "not_up"


class NoPools(Refused):
    """No pool is declared: the settings file needs a [pools.NAME] table with at least a model (docs/settings.md)."""

    code = "no_pools"


class RayMissing(Refused):
    """A cluster needs Ray, which is not installed. Run: pip install 'nightmill[cluster]'."""

    code = "ray_missing"


@click.command()
@click.option("--cluster", is_flag=True, help="On a Ray cluster, with the pools that the settings declare.")
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="Settings file.")
@click.option("--detach", is_flag=True, help="Return at once; the cluster goes on.")
@pass_app
def up(app: AppContext, *, cluster: bool, config: Path | None, detach: bool) -> Exit:
    """Bring Nightmill up on a Ray cluster and show what runs.

    Where Ray runs already (setting `ray_address`), Nightmill outlives this command: Ctrl-C only ends the view, and
    `nightmill down` ends Nightmill. Where none runs, one is started on this machine that ends with this command; Ctrl-C
    then drains the workers first. Settings are read once: after a change run `nightmill down` and `up` again.
    """
    if not cluster:
        raise click.UsageError("Say --cluster; without a cluster `nightmill run` needs nothing to be up.")
    if config is not None:
        app.config_option = config
    _check_pools(app)
    ray = _cluster(app)
    if not ray.attach(start=not detach):
        _not_up(app)
    try:
        fresh = ray.up()
        click.echo("Nightmill is starting." if fresh else "Nightmill is up already, with the settings of its start.")
        if config is not None:
            click.echo(f"For the other commands: export NIGHTMILL_CONFIG={config.absolute()}")
        if detach:
            return Exit.OK
        click.echo("Ctrl-C drains the workers and ends it." if ray.own else "Ctrl-C leaves it running.")
        _show_until_stopped(ray)
        if ray.own:
            click.echo("Draining …")
            ray.down(_DOWN_S)
    finally:
        ray.detach()
    return Exit.OK


@click.command()
@click.option("--timeout", type=click.FloatRange(min=0), default=_DOWN_S, show_default=True, help="Seconds to drain.")
@pass_app
def down(app: AppContext, *, timeout: float) -> Exit:
    """Drain all workers and end Nightmill on the Ray cluster. Jobs stay and go on at the next `nightmill up`."""
    ray = _cluster(app)
    if not ray.attach():
        click.echo("No Ray cluster runs there; nothing is up.")
        return Exit.OK
    try:
        drained = ray.down(timeout)
    finally:
        ray.detach()
    click.echo("Nightmill is down." if drained else "Nightmill is down; what was not drained in time is done again.")
    return Exit.OK


@click.command()
@json_option
@pass_app
def pools(app: AppContext, *, as_json: bool) -> None:
    """List the declared pools, what waits for them, and their workers."""
    declared = app.settings.pools
    standings = _ask_if_up(app, "pools")
    facts = [_pool_facts(app, pool, standings.get(pool.name, {})) for pool in declared]
    if as_json:
        print_json(facts)
        return
    table(
        ("POOL", "PURPOSE", "MODEL", "WORKERS>", "WANTED>", "LEAST>", "MOST>", "JOBS>", "ROWS LEFT>"),
        [
            (f["pool"], f["purpose"], f["model"], f["running"], f["wanted"], f["min"], f["max"], f["jobs"], f["rows"])
            for f in facts
        ],
    )


@click.command()
@json_option
@pass_app
def workers(app: AppContext, *, as_json: bool) -> None:
    """List the workers of the cluster."""
    with _attached(app) as ray:
        found = ray.ask("workers")
    if as_json:
        print_json(found)
        return
    table(
        ("WORKER", "POOL", "PHASE", "HOST", "PID>", "TASKS>", "ROWS>", "ROWS/S>", "ENGINE DEATHS>", "REASON"),
        [
            (
                w["name"],
                w["pool"],
                w["phase"],
                w["host"] or None,
                str(w["pid"] or "-"),
                w["open_tasks"],
                w["rows"],
                f"{w['rows_per_s']:.1f}",
                w["engine_deaths"],
                w["reason"],
            )
            for w in found
        ],
    )


@click.command()
@click.argument("worker")
@pass_app
def drain(app: AppContext, *, worker: str) -> None:
    """Take a worker out: it commits what is finished, gives the rest back and ends.

    Another takes its place if its pool needs one.
    """
    with _attached(app) as ray:
        if not ray.ask("drain", worker):
            names = ", ".join(w["name"] for w in ray.ask("workers")) or "none"
            raise NotFound(kind="worker", name=worker, hint=f"There are: {names}.")
    click.echo(f"{worker}: draining")


@click.command()
@click.argument("pool")
@pass_app
def restart(app: AppContext, *, pool: str) -> None:
    """Replace all workers of a pool, one after the other; jobs go on meanwhile."""
    from jobs.pools import pool_named

    pool_named(pool, app.settings.pools)
    with _attached(app) as ray:
        count = ray.ask("roll", pool)
    click.echo(f"{pool}: {count} workers are replaced, one after the other")


# ---- helpers ------------------------------------------------------------------------------------


def _cluster(app: AppContext) -> Cluster:
    try:
        from workers.actors.cluster import Cluster
    except ModuleNotFoundError as missing:
        if missing.name != "ray":
            raise
        raise RayMissing from None
    return Cluster(app.settings)


@contextmanager
def _attached(app: AppContext) -> Iterator[Cluster]:
    """A cluster on which Nightmill is up. Raises NotUp."""
    ray = _cluster(app)
    if not ray.attach():
        _not_up(app)
    try:
        if ray.fleet() is None:
            _not_up(app)
        yield ray
    finally:
        ray.detach()


def _not_up(app: AppContext) -> None:
    raise NotUp(address=app.settings.ray_address)


def _ask_if_up(app: AppContext, what: str) -> Any:
    """The fleet's answer, or an empty one where it is not up."""
    try:
        with _attached(app) as ray:
            return ray.ask(what)
    except (NotUp, RayMissing):
        return {}


def _check_pools(app: AppContext) -> None:
    if not app.settings.pools:
        raise NoPools
    for pool in app.settings.pools:
        app.home.registry.resolve(pool.model)
        app.home.example_prices(pool.model)


def _pool_facts(app: AppContext, pool: Pool, standing: Mapping[str, Any]) -> dict[str, Any]:
    jobs = app.home.store.active_jobs(pool.name)
    return {
        "pool": pool.name,
        "purpose": pool.purpose,
        "model": pool.model,
        "min": pool.min_workers,
        "max": pool.max_workers,
        "running": standing.get("running", 0),
        "wanted": standing.get("wanted", 0),
        "failures": standing.get("failures", 0),
        "jobs": len(jobs),
        "rows": sum(max(0, job.total_rows - job.usage.rows) for job in jobs),
    }


def _show_until_stopped(ray: Cluster) -> None:
    """A line whenever something changed."""
    stopped = threading.Event()
    before = {n: signal.signal(n, lambda *_: stopped.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    shown = ""
    try:
        while not stopped.is_set():
            line = _one_line(ray.ask("pools"))
            if line != shown:
                click.echo(line)
                shown = line
            stopped.wait(_LOOK_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _one_line(standings: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [f"{name} {s['running']} of {s['wanted']} workers" for name, s in sorted(standings.items())]
    return " · ".join(parts) or "the fleet is starting"
