"""Which services a settings file names, and on which ports of this machine."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.deploy.cluster.postgres import DATABASE, USER
from infra.deploy.cluster.service import Failed

_HERE = ("127.0.0.1", "localhost")
_SETTINGS = {
    "kafka": "kafka_bootstrap",
    "postgres": "database_url",
    "s3": "s3_endpoint",
    "ray": "ray_address",
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """file: settings. ports: by service. home: Nightmill's data directory there; the services lie in it."""

    file: Path
    home: Path
    ports: dict[str, int]

    @property
    def folder(self) -> Path:
        return self.home / "cluster"


def read_config(file: Path) -> Config:
    """Raises Failed for what cannot be started here."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failed(f"{file}: {error}") from error
    if not isinstance(home := found.get("home"), str):
        raise Failed(f"{file} says no home, below which the services could lie")
    named = {service: found[name] for service, name in _SETTINGS.items() if found.get(name, "auto") != "auto"}
    ports = {service: _port(file, _SETTINGS[service], value) for service, value in named.items()}
    if len(set(ports.values())) < len(ports):
        raise Failed(f"{file} has one port twice")
    return Config(file=file, home=(file.parent / home).resolve(), ports=ports)


def _port(file: Path, name: str, value: Any) -> int:
    try:
        parts = urlsplit(value if "://" in value else f"//{value}")
        host, port = parts.hostname, parts.port
    except (TypeError, ValueError):
        host, port = None, None
    if host not in _HERE or port is None:
        raise Failed(
            f"{file}: {name} is {value!r}, and only HOST:PORT of this machine ({_HERE[0]}) can be started here"
        )
    if name == "database_url" and (parts.username, parts.path) != (USER, f"/{DATABASE}"):
        raise Failed(f"{file}: {name} must be of user and database {USER}, which are made here")
    return port
