"""A local Ray for a test, and Nightmill up on it, with the API in front where that is asked for.

Nothing of Ray is imported before it is known to be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.deploy.cluster.service import free_ports
from tests.support.prepared import missing

if TYPE_CHECKING:
    from tests.support.town import Town

DOWN_S = 10.0


@contextmanager
def local_ray() -> Iterator[None]:
    """Ray with two CPUs, of which this process is the driver. Skips the test where it is not installed."""
    if find_spec("ray") is None:
        missing("Ray is not installed: pip install -e '.[cluster]'")
    import ray  # noqa: PLC0415 - see above

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 << 20,
        namespace="nightmill-cluster",
        log_to_driver=False,
        logging_level="error",
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def a_town(folder: Path, settings: str = "", **how: Any) -> Iterator[Town]:
    """A `Town` that is up, on a Ray that is there."""
    from tests.support.town import Town  # noqa: PLC0415 - see above

    opened = Town(folder, settings, **how)
    opened.cluster.up()
    try:
        yield opened
    finally:
        opened.cluster.down(DOWN_S)
        opened.home.close()


@contextmanager
def a_served_town(folder: Path, **how: Any) -> Iterator[Town]:
    """The same with two replicas of the API, on a free port (`settings.api_port`)."""
    from api.serve import deploy, undeploy  # noqa: PLC0415 - see above

    (port,) = free_ports(1)
    with a_town(folder, f"api_port = {port}\napi_replicas = 2\n", **how) as opened:
        deploy(opened.settings)
        try:
            yield opened
        finally:
            undeploy()
