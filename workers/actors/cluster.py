"""A Ray cluster seen from outside: the command line attaches to it."""

from __future__ import annotations

import time
from typing import Any

import orjson
import ray
import structlog
from ray.exceptions import AuthenticationError
from ray.util import list_named_actors

from infra.settings import Settings
from infra.settings.wire import to_json
from jobs.errors import Refused
from workers.actors.common import (
    FLEET,
    LOOK_S,
    lasting,
    namespace,
)
from workers.actors.fleet import FleetActor

log = structlog.get_logger()


class RayRefused(Refused):
    """The Ray cluster at {address} refuses us: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to its token's file."""

    code = "ray_refused"


class Cluster:
    """A Ray cluster that this process is attached to. `own`: it was started by this process and ends with it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.own = False
        self._attached = False

    def attach(self, *, start: bool = False) -> bool:
        """Connect; False if no Ray runs there. start: then, unless the settings name one, one is started here.

        Raises RayRefused.
        """
        quiet: dict[str, Any] = {
            "namespace": namespace(self._settings),
            "log_to_driver": False,
            "logging_level": "error",
        }
        if ray.is_initialized():
            return True
        try:
            ray.init(address=self._settings.ray_address, **quiet)
        except AuthenticationError as error:
            raise RayRefused(address=self._settings.ray_address) from error
        except ConnectionError:
            if not start or self._settings.ray_address != "auto":
                return False
            ray.init(address="local", include_dashboard=False, **quiet)
            self.own = True
        self._attached = True
        return True

    def fleet(self) -> Any | None:
        """The fleet's handle, or None if Nightmill is not up."""
        try:
            return ray.get_actor(FLEET, namespace=namespace(self._settings))
        except ValueError:
            return None

    def up(self) -> bool:
        """Start the fleet; False if it is up already."""
        if self.fleet() is not None:
            return False
        lasting(FleetActor, FLEET, namespace=namespace(self._settings)).remote(to_json(self._settings))
        return True

    def down(self, timeout_s: float) -> bool:
        """Drain all workers and end all actors; whether they were drained in time (they are ended anyway)."""
        fleet = self.fleet()
        if fleet is None:
            return True
        until = time.monotonic() + timeout_s
        while not (drained := bool(ray.get(fleet.close.remote()))) and time.monotonic() < until:
            time.sleep(LOOK_S)
        ray.kill(fleet, no_restart=True)
        if not drained:
            self._end_all()
        return drained

    def _end_all(self) -> None:
        for entry in list_named_actors(all_namespaces=True):
            if entry["namespace"] == namespace(self._settings):
                ray.kill(ray.get_actor(entry["name"], namespace=entry["namespace"]), no_restart=True)

    def ask(self, what: str, *args: str) -> Any:
        """A question to the fleet, which must be up; JSON answers are decoded."""
        fleet = self.fleet()
        assert fleet is not None, "ask only where the fleet is up"
        answer = ray.get(getattr(fleet, what).remote(*args), timeout=30)
        return orjson.loads(answer) if isinstance(answer, bytes) else answer

    def detach(self) -> None:
        """Let go, if it was us who attached; a Ray that we started ends."""
        if self._attached:
            ray.shutdown()
