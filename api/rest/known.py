"""What requests ask for again and again, remembered for two seconds: keys, names of models, prices.

So a revoked key, a new price and a moved alias take hold two seconds later at most.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.rest.auth import Caller, caller_of, check_opens
from api.rest.parts import Parts
from api.rest.threads import in_thread
from jobs.errors import NoPrice, NotFound
from jobs.model import Price, Value
from jobs.naming import names_of, pool_behind
from jobs.pools import resolve_for_requests
from jobs.ports.reading import ModelNotFound, Served
from jobs.tenancy import digest_of

KEPT_S = 2.0
_MOST = 4096
_SHOWN_CHARS = 200
"""Of a model's name that there is none of: a body is as long as its sender likes."""
T = TypeVar("T")


class Recent(Generic[T]):
    """Answers of the last seconds, by key; one question at a time for each key. Used from one event loop."""

    def __init__(self, monotonic: Callable[[], float], kept_s: float = KEPT_S, most: int = _MOST) -> None:
        self._monotonic = monotonic
        self._kept_s = kept_s
        self._most = most
        self._known: OrderedDict[object, tuple[float, T]] = OrderedDict()
        self._asked: dict[object, asyncio.Future[T]] = {}

    async def of(self, key: object, ask: Callable[[], T]) -> T:
        """ask: in a thread, where nothing is known. What it raises is remembered by nobody."""
        found = self._known.get(key)
        if found is not None and found[0] > self._monotonic():
            return found[1]
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.ensure_future(self._ask(key, ask))
        return await asyncio.shield(asked)

    def forget(self, *keys: object) -> None:
        """These, or all; what is being asked now is not remembered either."""
        for memory in (self._known, self._asked):
            for key in keys or [*memory]:
                memory.pop(key, None)

    async def _ask(self, key: object, ask: Callable[[], T]) -> T:
        until = self._monotonic() + self._kept_s  # from before the question: what changes meanwhile is seen in time
        try:
            answer = await in_thread(ask)
        finally:
            wanted = self._asked.get(key) is asyncio.current_task()
            if wanted:
                del self._asked[key]
        if not wanted:
            return answer
        self._known[key] = (until, answer)
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Value):
    """What a name means to a tenant."""

    served: Served
    price: Price


class Known:
    """The app's memory."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._callers: Recent[Caller] = Recent(time.monotonic)
        self._targets: Recent[Target] = Recent(time.monotonic)

    async def caller(self, key: str | None, *, anew: bool = False) -> Caller:
        """Raises KeyRefused; of one that has expired meanwhile too."""
        if anew:
            self._callers.forget(digest_of(key or ""))
        found = await self._callers.of(digest_of(key or ""), lambda: caller_of(self._parts, key))
        check_opens(found.key, self._parts.clock.now())
        return found

    def forget_callers(self) -> None:
        """Keys have changed."""
        self._callers.forget()

    async def target(self, caller: Caller, asked: str) -> Target:
        """Raises ModelNotFound saying what is served, NoPrice."""
        return await self._targets.of((caller.name, asked), lambda: self._target(caller.name, asked))

    def _target(self, tenant: str, asked: str) -> Target:
        parts = self._parts
        pools = [pool for pool in parts.pools() if pool.takes_requests]
        aliases = parts.store.aliases(tenant)
        try:
            pool = pool_behind(asked, aliases, pools, resolve_for_requests)
        except NotFound:
            names = ", ".join(names_of(aliases, pools)) or "no model"
            name = asked if len(asked) <= _SHOWN_CHARS else f"{asked[:_SHOWN_CHARS]}…"
            raise ModelNotFound(name=name, hint=f"Served are: {names}.", param="model") from None
        price = parts.store.price(pool.model)
        if price is None:
            raise NoPrice(model=pool.model)
        return Target(served=parts.reading.served(pool), price=price)
