"""What would ordering rows gain? Rows that begin alike share prefix-cache blocks if they run one after another.

The prefixes form a tree, in levels: at each level every row has a number that is equal for rows with equal prefixes,
and the length of that prefix. In sorted order a row finds cached what it shares with the row before it (a depth-first
walk of the tree, which is the optimum for any cache that holds the longest prompt); as the rows stand it finds what it
happens to share with its neighbour. The difference, in whole blocks, is the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from jobs.plan import PlanPolicy

_MOST_LEVELS = 12
_BORDER_LEVELS = 2


class Level(NamedTuple):
    """keys: int64, equal for rows with an equal prefix; chars: how long that prefix is."""

    keys: pa.Array
    chars: pa.Array


class Tree(NamedTuple):
    """levels: from the coarsest; sort_by: the values whose order groups all levels at once; head: chars of the prefix
    that all rows share anyway.
    """

    levels: Sequence[Level]
    sort_by: pa.Array
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """shared_blocks: blocks that rows find cached in sorted order (`gained_blocks` of them only because of it)."""

    shared_blocks: int = 0
    gained_blocks: int = 0
    order: pa.Array | None = None
    borders: tuple[Sequence[int], ...] = ()


def column_tree(columns: Sequence[pa.Array], lengths: Sequence[pa.Array], leads: Sequence[int]) -> Tree | None:
    """A level for each column, in the order in which the prompt mentions them; None if no value repeats.

    leads: fixed characters before each column.
    """
    levels: list[Level] = []
    keys: Any = None
    chars: Any = None
    for column, length, lead in zip(columns[:_MOST_LEVELS], lengths, leads, strict=False):
        codes = _ranks(column)
        if codes is None:
            break
        if keys is not None:
            most = pc.max(codes).as_py() + 1
            codes = _ranks(pc.add(pc.multiply(keys, most), codes))
            if codes is None:
                break
        keys = codes
        chars = pc.add(length if chars is None else pc.add(chars, length), lead)
        levels.append(Level(keys, chars))
    return Tree(levels, keys, leads[0]) if levels else None


def _ranks(column: pa.Array) -> pa.Array | None:
    """Dense ranks from 0 as int64, null first; None where no value repeats, or the type has no equality (a list)."""
    if pa.types.is_null(column.type):
        return pa.repeat(pa.scalar(0, pa.int64()), len(column))
    try:
        ready = pa.types.is_dictionary(column.type)
        coded = column if ready else column.dictionary_encode()
        if not ready and len(coded.dictionary) + bool(coded.null_count) >= len(column):
            return None  # before it is sorted: most prompts begin with something of their own
        order = pc.rank(coded.dictionary, sort_keys="ascending", tiebreaker="dense")
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    taken = order.cast(pa.int64()).take(coded.indices)
    ranks = pc.fill_null(taken, 0)
    # With no null in it the ranks begin at 1: made dense, so that their maximum counts the values.
    return pc.subtract(ranks, 1) if not coded.null_count else ranks


def text_tree(texts: pa.Array, policy: PlanPolicy) -> Tree | None:
    """Levels at 1, 2, 4, … cache blocks of ready-made prompts; None if no two begin alike for a whole block."""
    length = pc.utf8_length(texts).cast(pa.int64())
    longest = pc.max(length).as_py() or 0
    chars = int(policy.block_tokens / policy.tokens_per_char)
    levels: list[Level] = []
    while len(levels) < 2 * _MOST_LEVELS:
        codes = pc.utf8_slice_codeunits(texts, 0, chars).dictionary_encode()
        if len(codes.dictionary) == len(texts):
            break
        levels.append(Level(codes.indices.cast(pa.int64()), pc.min_element_wise(length, chars)))
        if chars >= longest:
            break
        chars *= 2
    return Tree(levels, texts, 0) if levels else None


def weigh(tree: Tree | None, tokens: int, policy: PlanPolicy) -> Weighed:
    """tokens: of all the rows together. `order` is None where ordering gains less than the policy asks for."""
    if tree is None or len(tree.sort_by) < 2 or not tokens:
        return Weighed()
    now = _shared(tree, None, policy)
    order = pc.sort_indices(tree.sort_by)
    best = _shared(tree, order, policy)
    gained = max(0, best - now)
    if gained * policy.block_tokens < policy.min_gain * tokens:
        return Weighed(shared_blocks=now)
    borders = tuple(_borders(level.keys.take(order)) for level in tree.levels[:_BORDER_LEVELS])
    return Weighed(shared_blocks=best, gained_blocks=gained, order=order, borders=borders)


def _shared(tree: Tree, order: pa.Array | None, policy: PlanPolicy) -> int:
    """Blocks beyond the common head that rows share with the row before them, in this order."""
    total = 0
    below = pa.scalar(_blocks_of(tree.head, policy), pa.int64())
    for keys, chars in tree.levels:
        blocks = _blocks(chars, policy)
        more = pc.subtract(blocks, below)
        placed, gains = (keys, more) if order is None else (keys.take(order), more.take(order))
        same = pc.equal(placed.slice(1), placed.slice(0, len(placed) - 1))
        total += pc.sum(gains.slice(1).filter(same)).as_py() or 0
        below = blocks
    return total


def _blocks(chars: pa.Array, policy: PlanPolicy) -> pa.Array:
    return pc.floor(pc.multiply(chars, policy.tokens_per_char / policy.block_tokens)).cast(pa.int64())


def _blocks_of(chars: int, policy: PlanPolicy) -> int:
    return int(chars * policy.tokens_per_char / policy.block_tokens)


def _borders(keys: pa.Array) -> list[int]:
    changes = pc.indices_nonzero(pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)))
    places: list[int] = pc.add(changes.cast(pa.int64()), 1).to_pylist()
    return places
