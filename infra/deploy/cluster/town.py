"""All services together: their ports, their start and end, and the settings with which Nightmill finds them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from infra.deploy.cluster.broker import kafka_service
from infra.deploy.cluster.config import Config
from infra.deploy.cluster.kafka_home import KafkaHome, find_kafka
from infra.deploy.cluster.objects import BUCKETS, KEYS, objects_service
from infra.deploy.cluster.postgres import Postgres, find_postgres
from infra.deploy.cluster.ray_head import has_ray, ray_environment, ray_service
from infra.deploy.cluster.service import Failed, Service, free_ports, listens

SERVICES = ("kafka", "postgres", "s3", "ray")
_PORTS = {
    "kafka": ("kafka", "kafka_controller"),
    "postgres": ("postgres",),
    "s3": ("s3",),
    "ray": ("ray", "ray_client", "ray_dashboard"),
}
_LEAVES_S = 3.0
"""What was killed holds its port a moment longer than its process can be seen."""
_STOP = {"postgres": signal.SIGINT}
SETTINGS_FILE, ENVIRONMENT_FILE = "cluster.toml", "env"
_POOLS = """
# Pools: see docs/settings.md.
[pools.batch]
model = "smollm2"
num_cpus = 1
max_workers = 2
"""


@dataclass
class Town:
    """Everything lies in one folder; `up` may be said again at any time, and starts what does not run.

    config: a settings file that names the services and their ports. Without one all are started, on ports that are
    free, and a settings file is written. goods: files that the S3 server is to begin with, by BUCKET/KEY.
    """

    folder: Path
    without: frozenset[str] = frozenset()
    say: Callable[[str], None] = field(default=print)
    config: Config | None = None
    goods: Mapping[str, Path] = field(default_factory=dict)

    def up(self) -> int:
        """Start all, in the order that they need each other."""
        for name in self._names:
            service = getattr(self, f"_{name}")()
            if service.pid is None:
                self._check_ports(name, service.name)
            began = service.start()
            self.say(f"{service.name:<11} {'started' if began else 'runs':<8} {self._where(name)}  log: {service.log}")
        self._write_environment()
        if self.config is None:
            self._write_settings()
        if "ray" in self._wanted and "ray" not in self._names:
            self.say("Ray         is not installed: python -m pip install 'ray[serve]'")
        if self.config is None:
            self.say(f"\n  . {self.folder / ENVIRONMENT_FILE}")
            self.say(f"  nightmill --config {self.folder / SETTINGS_FILE} up --cluster")
        else:
            self.say(f"\n  nightmill up --cluster --config {os.path.relpath(self.config.file)}")
        return 0

    def down(self) -> int:
        """End all, the other way round. What they keep stays (but for S3, which keeps nothing)."""
        for name in reversed(SERVICES):
            service = self._known(name)
            if service.pid is not None:
                service.stop()
                self.say(f"{service.name:<11} stopped")
        return 0

    def status(self) -> int:
        """Print what runs; 0 if everything does."""
        runs = {name: self._known(name).pid for name in self._names}
        for name, pid in runs.items():
            self.say(f"{name:<11} {f'process {pid}, {self._where(name)}' if pid else 'does not run'}")
        return 0 if all(runs.values()) else 1

    # ---- the services ---------------------------------------------------------------------------

    @property
    def _wanted(self) -> list[str]:
        named = SERVICES if self.config is None else tuple(self.config.ports)
        return [name for name in SERVICES if name in named and name not in self.without]

    @property
    def _names(self) -> list[str]:
        return [name for name in self._wanted if name != "ray" or has_ray()]

    @cached_property
    def _ports(self) -> dict[str, int]:
        """The config's; the others chosen once and kept, so that clients find a service again after its restart."""
        file = self.folder / "ports.json"
        ports: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        ports |= {} if self.config is None else self.config.ports
        missing = [name for names in _PORTS.values() for name in names if name not in ports]
        if missing:
            ports |= dict(zip(missing, free_ports(len(missing)), strict=True))
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(ports, indent=1))
        return ports

    def _check_ports(self, name: str, shown: str) -> None:
        """Raises Failed naming a port of a service that does not run, and on which something listens all the same."""
        for what in _PORTS[name]:
            port, until = self._ports[what], time.monotonic() + _LEAVES_S
            while (taken := listens(port)) and time.monotonic() < until:
                time.sleep(0.1)
            if taken:
                raise Failed(
                    f"Port {port} of 127.0.0.1, which is for {shown} ({what}), is in use by another program. "
                    f"End that one, or {self._other_ports(what)}"
                )

    def _other_ports(self, what: str) -> str:
        if self.config is None or what not in self.config.ports:
            return f"remove {self.folder / 'ports.json'}, so that another is chosen."
        file = os.path.relpath(self.config.file)
        return f"copy {file}, choose another port there and run: make cluster CLUSTER=YOUR_COPY"

    @cached_property
    def _kafka_home(self) -> KafkaHome:
        return find_kafka(self.folder.parent / "kafka")

    def _kafka(self) -> Service:
        self.say(f"Kafka       from {self._kafka_home.origin}")
        ports = self._ports
        return kafka_service(
            self._kafka_home, self.folder / "kafka", port=ports["kafka"], controller=ports["kafka_controller"]
        )

    @cached_property
    def _database(self) -> Postgres:
        return find_postgres(self.folder / "postgres", self._ports["postgres"])

    def _postgres(self) -> Service:
        return self._database.service()

    def _s3(self) -> Service:
        return objects_service(self.folder / "s3", self._ports["s3"], self.goods)

    def _ray(self) -> Service:
        ports = self._ports
        return ray_service(
            self.folder / "ray",
            port=ports["ray"],
            client=ports["ray_client"],
            dashboard=ports["ray_dashboard"],
            environment=self._environment(),
        )

    def _known(self, name: str) -> Service:
        """As much of a service as is needed to find and end its process."""
        return Service(
            name=name,
            folder=self.folder / name,
            command=(),
            ready=lambda: True,
            stop_signal=_STOP.get(name, signal.SIGTERM),
        )

    def _where(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    # ---- settings -------------------------------------------------------------------------------

    def _settings(self) -> dict[str, str | int]:
        lines: dict[str, str | int] = {"home": "home"}
        if "kafka" in self._names:
            lines |= {"kafka_bootstrap": self._where("kafka"), "kafka_replication": 1}
        if "postgres" in self._names:
            lines |= {"database_url": self._database.url}
        if "s3" in self._names:
            lines |= {"s3_endpoint": f"http://{self._where('s3')}", "objects": f"s3://{BUCKETS[0]}/objects"}
        if "ray" in self._names:
            lines |= {"ray_address": self._where("ray")}
        return lines

    def _environment(self) -> dict[str, str]:
        """Secrets, and what other tools read as well."""
        found: dict[str, str] = {}
        if "postgres" in self._names:
            found |= {"PGPASSWORD": self._database.password}
        if "s3" in self._names:
            found |= KEYS
        return found

    def _write_environment(self) -> None:
        environment = self._environment()
        if "ray" in self._names:
            environment |= ray_environment(self.folder / "ray")
        exports = self.folder / ENVIRONMENT_FILE
        exports.touch(mode=0o600)
        exports.write_text("".join(f"export {name}='{value}'\n" for name, value in environment.items()))

    def _write_settings(self) -> None:
        settings = self.folder / SETTINGS_FILE
        lines = [f"{name} = {json.dumps(value)}" for name, value in self._settings().items()]
        head = "# Written by `make cluster`; what you change below its pools stays."
        pools = _after_settings(settings.read_text()) if settings.exists() else _POOLS
        settings.write_text("\n".join([head, *lines, pools]))


def _after_settings(text: str) -> str:
    """What follows the settings: pools, which are the user's to change."""
    marker = _POOLS.splitlines()[1]
    return "\n" + text[text.index(marker) :] if marker in text else _POOLS
