"""Composition root of the API: the app over a data directory, served by uvicorn in a thread of this process."""

from __future__ import annotations

import importlib.metadata
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import uvicorn

from api.cli.quoting import quote_of
from api.cli.retrying import make_retry
from api.rest.alone import NoFront
from api.rest.app import make_app
from api.rest.parts import Limits, Parts
from api.rest.patience import patient
from api.rest.threads import abandon
from infra.bootstrap import MIB, Home, open_home
from infra.data.inline import table_of
from infra.data.line_rules import ModelFacts
from infra.data.live_reading import BodyReading
from infra.data.manifest import read_manifest
from infra.heap import settle_heap
from infra.home_secret import home_secret
from infra.machine import open_more_files
from infra.models.registry import embedding_size, embedding_sizes
from infra.models.tokenizer import shows_tools
from infra.settings import Settings
from infra.settings.wire import from_json, to_json
from jobs.errors import Refused
from jobs.model import Job
from jobs.plan import PlanPolicy
from jobs.ports.limiting import Limiter
from jobs.ports.live import Front
from workers.main import own_places
from workers.wiring import folder_of

if TYPE_CHECKING:
    from fastapi import FastAPI

_LINK_S = 3600
_STALE_MORE_S = 5.0
"""A request that is under way may not be taken for one that died: its key is free so long after its time is up."""
_ONGOING = 1000
"""Requests that a replica has at a time; streams are among them."""
_QUEUED = 200
"""Requests that wait for a replica at most; more are refused at once (503) instead of waiting unseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Who takes interactive requests, and what limits them; None: what the database knows of keys and tenants."""

    front: Front = field(default_factory=NoFront)
    limiter: Limiter | None = None


NOBODY = Live()


class PortTaken(Refused):
    """The API cannot listen on {host}, port {port}: {reason}. Settings: api_host, api_port."""

    code = "port_taken"


def parts_of_home(home: Home, *, wake: Callable[[], object] = lambda: None, live: Live = NOBODY) -> Parts:
    """The app's parts. wake: is called when a batch is new or to be cancelled."""
    settings = home.settings
    return Parts(
        store=home.store,
        objects=home.objects,
        intake=home.intake,
        models=home.registry,
        results=home.results,
        ids=home.ids,
        clock=home.clock,
        pools=lambda: home.pools,
        folder=lambda tenant, size: folder_of(home, tenant, size),
        quote=lambda checked: quote_of(home, checked),
        retry=lambda parent, **how: make_retry(home, parent, **how),
        manifest=lambda job: manifest_of(home, job),
        table=table_of,
        seal=home.outward.seal,
        check_url=home.outward.calls.check,
        reading=reading_of(home),
        front=live.front,
        limiter=live.limiter or home.limiter,
        link=lambda uri: home.objects.link(uri, _LINK_S),
        wake=wake,
        hidden=own_places(home),
        limits=Limits(
            body_bytes=settings.max_body_mib * MIB,
            upload_bytes=settings.max_upload_mib * MIB,
            request_s=settings.request_timeout_s,
            generation_s=settings.generation_timeout_s,
            stale_s=settings.request_timeout_s + _STALE_MORE_S,
            wait_s=min(Limits().wait_s, settings.request_timeout_s / 2),  # else its own time is up before
            idle_s=settings.client_idle_s,
            file_expires_s=settings.file_expires_s or None,
            max_lines=settings.max_batch_lines,
        ),
    )


def reading_of(home: Home) -> BodyReading:
    """Reads interactive requests as the lines of a batch are read."""
    return BodyReading(
        find=home.registry.find,
        context=home.context_length,
        facts=ModelFacts(embedding_size=embedding_size, sizes=embedding_sizes, shows_tools=shows_tools),
        secret=cache(lambda: home_secret(home.settings.home)),
        tokens_per_char=PlanPolicy().tokens_per_char,
    )


def manifest_of(home: Home, job: Job) -> Mapping[str, Any] | None:
    """What a finished result folder holds."""
    found = read_manifest(home.objects, job.folder)
    return None if found is None else {**found.head, "parts": [asdict(part) for part in found.parts]}


def app_of(home: Home, *, wake: Callable[[], object] = lambda: None, live: Live = NOBODY) -> FastAPI:
    """The app over a data directory."""
    return make_app(parts_of_home(home, wake=wake, live=live), importlib.metadata.version("nightmill"))


class Served:
    """An API that listens. url: with the port it was given; stop: answers what has begun, then ends."""

    def __init__(self, server: uvicorn.Server, sock: socket.socket, app: FastAPI, grace_s: float) -> None:
        host, port = sock.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._server = server
        self._app = app
        self._grace_s = grace_s
        self._thread = threading.Thread(target=server.run, args=([sock],), name="api", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        return self._server.started and self._thread.is_alive()

    def stop(self) -> bool:
        """No new connection; what is under way may end within the grace. Whether it did."""
        self._app.state.parts.closing.set()
        self._server.should_exit = True
        self._thread.join(self._grace_s + 5)
        abandon()
        return not self._thread.is_alive()


def serve(home: Home, *, wake: Callable[[], object] = lambda: None, live: Live = NOBODY) -> Served:
    """Listen as the settings say, in a thread of its own. Raises PortTaken."""
    settings = home.settings
    open_more_files()
    app = app_of(home, wake=wake, live=live)
    sock = _listening(settings.api_host, settings.api_port)
    return Served(uvicorn.Server(_config(home, app)), sock, app, settings.stop_grace_s)


def _config(home: Home, app: Any) -> uvicorn.Config:
    """Our own log has the requests."""
    settings = home.settings
    return uvicorn.Config(
        app,
        http=patient(settings.client_idle_s, Limits().header_bytes * 2),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(max(1, settings.client_idle_s)),
        timeout_graceful_shutdown=int(settings.stop_grace_s),
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise PortTaken(host=host, port=port, reason=error.strerror or str(error)) from error
    return sock


# ---- on a cluster -------------------------------------------------------------------------------

APP = "nightmill-api"


def deploy(settings: Settings) -> None:
    """Deploy the API on the Ray cluster that this process is attached to, with its replicas, at the settings' address.

    The batches are kept by the scheduler actor. Ray's proxy is HAProxy where Ray was started with
    RAY_SERVE_ENABLE_HA_PROXY=1, and five times as fast with RAY_SERVE_THROUGHPUT_OPTIMIZED=1 beside it; for what is put
    before the app then see `api/ray_http.py`.
    """
    from ray import serve as ray_serve  # noqa: PLC0415 - only a cluster has Ray

    text = to_json(settings)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)

    def build() -> FastAPI:
        """In each replica, which has a data directory's adapters of its own."""
        from workers.actors.doors import front_of_replica  # noqa: PLC0415 - as above

        home = open_home(from_json(text))
        app = app_of(home, live=Live(front=front_of_replica(home)))
        settle_heap()
        return app

    ray_serve.start(
        proxy_location="EveryNode",
        http_options={
            "host": settings.api_host,
            "port": settings.api_port,
            "keep_alive_timeout_s": int(max(1, settings.client_idle_s)),
        },
    )
    ingress = ray_serve.deployment(
        ray_serve.ingress(build)(),
        name="api",
        num_replicas=settings.api_replicas,
        max_ongoing_requests=_ONGOING,
        max_queued_requests=_QUEUED,
        graceful_shutdown_timeout_s=settings.stop_grace_s,
        ray_actor_options={"num_cpus": 0},
        logging_config={"enable_access_log": False},  # our own log has the requests
    )
    ray_serve.run(ingress.bind(), name=APP, route_prefix="/")


def undeploy() -> None:
    """Take the API off the cluster; what is under way may end. Ray Serve goes too, unless it serves something else."""
    from ray import serve as ray_serve  # noqa: PLC0415 - as above

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    ray_serve.delete(APP)
    if not ray_serve.status().applications:
        ray_serve.shutdown()
