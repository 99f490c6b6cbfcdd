"""`/v1/models`: what requests may name."""

from __future__ import annotations

from fastapi import APIRouter, Request

from api.rest.answers import read
from api.rest.auth import Caller, JobsReader
from api.rest.errors import missing
from api.rest.keyed import KeyedRoute
from api.rest.parts import Parts, parts_of
from api.rest.schemas import ModelBody, ModelList
from jobs.naming import names_of

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=KeyedRoute)


@router.get("", responses=read(), summary="List models")
def list_models(request: Request, caller: JobsReader) -> ModelList:
    """The served models and the aliases that the tenant sees."""
    return ModelList(data=[ModelBody(id=name) for name in _names(parts_of(request), caller)])


@router.get("/{model:path}", responses=read(404), summary="Look at a model")
def get_model(request: Request, caller: JobsReader, model: str) -> ModelBody:
    """A model, or an alias of one."""
    if model not in _names(parts_of(request), caller):
        raise missing("model", model)
    return ModelBody(id=model)


def _names(parts: Parts, caller: Caller) -> list[str]:
    return names_of(parts.store.aliases(caller.name), parts.pools())
