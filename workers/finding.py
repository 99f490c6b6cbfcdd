"""Where the doors of a model are: those of the pools that take its requests, wherever their workers live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from jobs.pools import Pool, request_pools
from jobs.ports.live import Door


@dataclass(kw_only=True)
class PoolWays:
    """`workers.front.Ways`. doors_of: of the workers of a pool, by its name. ask: tells whoever keeps the pool at its
    workers that requests come, see `workers.fleet.Fleet.asked`.
    """

    pools: Sequence[Pool]
    doors_of: Callable[[str], Sequence[Door]]
    ask: Callable[[str, bool], float]

    def doors(self, model: str) -> Sequence[Sequence[Door]]:
        return [self.doors_of(pool.name) for pool in self._by_model.get(model, ())]

    def models(self) -> Sequence[str]:
        return [*self._by_model]

    def asked(self, model: str, *, short: bool) -> float:
        """It is the first pool that is asked to grow; the others are there for what it has no room for."""
        pools = self._by_model.get(model)
        return self.ask(pools[0].name, short) if pools else 0.0

    @cached_property
    def _by_model(self) -> dict[str, list[Pool]]:
        models = dict.fromkeys(pool.model for pool in self.pools if pool.takes_requests)
        return {model: request_pools(model, self.pools) for model in models}
