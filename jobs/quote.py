"""What a job would cost, how long it would take and how much prefix reuse it has, before any engine starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.model import Price, Usage, Value
from jobs.ports.engine import Prompt
from jobs.ports.intake import SampledPrompts, Tokenizer
from jobs.pricing import amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote(Value):
    """usage, amount_pico: for the whole job, output at its limit (the most it can be). seconds: None if the model's
    speed was never measured. cached_share: of all input tokens. exact_tokens: counted by the model's own tokenizer.
    """

    rows: int
    sampled: int
    faults: int
    usage: Usage
    amount_pico: int
    currency: str
    cached_share: float
    exact_tokens: bool
    seconds: float | None
    first_row: int | None
    first_prompt: Prompt | None


def quote(
    *,
    rows: int,
    sample: SampledPrompts,
    tokenizer: Tokenizer,
    price: Price,
    context: int,
    block_size: int,
    speed: tuple[float, float] | None,
    embedding: bool = False,
) -> Quote:
    """Scale a sample up to all rows. context: tokens a row may have in all, the limit where none is asked for.

    embedding: no output tokens and no prefix cache.
    """
    ids = [tokenizer.ids(prompt) for prompt in sample.prompts]
    lengths = [len(row) for row in ids]
    hits = 0 if embedding else prefix_hits(ids, block_size)
    limits = [
        max(0, min(context if asked is None else asked, context - length))
        for asked, length in zip(sample.max_tokens, lengths, strict=True)
    ]
    scale = rows / len(ids) if ids else 0.0
    usage = Usage(
        rows=rows,
        input_tokens=round((sum(lengths) - hits) * scale),
        cached_tokens=round(hits * scale),
        output_tokens=0 if embedding else round(sum(limits) * scale),
    )
    return Quote(
        rows=rows,
        sampled=len(ids) + sample.faults,
        faults=sample.faults,
        usage=usage,
        amount_pico=sum(amounts(price, usage).values()),
        currency=price.currency,
        cached_share=hits / sum(lengths) if sum(lengths) else 0.0,
        exact_tokens=tokenizer.exact,
        seconds=rows / speed[0] if speed else None,
        first_row=sample.rows[0] if sample.rows else None,
        first_prompt=sample.prompts[0] if sample.prompts else None,
    )


def prefix_hits(prompts: Sequence[Sequence[int]], block_size: int) -> int:
    """Tokens that a prefix cache with room for all serves, in this order: whole leading blocks seen before.

    The last token of a prompt is always computed, so a prompt of n tokens has (n - 1) // block_size blocks to hit; it
    leaves n // block_size behind for longer ones.
    """
    seen: set[int] = set()
    hits = 0
    for prompt in prompts:
        state, leading = 0, True
        for start in range(0, len(prompt) - block_size + 1, block_size):
            state = hash((state, *prompt[start : start + block_size]))
            leading = leading and state in seen and start + block_size < len(prompt)
            hits += block_size if leading else 0
            seen.add(state)
    return hits
