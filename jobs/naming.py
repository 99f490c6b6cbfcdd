"""Which served model a name means: its own, or an alias of the tenant's, or one that is for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jobs.errors import NotFound
from jobs.pools import Pool, resolve_pool
from jobs.tenancy import Alias


def pool_behind(
    asked: str,
    aliases: Iterable[Alias],
    pools: Sequence[Pool],
    resolve: Callable[[str, Sequence[Pool]], Pool] = resolve_pool,
) -> Pool:
    """aliases: those that the tenant sees. A model's own name means that model, whatever is an alias. resolve: which of
    the model's pools; of those for jobs unless said otherwise (`jobs.pools.resolve_for_requests`).

    Raises NotFound naming what is asked for and what can be.
    """
    seen = list(aliases)
    if any(pool.model == asked for pool in pools):
        return resolve(asked, pools)
    found = sorted((alias for alias in seen if alias.alias == asked), key=lambda alias: alias.tenant == "")
    if not found:
        names = ", ".join(names_of(seen, pools)) or "no model"
        raise NotFound(kind="model", name=asked, hint=f"Served here: {names}.")
    return resolve(found[0].model, pools)


def names_of(aliases: Iterable[Alias], pools: Sequence[Pool]) -> list[str]:
    """Every name that a tenant may ask for, the models' own first."""
    models = list(dict.fromkeys(pool.model for pool in pools))
    return models + sorted({alias.alias for alias in aliases if alias.model in models} - {*models})
