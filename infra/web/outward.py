"""What calls webhooks, put together: the bounded calls, and the seal of the secrets that sign them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.home_secret import home_secret
from infra.seals import AesSeal, seal_key
from infra.web.addresses import read_host
from infra.web.calls import CallPolicy, Calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Outward:
    """calls: to addresses that tenants named. seal: of secrets that must be read again."""

    calls: Calls
    seal: AesSeal


def open_outward(*, key: str, home: Path, timeout_s: float, private_hosts: Sequence[str]) -> Outward:
    """key: the setting `seal_key`; "" for one that follows from the data directory's secret. Raises BadSetting."""
    hosts = frozenset(read_host(host, setting="private_hosts") for host in private_hosts)
    return Outward(
        calls=Calls(policy=CallPolicy(timeout_s=timeout_s, private_hosts=hosts)),
        seal=AesSeal(seal_key(key) if key else home_secret(home)),
    )
