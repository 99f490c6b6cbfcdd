"""Who calls: the API key of the request, its tenant, and what it may be used for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from api.rest.errors import missing
from api.rest.parts import Parts
from jobs.errors import KeyRefused, NotAllowed, NotFound
from jobs.model import Job, Value
from jobs.tenancy import ApiKey, Scope, Tenant, digest_of

_bearer = HTTPBearer(auto_error=False, description="An API key: `nm_…`, made by `nightmill keys create`.")


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller(Value):
    """A key that is good, and its tenant."""

    key: ApiKey
    tenant: Tenant

    @property
    def name(self) -> str:
        """Of the tenant."""
        return self.tenant.name


def caller_of(parts: Parts, key: str | None) -> Caller:
    """Raises KeyRefused; why, only where the holder has the whole key."""
    if not key:
        raise KeyRefused(reason="none is given; send the header Authorization: Bearer nm_…")
    found = parts.store.key_by_digest(digest_of(key))
    if found is None:
        raise KeyRefused(reason="it is not known")
    record, tenant = found
    check_opens(record, parts.clock.now())
    if tenant.disabled_at is not None and tenant.disabled_at <= parts.clock.now():
        raise KeyRefused(reason="its tenant is disabled")
    return Caller(key=record, tenant=tenant)


def check_opens(key: ApiKey, now: float) -> None:
    """Raises KeyRefused."""
    if not key.opens(now):
        raise KeyRefused(reason="it has expired or was revoked")


def key_of(request: Request) -> str | None:
    """The key that a request brings."""
    scheme, key = get_authorization_scheme_param(request.headers.get("authorization"))
    return key if scheme.lower() == "bearer" else None


def authorised(request: Request, scope: Scope) -> Caller:
    """The caller, who was admitted, if the key may be used for this. Raises NotAllowed."""
    found: Caller = request.state.caller
    if not found.key.may(scope):
        raise NotAllowed(reason=f"it lacks the scope {scope}")
    return found


class Needs:
    """A dependency of a `KeyedRoute`: the caller, whose key may be used for this. No thread is woken for it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, request: Request, given: Credentials = None) -> Caller:  # noqa: ARG002 - for the document
        return authorised(request, self._scope)


def job_of(parts: Parts, caller: Caller, job_id: str) -> Job:
    """A job inside its tenant: the one place where the API looks one up. Raises NotFound."""
    try:
        job = parts.store.job(job_id)
    except NotFound:
        raise missing("job", job_id) from None
    if job.tenant != caller.name:
        raise missing("job", job_id)
    return job


FilesReader = Annotated[Caller, Depends(Needs(Scope.FILES_READ))]
FilesWriter = Annotated[Caller, Depends(Needs(Scope.FILES_WRITE))]
JobsReader = Annotated[Caller, Depends(Needs(Scope.JOBS_READ))]
JobsWriter = Annotated[Caller, Depends(Needs(Scope.JOBS_WRITE))]
UsageReader = Annotated[Caller, Depends(Needs(Scope.USAGE_READ))]
KeysManager = Annotated[Caller, Depends(Needs(Scope.KEYS))]
