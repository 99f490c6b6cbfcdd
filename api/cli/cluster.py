"""`nightmill up` and `down`: Nightmill on a Ray cluster, or here in this process; and how other commands reach it."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from api.cli.context import AppContext, json_option, pass_app
from api.cli.exits import Exit
from api.cli.output import tell
from jobs.errors import Refused, Unavailable

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
@click.option("--detach", is_flag=True, help="With --cluster: return at once; the cluster goes on.")
@click.option("--model", "models", multiple=True, help="Without --cluster: serve this model, from now on; repeatable.")
@json_option
@pass_app
def up(
    app: AppContext, *, cluster: bool, config: Path | None, detach: bool, models: tuple[str, ...], as_json: bool
) -> Exit:
    """Bring Nightmill up and show what runs: here, on this machine, or on a Ray cluster.

    Without --cluster it needs nothing else: it serves the pools that the settings declare, or else every model that is
    ready, or the models given; engines start when there is work. Ctrl-C drains the workers.

    With --cluster: where Ray runs already (setting `ray_address`), Nightmill outlives this command: Ctrl-C only ends
    the view, and `nightmill down` ends Nightmill. Where none runs, one is started on this machine that ends with this
    command; Ctrl-C then drains the workers first. Settings are read once: after a change run `down` and `up` again.
    """
    if config is not None:
        app.config_option = config
    if not cluster:
        if detach:
            raise click.UsageError("--detach goes with --cluster.")
        from api.cli.here import up_here

        return up_here(app, models, as_json=as_json)
    if models:
        raise click.UsageError("--model goes without --cluster: there the settings declare the pools.")
    _check_pools(app)
    ray = _cluster(app)
    if not ray.attach(start=not detach):
        _not_up(app)
    try:
        fresh = ray.up()
        began = "Nightmill is starting." if fresh else "Nightmill is up already, with the settings of its start."
        tell(began, as_json=as_json, event="up", started=fresh, ray_address=app.settings.ray_address, own=ray.own)
        if fresh and app.settings.api_replicas:
            _deploy_api(app, as_json=as_json)
        if config is not None and not as_json:
            click.echo(f"For the other commands: export NIGHTMILL_CONFIG={config.absolute()}")
        if detach:
            return Exit.OK
        if not as_json:
            click.echo("Ctrl-C drains the workers and ends it." if ray.own else "Ctrl-C leaves it running.")
        _show_until_stopped(ray, as_json=as_json)
        if ray.own:
            tell("Draining …", as_json=as_json, event="draining")
            tell("Nightmill is down.", as_json=as_json, event="down", drained=ray.down(_DOWN_S))
    finally:
        ray.detach()
    return Exit.OK


@click.command()
@click.option("--timeout", type=click.FloatRange(min=0), default=_DOWN_S, show_default=True, help="Seconds to drain.")
@json_option
@pass_app
def down(app: AppContext, *, timeout: float, as_json: bool) -> Exit:
    """Drain all workers and end Nightmill on the Ray cluster. Jobs stay and go on at the next `nightmill up`."""
    ray = _cluster(app)
    if not ray.attach():
        tell("No Ray cluster runs there; nothing is up.", as_json=as_json, was_up=False, drained=True)
        return Exit.OK
    try:
        was_up = ray.fleet() is not None
        if was_up and app.settings.api_replicas:
            from api.serve import undeploy

            undeploy()
        drained = ray.down(timeout)
    finally:
        ray.detach()
    ended = "Nightmill is down." if drained else "Nightmill is down; what was not drained in time is done again."
    tell(ended, as_json=as_json, was_up=was_up, drained=drained)
    return Exit.OK


# ---- helpers ------------------------------------------------------------------------------------


def _cluster(app: AppContext) -> Cluster:
    settings = app.settings  # first: what they add to the environment, Ray reads when it is imported
    try:
        from workers.actors.cluster import Cluster
    except ModuleNotFoundError as missing:
        if missing.name != "ray":
            raise
        raise RayMissing from None
    return Cluster(settings)


@contextmanager
def attached(app: AppContext) -> Iterator[Cluster]:
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


def _deploy_api(app: AppContext, *, as_json: bool) -> None:
    from api.cli.keys import first_key
    from api.serve import deploy

    deploy(app.settings)
    url = f"http://{app.settings.api_host}:{app.settings.api_port}/v1"
    key = first_key(app)
    tell(f"REST API: {url}", as_json=as_json, event="api", url=url, first_key=key)
    if key is not None and not as_json:
        click.echo(f"The first API key, an operator's, shown this once: {key}")


def _check_pools(app: AppContext) -> None:
    from infra.engines.known_args import check_engine_args

    if not app.settings.pools:
        raise NoPools
    for pool in app.settings.pools:
        model = app.home.registry.resolve(pool.model)
        check_engine_args(model.engine, pool.engine_args, source=f"pools.{pool.name}.engine_args")
        app.home.example_prices(pool.model)


def _show_until_stopped(ray: Cluster, *, as_json: bool) -> None:
    """A line whenever something changed."""
    stopped = threading.Event()
    before = {n: signal.signal(n, lambda *_: stopped.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    shown = ""
    try:
        while not stopped.is_set():
            standings = ray.ask("pools")
            line = _one_line(standings)
            if line != shown:
                tell(line, as_json=as_json, event="pools", pools=standings)
                shown = line
            stopped.wait(_LOOK_S)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _one_line(standings: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [f"{name} {s['running']} of {s['wanted']} workers" for name, s in sorted(standings.items())]
    return " · ".join(parts) or "the fleet is starting"
