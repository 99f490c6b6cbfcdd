"""What the fake engine answers: text, vectors and token counts as pure functions of the request."""

from __future__ import annotations

import math
from array import array
from hashlib import blake2b, shake_128

from jobs.ports.engine import Prompt, Several
from jobs.prompts import messages_of

CHARS_PER_TOKEN = 4
BLOCK_TOKENS = 16
_WORDS = (
    "amber birch cedar delta ember fjord grove harbor inlet juniper kelp lagoon meadow north ocean pebble quartz "
    "river sable timber umber valley willow xenon yarrow zephyr"
).split()
_CORPUS = " ".join(_WORDS[(i * i + 3 * i) % len(_WORDS)] for i in range(4096))
_LEAST_TOKENS, _SPREAD_TOKENS = 8, 40


def tokens_of(text: str) -> int:
    """Token count of a text: about four characters each, at least one."""
    return max(1, -(-len(text) // CHARS_PER_TOKEN))


def count_prompt(prompt: Prompt, tools: str | None = None) -> tuple[int, int]:
    """(input tokens, cached tokens). What comes before the last message counts as cached, in whole blocks."""
    if isinstance(prompt, str):
        return tokens_of(prompt), 0
    if isinstance(prompt, Several):
        return sum([count_prompt(text)[0] for text in prompt.inputs]), 0
    if isinstance(prompt[0], int):
        return len(prompt), 0
    counts = [tokens_of(part[1] if len(part) == 2 else part[1] + part[2]) + 2 for part in messages_of(prompt)]
    shared = sum(counts[:-1]) + (tokens_of(tools) if tools else 0)
    return shared + counts[-1], shared - shared % BLOCK_TOKENS


def digest_of(text: str, flavour: bytes) -> int:
    """A number that stands for this prompt under these parameters."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8, key=flavour).digest(), "little")


def answer(digest: int) -> str:
    """A text of 8 to 47 tokens."""
    tokens = _LEAST_TOKENS + digest % _SPREAD_TOKENS
    start = (digest >> 16) % (len(_CORPUS) // 2)
    text = f"fake {digest:016x} {_CORPUS[start : start + CHARS_PER_TOKEN * tokens]}"
    return text[: CHARS_PER_TOKEN * tokens].rstrip() + "."


def cut(text: str, max_tokens: int | None) -> tuple[str, bool]:
    """The text within the limit, and whether it had to be cut."""
    if max_tokens is None or tokens_of(text) <= max_tokens:
        return text, False
    return text[: max_tokens * CHARS_PER_TOKEN], True


def unit_vector(text: str, dims: int) -> array[float]:
    """A vector of length 1 that stands for the text."""
    values = [byte - 127.5 for byte in shake_128(text.encode("utf-8", "replace")).digest(dims)]
    norm = math.sqrt(sum([v * v for v in values]))
    return array("f", [v / norm for v in values])
