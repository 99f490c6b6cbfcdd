"""Names of topics and consumer groups: the first part is the deployment's, so several share a broker."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.model import Priority


def topic(prefix: str, pool: str, priority: Priority) -> str:
    """`<prefix>.<pool>.<priority>`: where a pool's released tasks lie."""
    return f"{prefix}.{pool}.{priority}"


def topics_of(prefix: str, pools: Sequence[str]) -> dict[str, Priority]:
    """Topic name → priority, for the topics of these pools."""
    return {topic(prefix, pool, priority): priority for pool in pools for priority in Priority}


def group_of(prefix: str, pool: str) -> str:
    """The consumer group of a pool's dispatchers."""
    return f"{prefix}.{pool}"


def dead_topic(prefix: str) -> str:
    """Where messages go that nobody can read, and submissions that are refused."""
    return f"{prefix}.dead"


def ingress_topics(prefix: str, tenants: Sequence[str]) -> dict[str, str]:
    """Topic name → tenant, of the topics on which other systems submit jobs."""
    return {f"{prefix}.submit.{tenant}": tenant for tenant in tenants}


def ingress_group(prefix: str) -> str:
    """The consumer group of whoever takes submissions."""
    return f"{prefix}.submit"
