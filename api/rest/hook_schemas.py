"""What webhooks are asked for by and answered as."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.rest.schemas import Ask, example

_EXAMPLE: dict[str, Any] = {
    "id": "we_06cdkpbm5y3xb28v4r7t9w1z0q",
    "object": "webhook_endpoint",
    "created_at": 1_790_000_000,
    "event_types": ["batch.completed", "batch.failed"],
    "name": "nightly",
    "url": "https://hooks.example.com/nightmill",
}
Url = Annotated[str, Field(min_length=1, max_length=2048)]


class WebhookAsk(Ask):
    """Whom to tell when it ends, beside the tenant's own endpoints. secret: yours, `whsec_` and the Base64 of 24 to 64
    random bytes; messages are signed with it.
    """

    model_config = ConfigDict(extra="forbid")

    url: Url
    secret: Annotated[str, Field(min_length=1, max_length=128)]


class EndpointRequest(Ask):
    """An endpoint that is told of all jobs and batches of the tenant that end as one of `event_types` says."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{name: _EXAMPLE[name] for name in ("event_types", "name", "url")}]},
    )

    event_types: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(max_length=256)] = ""
    url: Url


class EndpointBody(BaseModel):
    """An endpoint. signing_secret: only in the first answer to a create, and never again."""

    model_config = example(_EXAMPLE)

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    created_at: int
    event_types: list[str]
    name: str
    url: str
    signing_secret: str | None = None


class DeletedEndpoint(BaseModel):
    """It is told nothing more."""

    model_config = example({"id": _EXAMPLE["id"], "object": "webhook_endpoint.deleted", "deleted": True})

    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: bool = True
