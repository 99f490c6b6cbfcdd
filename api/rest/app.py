"""The app, put together."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from api.rest import (
    batches,
    chat,
    completions,
    embeddings,
    events,
    files,
    health,
    jobs,
    keys,
    models,
    results,
    usage,
    webhooks,
)
from api.rest.answers import REF
from api.rest.errors import handle_errors
from api.rest.known import Known
from api.rest.limits import LimitsMiddleware
from api.rest.live_answers import add_bodies
from api.rest.parts import Parts
from api.rest.schemas import ErrorBody

ROUTERS = (
    chat.router,
    completions.router,
    embeddings.router,
    files.router,
    batches.router,
    models.router,
    jobs.router,
    results.router,
    events.router,
    usage.router,
    webhooks.router,
    keys.router,
    health.router,
)
_ABOUT = "OpenAI's files, batches and models, and Nightmill's own jobs. Change `base_url` and the key, and go on."


def make_app(parts: Parts, version: str = "0") -> FastAPI:
    """The whole API over these parts. `/openapi.json` documents it; there are no pages that load scripts."""
    app = FastAPI(title="Nightmill", version=version, description=_ABOUT, docs_url=None, redoc_url=None)
    app.state.parts = parts
    app.state.known = Known(parts)
    for router in ROUTERS:
        app.include_router(router)
    handle_errors(app, parts.hidden)
    app.add_middleware(LimitsMiddleware, limits=parts.limits)
    plain = app.openapi

    def documented() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_errors(plain())
        return app.openapi_schema

    app.openapi = documented  # type: ignore[method-assign]  # FastAPI's own way of changing the document
    return app


def _with_errors(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI documents a 422 of its own wherever there is a parameter; here these are 400, in OpenAI's body."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    error = ErrorBody.model_json_schema(ref_template=REF)
    schemas.update(error.pop("$defs"), ErrorBody=error)
    add_bodies(schemas)
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return document
