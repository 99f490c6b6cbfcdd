"""`/v1/keys`: a tenant's API keys, as `nightmill keys` has them. A key is shown once, when it is made."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from api.rest.answers import posted, read
from api.rest.auth import Caller, KeysManager
from api.rest.errors import missing
from api.rest.key_schemas import KeyAsk, KeyBody, RotateAsk
from api.rest.keyed import KeysRoute
from api.rest.parts import Parts, parts_of
from api.rest.replay import Turn, Turns
from api.rest.schemas import Page
from api.rest.shown import page_of
from jobs.errors import NotFound
from jobs.keys import KEY_BYTES, KeyDesk, KeyRequest, MadeKey
from jobs.tenancy import ApiKey, RequestLimits, Scope

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=KeysRoute)

Make = Annotated[Turn, Depends(Turns("key_", Scope.KEYS))]


@router.post("", response_model=KeyBody, responses=posted(), summary="Make a key")
def create(body: KeyAsk, turn: Make) -> Response:
    """The answer to an idempotency key that comes again is without the key itself: that is kept by nobody but you."""
    asked = KeyRequest(
        name=body.name,
        project=body.project,
        role=body.role,
        scopes=frozenset(body.scopes or ()),
        expires_s=body.expires_s,
        limits=RequestLimits(
            requests_per_minute=body.requests_per_minute,
            tokens_per_minute=body.tokens_per_minute,
            concurrent_requests=body.concurrent_requests,
        ),
    )
    made = _desk(turn.parts, turn.caller).make(turn.id, secrets.token_bytes(KEY_BYTES), asked, tenant=turn.caller.name)
    return _shown_once(turn, made)


@router.get("", responses=read(404), summary="List keys")
def list_keys(
    request: Request,
    caller: KeysManager,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page[KeyBody]:
    """By cursor, the newest first; those that have ended are among them."""
    with _named("after", after):
        found = parts_of(request).store.keys(caller.name, after=after, limit=limit + 1)
    return page_of([_shown(key) for key in found], limit, lambda key: key.id)


@router.get("/{key_id}", responses=read(404), summary="Look at a key")
def get_key(request: Request, caller: KeysManager, key_id: str) -> KeyBody:
    """Without the key itself."""
    with _named(None, key_id):
        return _shown(parts_of(request).store.key(key_id, caller.name))


@router.post("/{key_id}/rotate", response_model=KeyBody, responses=posted(404), summary="Replace a key")
def rotate(key_id: str, body: RotateAsk, turn: Make) -> Response:
    """It may do the same, for as long as that was made for. A repeated request is answered as one that makes a key."""
    with _named(None, key_id):
        made = _desk(turn.parts, turn.caller).rotate(
            key_id, turn.id, secrets.token_bytes(KEY_BYTES), overlap_s=body.overlap_s
        )
    return _shown_once(turn, made)


@router.post("/{key_id}/revoke", response_model=KeyBody, responses=posted(404), summary="Revoke a key")
def revoke(key_id: str, turn: Annotated[Turn, Depends(Turns("act-", Scope.KEYS))]) -> Response:
    """It opens nothing from now on; what it submitted goes on."""
    with _named(None, key_id):
        ended = _desk(turn.parts, turn.caller).revoke(key_id)
    return turn.answer(_shown(ended))


def _desk(parts: Parts, caller: Caller) -> KeyDesk:
    return KeyDesk(store=parts.store, now=parts.store.now, actor=caller.key.id, by=caller.key)


@contextmanager
def _named(param: str | None, key_id: str | None) -> Iterator[None]:
    """The same words for a key that never was and for another tenant's."""
    try:
        yield
    except NotFound:
        raise missing("API key", str(key_id), param=param) from None


def _shown_once(turn: Turn, made: MadeKey) -> Response:
    shown = _shown(made.record)
    answer = turn.answer(shown)  # what is remembered has no key in it
    if not made.text:
        return answer
    whole = shown.model_copy(update={"key": made.text})
    return Response(whole.model_dump_json(), media_type="application/json", headers={"cache-control": "no-store"})


def _shown(key: ApiKey) -> KeyBody:
    return KeyBody(
        id=key.id,
        shown=key.shown,
        name=key.name,
        project=key.project,
        role=key.role,
        scopes=sorted(key.scopes),
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        concurrent_requests=key.concurrent_requests,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        replaces=key.replaces,
    )
