"""`/v1/webhook_endpoints`, as OpenAI's client knows them, and the webhook that one job or batch asks for."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from api.rest.answers import posted, read
from api.rest.auth import Caller, KeysManager
from api.rest.errors import missing
from api.rest.hook_schemas import DeletedEndpoint, EndpointBody, EndpointRequest, WebhookAsk
from api.rest.keyed import KeysRoute
from api.rest.parts import Parts, parts_of
from api.rest.replay import Turn, Turns
from api.rest.schemas import Page
from api.rest.shown import page_of
from jobs.delivering import new_webhook
from jobs.errors import BadInput, NotFound
from jobs.tenancy import Scope
from jobs.webhooks import EVENTS, SECRET_BYTES, Webhook, secret_of

router = APIRouter(prefix="/v1/webhook_endpoints", tags=["webhooks"], route_class=KeysRoute)

_MOST = 100


@router.post("", response_model=EndpointBody, responses=posted(404), summary="Add a webhook endpoint")
def create(body: EndpointRequest, turn: Annotated[Turn, Depends(Turns("we_", Scope.KEYS))]) -> Response:
    """The answer to an idempotency key that comes again is without the secret: that is kept by nobody but you."""
    parts, caller = turn.parts, turn.caller
    if unknown := sorted({*body.event_types} - {*EVENTS}):
        raise BadInput(source="event_types", reason=f"{', '.join(unknown)}: there are {', '.join(EVENTS)}")
    if len(parts.store.webhooks(caller.name)) >= _MOST:
        raise BadInput(source="webhook_endpoint", reason=f"a tenant has {_MOST} endpoints at most")
    parts.check_url(body.url)
    secret = secret_of(secrets.token_bytes(SECRET_BYTES))
    made = new_webhook(turn.id, tenant=caller.name, url=body.url, secret=secret, seal=parts.seal)
    made = made.evolve(name=body.name, events=tuple(dict.fromkeys(body.event_types)))
    kept = parts.store.add_webhook(made, caller.key.id)
    shown = _shown(kept)
    answer = turn.answer(shown)  # what is remembered
    if kept.sealed != made.sealed:  # an earlier try of this request made it, and died before it could say so
        return answer
    whole = shown.model_copy(update={"signing_secret": secret})
    return Response(whole.model_dump_json(), media_type="application/json")


@router.get("", responses=read(), summary="List webhook endpoints")
def list_endpoints(request: Request, caller: KeysManager) -> Page[EndpointBody]:
    """All of them, the newest first."""
    return page_of(
        [_shown(webhook) for webhook in parts_of(request).store.webhooks(caller.name)], _MOST, lambda w: w.id
    )


@router.get("/{webhook_id}", responses=read(404), summary="Look at a webhook endpoint")
def get_endpoint(request: Request, caller: KeysManager, webhook_id: str) -> EndpointBody:
    """Without its secret."""
    return _shown(_standing(parts_of(request), caller, webhook_id))


@router.delete("/{webhook_id}", responses=read(404), summary="Remove a webhook endpoint")
def delete_endpoint(request: Request, caller: KeysManager, webhook_id: str) -> DeletedEndpoint:
    """What it was not yet told of, it is not told."""
    parts = parts_of(request)
    webhook = _standing(parts, caller, webhook_id)
    parts.store.end_webhook(webhook.id, tenant=caller.name, actor=caller.key.id)
    return DeletedEndpoint(id=webhook.id)


def webhook_for(turn: Turn, asked: WebhookAsk | None) -> str:
    """Make the webhook of one job or batch, before its record; its id. "" where none is asked for."""
    if asked is None:
        return ""
    parts, tenant = turn.parts, turn.caller.name
    parts.check_url(asked.url)
    name = f"we_{turn.id.partition('_')[2] or turn.id.partition('-')[2]}"
    made = new_webhook(name, tenant=tenant, url=asked.url, secret=asked.secret, seal=parts.seal, standing=False)
    return parts.store.add_webhook(made, turn.caller.key.id).id


def _standing(parts: Parts, caller: Caller, webhook_id: str) -> Webhook:
    try:
        found = parts.store.webhook(webhook_id, caller.name)
    except NotFound:
        raise missing("webhook endpoint", webhook_id) from None
    if not found.standing or found.ended_at is not None:
        raise missing("webhook endpoint", webhook_id)
    return found


def _shown(webhook: Webhook) -> EndpointBody:
    return EndpointBody(
        id=webhook.id,
        created_at=int(webhook.created_at),
        event_types=list(webhook.events or EVENTS),
        name=webhook.name,
        url=webhook.url,
    )
