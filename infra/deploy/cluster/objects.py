"""An S3 server as a service: moto's, which keeps its objects in memory, so they end with it."""

from __future__ import annotations

import http.client
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from infra.deploy.cluster.service import Failed, Service, listens

BUCKETS = ("nightmill", "catalog", "results")
"""`nightmill` is for Nightmill's own objects; into the others a user may put inputs and results."""
KEYS = {"AWS_ACCESS_KEY_ID": "nightmill", "AWS_SECRET_ACCESS_KEY": "nightmill", "AWS_DEFAULT_REGION": "us-east-1"}
"""moto takes any."""


def objects_service(folder: Path, port: int, goods: Mapping[str, Path] | None = None) -> Service:
    """goods: objects to put there as it starts, by BUCKET/KEY. Raises Failed where moto is not installed."""
    if find_spec("moto") is None or find_spec("flask") is None:
        raise Failed("The S3 server is not installed. Run: make setup-dev, or: python -m pip install 'moto[server]'")

    def put(what: str, body: bytes = b"") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("PUT", f"/{what}", body)
        if connection.getresponse().status not in {200, 403, 409}:  # 409: the bucket is there, 403: the object
            raise Failed(f"The S3 server did not make {what}. See {folder / 'log'}")
        connection.close()

    def fill() -> None:
        for bucket in BUCKETS:
            put(bucket)
        for name, file in (goods or {}).items():
            if file.exists():
                put(name, file.read_bytes())

    return Service(
        name="S3 server",
        folder=folder,
        command=[sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        ready=lambda: listens(port),
        after=fill,
    )
