"""What API keys are asked for by and answered as."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.rest.schemas import Ask, example
from jobs.tenancy import Role, Scope

_EXAMPLE: dict[str, Any] = {
    "id": "key_06cdkpbm9d3xb28v4r7t9w1z0q",
    "object": "api_key",
    "key": None,
    "shown": "nm_k7q2mzd",
    "name": "nightly",
    "project": "catalog",
    "role": "member",
    "scopes": ["files.read", "files.write", "jobs.read", "jobs.write"],
    "requests_per_minute": 600,
    "tokens_per_minute": None,
    "concurrent_requests": None,
    "created_at": 1_790_000_000.5,
    "expires_at": 1_797_776_000.5,
    "revoked_at": None,
    "replaces": None,
}
_LONGEST_S = 10 * 366 * 86_400
_SHOWN = ("name", "project", "role", "scopes", "requests_per_minute")
Amount = Annotated[int | None, Field(ge=1, le=2**53)]
Line = Annotated[str, Field(max_length=256, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""A text that a terminal may print."""


class KeyAsk(Ask):
    """A key of the caller's tenant, with no more than the caller's own role and scopes.

    scopes: all that its role, and the caller, may, where they are left out. expires_s: seconds that it is good for,
    until it is revoked where they are left out. project: written into every posting of what it submits.
    requests_per_minute, tokens_per_minute, concurrent_requests: of its interactive requests, at most the caller's own.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{**{name: _EXAMPLE[name] for name in _SHOWN}, "expires_s": 7_776_000}]},
    )

    name: Line = ""
    project: Line = ""
    role: Role = Role.MEMBER
    scopes: Annotated[list[Scope] | None, Field(min_length=1, max_length=len(Scope))] = None
    expires_s: Annotated[float | None, Field(gt=0, le=_LONGEST_S)] = None
    requests_per_minute: Amount = None
    tokens_per_minute: Amount = None
    concurrent_requests: Amount = None


class RotateAsk(Ask):
    """overlap_s: how long the old key stays good beside the new one; an earlier end of its own stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"overlap_s": 3600}]})

    overlap_s: Annotated[float, Field(ge=0, le=_LONGEST_S)] = 86_400


class KeyBody(BaseModel):
    """A key. key: the key itself, only in the first answer that made it, and never again; shown: its beginning.

    expires_at, revoked_at: it opens nothing from then on. replaces: the key that a rotation made this one for.
    requests_per_minute, tokens_per_minute, concurrent_requests: null for no limit of its own.
    """

    model_config = example(_EXAMPLE)

    id: str
    object: Literal["api_key"] = "api_key"
    key: str | None = None
    shown: str
    name: str
    project: str
    role: Role
    scopes: list[Scope]
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    replaces: str | None = None
