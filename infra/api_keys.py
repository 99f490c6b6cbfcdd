"""API keys as they are made: 160 random bits, shown once; what is kept of one opens nothing."""

from __future__ import annotations

import base64
import secrets

from jobs.ports.clock import Ids
from jobs.tenancy import KEY_PREFIX, SHOWN_CHARS, ApiKey, digest_of

_BYTES = 20


def new_key(ids: Ids, *, tenant: str) -> tuple[str, ApiKey]:
    """A key and its record, not yet stored and with the least rights: evolve it, store it, show the key, forget it."""
    text = KEY_PREFIX + base64.b32encode(secrets.token_bytes(_BYTES)).decode().lower()
    return text, ApiKey(id=ids.new("key_"), tenant=tenant, digest=digest_of(text), shown=text[:SHOWN_CHARS])


def successor(ids: Ids, old: ApiKey, *, now: float) -> tuple[str, ApiKey]:
    """A key in place of another: it may do the same, and is good for as long as the other was made for."""
    text, new = new_key(ids, tenant=old.tenant)
    lifetime_s = None if old.expires_at is None else old.expires_at - old.created_at
    return text, new.evolve(
        name=old.name,
        project=old.project,
        role=old.role,
        scopes=old.scopes,
        created_at=now,
        expires_at=None if lifetime_s is None else now + lifetime_s,
        replaces=old.id,
    )
