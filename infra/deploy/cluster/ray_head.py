"""The head of a local Ray as a service, with token authentication."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from infra.deploy.cluster.service import Service, listens

_STORE_BYTES = 128 << 20
"""Rows do not travel through Ray; hand-overs do."""


def has_ray() -> bool:
    """Whether Ray is installed beside this Python."""
    return find_spec("ray") is not None


def ray_environment(folder: Path) -> dict[str, str]:
    """What everyone needs who talks to it; the token is made once."""
    token = folder / "token"
    if not token.exists():
        folder.mkdir(parents=True, exist_ok=True)
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


SERVE = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "api.ray_http.middlewares",
}
"""Five times the requests a second of Ray Serve's own proxy; read where Ray is started. See `api/ray_http.py`."""


def ray_service(folder: Path, *, port: int, client: int, dashboard: int, environment: Mapping[str, str]) -> Service:
    """environment: more of it, which Ray's workers inherit."""
    # Ray's sockets lie below it, and a socket's path has at most 107 characters.
    scratch = Path(tempfile.gettempdir()) / f"nightmill-ray-{sha256(str(folder).encode()).hexdigest()[:8]}"
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    env = {**environment, **SERVE, **ray_environment(folder)}

    def ready() -> bool:
        if not listens(port):
            return False
        command = [*ray, "health-check", "--address", f"127.0.0.1:{port}"]
        return subprocess.run(command, check=False, capture_output=True, env={**os.environ, **env}).returncode == 0

    return Service(
        name="Ray",
        folder=folder,
        command=[
            *ray, "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(port),
            "--ray-client-server-port", str(client), "--dashboard-host", "127.0.0.1",
            "--dashboard-port", str(dashboard), "--temp-dir", str(scratch), "--disable-usage-stats",
            "--object-store-memory", str(_STORE_BYTES),
        ],
        ready=ready,
        env=env,
        start_s=180.0,
    )  # fmt: skip
