"""How long will the prompts be? From the lengths of the columns they mention, calibrated on some rendered rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from infra.data.endpoints import MESSAGE_TOKENS, NOTHING, REPLY_TOKENS, outline
from infra.data.frozen import FrozenJob, max_tokens
from infra.data.read import Rows
from infra.data.values import is_text
from infra.data.vary import vary_columns
from infra.data.weigh import Tree, column_tree, text_tree
from jobs.plan import PlanPolicy
from jobs.ports.engine import Prompt
from jobs.prompts import messages_of, plain_text

CALIBRATED_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """tokens: estimated input tokens by row, int64; output_tokens: of all rows; tree: None if no order can gain."""

    tokens: pa.Array
    output_tokens: int
    tree: Tree | None


def survey(frozen: FrozenJob, rows: Rows, policy: PlanPolicy) -> Survey:
    """Estimate some rows of which the mentioned columns have been read."""
    if frozen.template is None:
        return _survey_bodies(frozen, rows, policy)
    lengths = {name: byte_lengths(column) for name, column in rows.columns.items()}
    chars = _calibrated(frozen, rows, lengths)
    messages = len(frozen.template.pieces) if frozen.template.chat else 0
    extra = MESSAGE_TOKENS * messages + (REPLY_TOKENS if messages else 0)
    tokens = pc.add(pc.ceil(pc.multiply(chars, policy.tokens_per_char)), extra).cast(pa.int64())
    each = (
        0 if frozen.job.spec.model_kind == "embedding" else max_tokens(frozen.job.spec.sampling, policy.output_tokens)
    )
    return Survey(tokens=tokens, output_tokens=each * rows.size, tree=_tree(frozen, rows, lengths))


def _tree(frozen: FrozenJob, rows: Rows, lengths: Mapping[str, pa.Array]) -> Tree | None:
    """By the columns before the first varied one: the copies of a row stay neighbours."""
    template = frozen.template
    assert template is not None
    leading: list[str] = []
    for name in template.columns:
        if name in frozen.job.spec.vary:
            break
        leading.append(name)
    if not leading:
        return None
    return column_tree([rows.columns[n] for n in leading], [lengths[n] for n in leading], template.leads())


def byte_lengths(column: pa.Array) -> pa.Array:
    """UTF-8 bytes of each value, int64; 0 for types whose text is short (numbers, dates) or has no cheap length."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return pc.fill_null(byte_lengths(column.dictionary).take(column.indices), 0)
    if is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
    return pa.repeat(pa.scalar(0, pa.int64()), len(column))


def _calibrated(frozen: FrozenJob, rows: Rows, lengths: Mapping[str, pa.Array]) -> pa.Array:
    """Characters of each prompt: a straight line through some rendered rows, over the bytes of their columns."""
    total: pa.Array = pa.repeat(pa.scalar(0, pa.int64()), rows.size)
    for length in lengths.values():
        total = pc.add(total, length)
    places = pa.array(range(0, rows.size, -(-rows.size // CALIBRATED_ROWS)), pa.int64())
    prompts = render_some(frozen, rows, places)
    points = [(x, _chars(p)) for x, p in zip(total.take(places).to_pylist(), prompts, strict=True) if p is not None]
    slope, base = _line(points)
    return pc.max_element_wise(pc.add(pc.multiply(total, slope), base), 0.0)


def render_some(frozen: FrozenJob, rows: Rows, places: pa.Array) -> list[Prompt | None]:
    """The prompts of the rows at these places; None where a row cannot be rendered."""
    assert frozen.template is not None
    columns = {name: column.take(places) for name, column in rows.columns.items()}
    columns |= vary_columns(frozen.job.spec, rows.rows.take(places))
    return frozen.template.render(columns, len(places), {})[0]


def _line(points: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Least squares; slope 1 where the lengths do not differ."""
    if not points:
        return 1.0, 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 1.0
    slope = max(0.0, slope)
    return slope, mean_y - slope * mean_x


def _chars(prompt: Prompt) -> int:
    return sum(len(message[1]) for message in messages_of(prompt)) or len(plain_text(prompt))


def _survey_bodies(frozen: FrozenJob, rows: Rows, policy: PlanPolicy) -> Survey:
    texts: list[str] = []
    tokens: list[int] = []
    output = 0
    embeds = frozen.job.spec.model_kind == "embedding"
    each = 0 if embeds else max_tokens(frozen.job.spec.sampling, policy.output_tokens)
    for body in rows.columns["body"].to_pylist():
        found = NOTHING if body is None else outline(orjson.loads(body), frozen.job.spec.endpoint)
        texts.append(found.text)
        tokens.append(found.input_tokens(policy.tokens_per_char))
        output += found.answers * (found.max_tokens or each)
    tree = text_tree(pa.array(texts, pa.string()), policy)
    return Survey(tokens=pa.array(tokens, pa.int64()), output_tokens=output, tree=tree)
