"""What Ray Serve puts before the app in its replicas: named by `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`, which is
set where Ray is started with HAProxy.
"""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

_OURS = (b"x-request-disconnect-disabled", b"?1")


class OwnWatch:
    """The app notices itself when a client leaves, as under uvicorn. Ray Serve need not watch too, for which it would
    start two tasks a request, and let all that came at the same time pass each step before the first of them goes on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [*scope["headers"], _OURS]  # of several it reads the last
        await self._app(scope, receive, send)


def middlewares() -> list[Middleware]:
    """For Ray Serve. It must watch in a proxy of its own, where the app would not hear of it, and where the app has a
    thread and an event loop of its own, in which it cannot wait for what the server hears.
    """
    from ray import serve  # noqa: PLC0415 - only a cluster has Ray
    from ray.serve._private.constants import RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD as APART  # noqa: PLC0415
    from ray.serve.exceptions import RayServeException  # noqa: PLC0415

    try:
        serve.get_replica_context()
    except RayServeException:
        return []
    return [] if APART else [Middleware(OwnWatch)]
