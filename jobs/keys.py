"""API keys: how one is made, replaced and ended, and by whom; for the command line and the API alike."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.errors import BadInput, Conflict, NotAllowed, NotFound
from jobs.model import Value
from jobs.ports.tenancy import TenantStore
from jobs.tenancy import KEY_PREFIX, MEMBER_SCOPES, SHOWN_CHARS, ApiKey, RequestLimits, Role, Scope, digest_of

KEY_BYTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest(Value):
    """What a key is wanted for. scopes: none for all that its role, and whoever asks, may.

    expires_s: it is good for so long, None for until it is revoked. limits: at most those of whoever asks.
    """

    name: str = ""
    project: str = ""
    role: Role = Role.MEMBER
    scopes: frozenset[Scope] = frozenset()
    expires_s: float | None = None
    limits: RequestLimits = RequestLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKey(Value):
    """text: the key itself, to be shown once; "" where an earlier run of the same request made it: nobody has it."""

    record: ApiKey
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDesk:
    """Makes, replaces and ends keys for whoever asks, who is in the audit log of it.

    by: the key that asks: it manages its own tenant's, within its own role and scopes. None at the local command line,
    which is the operator's own and manages all. now: by the database's clock.
    """

    store: TenantStore
    now: Callable[[], float]
    actor: str
    by: ApiKey | None = None

    def make(self, key_id: str, random: bytes, asked: KeyRequest, *, tenant: str) -> MadeKey:
        """random: KEY_BYTES. Twice with one id makes one key. Raises BadInput, NotAllowed, NotFound."""
        scopes = scopes_of(asked, self.by)
        self._check_within(asked.role, scopes)
        now = self.now()
        text, key = new_key(key_id, random, tenant=tenant)
        key = key.evolve(
            name=asked.name,
            project=asked.project,
            role=asked.role,
            scopes=scopes,
            created_at=now,
            expires_at=None if asked.expires_s is None else now + asked.expires_s,
            **self._limits(asked).fields,
        )
        return self._once(text, key, lambda: self.store.add_key(key, self.actor))

    def rotate(self, old_id: str, key_id: str, random: bytes, *, overlap_s: float) -> MadeKey:
        """A key in place of another, which ends after the overlap. Raises NotAllowed, NotFound, Conflict."""
        old = self.store.key(old_id, self._tenant)
        self._check_within(old.role, old.scopes)
        text, key = successor(old, key_id, random, now=self.now())
        return self._once(text, key, lambda: self.store.replace_key(key, overlap_s=overlap_s, actor=self.actor))

    def revoke(self, key_id: str) -> ApiKey:
        """It opens nothing from now on. Raises NotAllowed, NotFound."""
        key = self.store.key(key_id, self._tenant)
        self._check_role(key.role)
        return self.store.end_key(key_id, tenant=self._tenant, at=None, actor=self.actor)

    def _limits(self, asked: KeyRequest) -> RequestLimits:
        return asked.limits if self.by is None else asked.limits.within(RequestLimits.of(self.by))

    @property
    def _tenant(self) -> str | None:
        return None if self.by is None else self.by.tenant

    def _check_within(self, role: Role, scopes: frozenset[Scope]) -> None:
        """Nobody hands on more than it has, by a new key or by one in another's place."""
        self._check_role(role)
        if self.by is not None and (more := sorted(scopes - self.by.scopes)):
            raise NotAllowed(reason=f"it lacks the scope {more[0]}, and hands on no more than it has")

    def _check_role(self, role: Role) -> None:
        if self.by is not None and role.rank > self.by.role.rank:
            raise NotAllowed(reason=f"its role is {self.by.role}, and the keys of an {role} are none of its business")

    def _once(self, text: str, key: ApiKey, add: Callable[[], ApiKey]) -> MadeKey:
        try:
            return MadeKey(record=add(), text=text)
        except Conflict:
            # Its id may be taken by an earlier run of this request, which died before it could show its own text.
            if (had := self._had(key)) is None:
                raise
            return MadeKey(record=had, text="")

    def _had(self, key: ApiKey) -> ApiKey | None:
        try:
            return self.store.key(key.id, key.tenant)
        except NotFound:
            return None


def new_key(key_id: str, random: bytes, *, tenant: str) -> tuple[str, ApiKey]:
    """A key and its record, not yet stored and with the least rights; what is kept of one opens nothing."""
    text = KEY_PREFIX + base64.b32encode(random).decode().lower()
    return text, ApiKey(id=key_id, tenant=tenant, digest=digest_of(text), shown=text[:SHOWN_CHARS])


def successor(old: ApiKey, key_id: str, random: bytes, *, now: float) -> tuple[str, ApiKey]:
    """A key in place of another: it may do the same, and is good for as long as the other was made for."""
    text, new = new_key(key_id, random, tenant=old.tenant)
    lifetime_s = None if old.expires_at is None else old.expires_at - old.created_at
    return text, old.evolve(
        id=new.id,
        digest=new.digest,
        shown=new.shown,
        created_at=now,
        expires_at=None if lifetime_s is None else now + lifetime_s,
        revoked_at=None,
        replaces=old.id,
        **RequestLimits.of(old).fields,
    )


def scopes_of(asked: KeyRequest, by: ApiKey | None) -> frozenset[Scope]:
    """What a key may be used for that is asked for so. Raises BadInput, NotAllowed."""
    if asked.role is Role.MEMBER and Scope.KEYS in asked.scopes:
        raise BadInput(source="scopes", reason="keys needs the role admin or operator")
    if asked.scopes:
        return asked.scopes
    usual = MEMBER_SCOPES if asked.role is Role.MEMBER else frozenset(Scope)
    if not (found := usual if by is None else usual & by.scopes):
        raise NotAllowed(reason=f"it has no scope that a {asked.role} may have")
    return found
