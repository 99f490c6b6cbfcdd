"""Token ids of rendered chats, with the segments between special tokens remembered.

A tokenizer cuts a text at its special tokens before it does anything else, so the ids of the pieces, put together, are
the ids of the whole; rows that share a system message then pay for it once. Whether that holds for a tokenizer is for
the caller to verify (`vllm_prompts`): a pre-tokenizer may treat the first piece of a text unlike the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

EncodeBatch = Callable[[Sequence[str]], Sequence[Sequence[int]]]
SEEN_ONCE = 4096
"""How many segments that came once are kept in mind, by hash; what comes again is remembered with its ids."""


class SegmentMemo:
    """Encodes texts by their segments.

    encode: token ids of texts, without special tokens added. specials: the ids of the tokens to cut at.
    max_chars: text remembered at most; its ids take about ten bytes a character.
    """

    def __init__(self, encode: EncodeBatch, specials: Mapping[str, int], max_chars: int = 2_000_000) -> None:
        self._encode = encode
        self._specials = specials
        longest_first = sorted(specials, key=len, reverse=True)
        self._cut = re.compile(f"({'|'.join(map(re.escape, longest_first))})")
        self._max_chars = max_chars
        self._chars = 0
        self._known: dict[str, Sequence[int]] = {}
        self._seen: dict[int, None] = {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text."""
        pieces = [self._cut.split(text) for text in texts]
        ids = self._segment_ids({segment for parts in pieces for segment in parts[::2] if segment})
        return [self._join(parts, ids) for parts in pieces]

    def _segment_ids(self, segments: set[str]) -> dict[str, Sequence[int]]:
        ids: dict[str, Sequence[int]] = {}
        new: list[str] = []
        for segment in segments:
            known = self._known.pop(segment, None)
            if known is None:
                new.append(segment)
            else:
                ids[segment] = self._known[segment] = known  # last in the order: the least recently used goes first
        for segment, encoded in zip(new, self._encode(new) if new else (), strict=True):
            ids[segment] = encoded
            self._remember(segment, encoded)
        return ids

    def _remember(self, segment: str, ids: Sequence[int]) -> None:
        mark = hash(segment)
        if mark not in self._seen:
            self._seen[mark] = None
            if len(self._seen) > SEEN_ONCE:
                del self._seen[next(iter(self._seen))]
            return
        self._known[segment] = ids
        self._chars += len(segment)
        while self._chars > self._max_chars:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._chars -= len(oldest)

    def _join(self, parts: Sequence[str], ids: Mapping[str, Sequence[int]]) -> list[int]:
        """Even places are segments, odd ones the special tokens between them."""
        joined: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                joined.append(self._specials[part])
            elif part:
                joined += ids[part]
        return joined
