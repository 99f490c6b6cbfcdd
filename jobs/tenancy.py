"""Who may do what: tenants, their API keys, the storage they were granted, and the rules over them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from jobs.errors import BadInput
from jobs.model import Value

TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MODEL_NAME = re.compile(r"[A-Za-z0-9._/:@-]{1,200}")
"""What a model may be called, by itself and by others."""
DEFAULT_TENANT = "default"
ITSELF = "nightmill"
"""The actor of what nobody asked for: the default tenant, the shipped models' example prices."""
KEY_PREFIX = "nm_"
SCHEMES = frozenset({"s3", "file"})
"""Of storage that can be granted."""
_WILD = re.compile(r"[*?\[]")
_HIDING = re.compile(r"%2e|%2f|%5c|%00|[\\\x00-\x1f\x7f]", re.IGNORECASE)
SHOWN_CHARS = 10
"""So many characters of a key, `nm_` included, are kept to recognise it by; they open nothing."""


class Role(StrEnum):
    """What a key's holder is. An operator runs the platform; the others see their own tenant only."""

    MEMBER = "member"
    ADMIN = "admin"
    OPERATOR = "operator"

    @property
    def rank(self) -> int:
        """A role has nothing to say about the keys of one with a larger rank."""
        return list(Role).index(self)


class Scope(StrEnum):
    """What a key may be used for."""

    FILES_READ = "files.read"
    FILES_WRITE = "files.write"
    JOBS_READ = "jobs.read"
    JOBS_WRITE = "jobs.write"
    INFERENCE = "inference"
    USAGE_READ = "usage.read"
    KEYS = "keys"


LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
"""Fields of a key's and a tenant's record."""
MEMBER_SCOPES = frozenset(Scope) - {Scope.KEYS}
"""What a key has unless it is made with less; `keys` needs the role of an admin or operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits(Value):
    """What a key or a tenant may of interactive requests: whole numbers from 1, None for no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    @classmethod
    def of(cls, record: ApiKey | Tenant) -> RequestLimits:
        return cls(**{field: getattr(record, field) for field in LIMITS})

    def within(self, other: RequestLimits) -> RequestLimits:
        """The narrower of both."""
        pairs = {field: (getattr(self, field), getattr(other, field)) for field in LIMITS}
        return RequestLimits(**{f: min((n for n in pair if n is not None), default=None) for f, pair in pairs.items()})

    @property
    def fields(self) -> dict[str, int | None]:
        """As records have them."""
        return {field: getattr(self, field) for field in LIMITS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant(Value):
    """Who pays. enqueued_tokens_limit: tokens of all batch jobs that wait or run, at most; None for no limit.

    requests_per_minute, tokens_per_minute, concurrent_requests: of interactive requests, by all its keys together; None
    for no limit. disabled_at: its keys open nothing since then, or None.
    """

    name: str
    title: str = ""
    enqueued_tokens_limit: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    created_at: float = 0.0
    disabled_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(Value):
    """A key's record; the key itself is shown once and never stored.

    digest: sha256 of the whole key, hex: keys have 160 random bits, so no slow hash is needed. shown: its beginning.
    project: postings of what it submits carry it. expires_at, revoked_at: it opens nothing from then on.
    replaces: the key that a rotation made this one for. requests_per_minute, tokens_per_minute, concurrent_requests: of
    its interactive requests, None for no limit of its own.
    """

    id: str
    tenant: str
    digest: str
    shown: str
    name: str = ""
    project: str = ""
    role: Role = Role.MEMBER
    scopes: frozenset[Scope] = MEMBER_SCOPES
    created_at: float = 0.0
    expires_at: float | None = None
    revoked_at: float | None = None
    replaces: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    def opens(self, now: float) -> bool:
        """Whether it is good at this time."""
        ends = [at for at in (self.expires_at, self.revoked_at) if at is not None]
        return now < min(ends, default=float("inf"))

    def may(self, scope: Scope) -> bool:
        """Whether it may be used for this."""
        return scope in self.scopes and (scope is not Scope.KEYS or self.role is not Role.MEMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Value):
    """An operator's word that a tenant may read, and perhaps write, everything below a storage prefix.

    prefix: a URI that ends in "/".
    """

    tenant: str
    prefix: str
    write: bool = False
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(Value):
    """Another name of a served model, for one tenant or (tenant "") for all."""

    alias: str
    model: str
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent(Value):
    """Something that was done to keys, roles, grants or prices, or read by an operator. id: in order of writing.

    actor: a key's id, or "cli:USER". subject: what it was done to. detail: what changed, never a secret.
    """

    action: str
    actor: str
    tenant: str
    subject: str
    detail: str = ""
    at: float = 0.0
    id: int = 0


def digest_of(key: str) -> str:
    """What is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def covered(uri: str, grants: Iterable[Grant], *, write: bool = False) -> bool:
    """Whether a grant opens the URI, compared as text, case and all.

    A URI that could mean another place than it says is covered by none: a path that climbs, has empty or hidden-encoded
    segments, or characters that no honest name needs. A glob is covered where its part before the first wildcard is.
    """
    if _doubtful(uri):
        return False
    found = [grant for grant in grants if uri.startswith(grant.prefix) and not _unfit(grant.prefix)]
    return any(grant.write or not write for grant in found)


def grant_prefix(text: str) -> str:
    """What an operator typed, as it is stored: an `s3://` or `file:///` URI that ends in "/". Raises BadInput."""
    prefix = text if text.endswith("/") else f"{text}/"
    if reason := _unfit(prefix):
        raise BadInput(source=text, reason=f"it cannot be granted: {reason}")
    return prefix


def _unfit(prefix: str) -> str:
    """What is wrong with a prefix, "" for nothing."""
    scheme, _, path = prefix.partition("://")
    if scheme not in SCHEMES:
        return "write s3://BUCKET/FOLDER/ or file:///FOLDER/"
    if not prefix.endswith("/") or not path.strip("/"):
        return "it is a whole store, not a bucket or a folder of it"
    if _doubtful(prefix):
        return "it climbs, has an empty part, or a character that hides where it leads"
    return "it has a wildcard" if _WILD.search(path) else ""


def _doubtful(uri: str) -> bool:
    scheme, found, path = uri.partition("://")
    parts = path.split("/")
    inner = parts[1:-1] if scheme == "file" else parts[:-1]  # file:///a: no host; a folder may end in "/"
    return (
        not found
        or "" in inner
        or (scheme == "file" and parts[0] != "")
        or any(part in {".", ".."} or _HIDING.search(part) for part in parts)
    )
