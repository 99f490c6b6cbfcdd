"""`/healthz` and `/readyz`: whether the process lives, and whether it can serve. No key is needed."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel

from api.rest.answers import EVERYWHERE, answers
from api.rest.parts import parts_of
from api.rest.threads import in_thread
from jobs.errors import Unavailable

router = APIRouter(tags=["health"])


class Stopping(Unavailable):
    """The server is stopping."""

    code = "stopping"


class Health(BaseModel):
    """That all is well."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", responses=answers(*EVERYWHERE), summary="Does the process live?")
async def healthz() -> Health:
    """Answers from memory."""
    return Health()


@router.get("/readyz", responses=answers(*EVERYWHERE), summary="Can it serve?")
async def readyz(request: Request) -> Health:
    """Asks the database, by the threads that all requests share; 503 while it does not answer, and once the server is
    stopping.
    """
    parts = parts_of(request)
    if parts.closing.is_set():
        raise Stopping
    await in_thread(parts.store.now)
    return Health()
