"""`nightmill pools`, `workers`, `drain`, `restart`: a cluster's workers, seen from a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from api.cli.cluster import NotUp, RayMissing, attached
from api.cli.context import AppContext, json_option, pass_app
from api.cli.output import print_json, table, tell
from jobs.errors import NotFound
from jobs.pools import Pool, pool_named

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@json_option
@pass_app
def pools(app: AppContext, *, as_json: bool) -> None:
    """List the declared pools, what waits for them, and their workers."""
    declared = app.home.pools
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
    with attached(app) as ray:
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
@json_option
@pass_app
def drain(app: AppContext, *, worker: str, as_json: bool) -> None:
    """Take a worker out: it commits what is finished, gives the rest back and ends.

    Another takes its place if its pool needs one.
    """
    with attached(app) as ray:
        if not ray.ask("drain", worker):
            names = ", ".join(w["name"] for w in ray.ask("workers")) or "none"
            raise NotFound(kind="worker", name=worker, hint=f"There are: {names}.")
    tell(f"{worker}: draining", as_json=as_json, worker=worker, phase="draining")


@click.command()
@click.argument("pool")
@json_option
@pass_app
def restart(app: AppContext, *, pool: str, as_json: bool) -> None:
    """Replace all workers of a pool, one after the other; jobs go on meanwhile."""
    pool_named(pool, app.settings.pools)
    with attached(app) as ray:
        count = ray.ask("roll", pool)
    sentence = f"{pool}: {count} workers are replaced, one after the other"
    tell(sentence, as_json=as_json, pool=pool, workers=count)


# ---- helpers ------------------------------------------------------------------------------------


def _ask_if_up(app: AppContext, what: str) -> Any:
    """The fleet's answer, or an empty one where it is not up."""
    try:
        with attached(app) as ray:
            return ray.ask(what)
    except (NotUp, RayMissing):
        return {}


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
