"""Which worker a request goes to: by room first, then to the one that has computed its beginning already. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from jobs.model import Value
from jobs.ports.engine import Prompt, Several
from jobs.requests import Load

LENGTHS = (256, 1024, 4096)
"""Characters of a prompt's beginning that are remembered. Below the first nothing is worth a cache."""
TOKEN_CHARACTERS = 4
"""A prompt of token ids counts as so many characters each."""
SPREAD = 0.25
"""A worker that knows the beginning is taken while it has at most so much more of its seats in use than the emptiest:
one system prompt of everybody's must not fill one worker and leave the others idle."""
KEPT = 8192
"""Beginnings that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Value):
    """A worker that may be asked. rank: of its pool, the least is asked first. load: as last known.

    mine: seats of the requests that this process has there, which the load may not show yet.
    """

    name: str
    load: Load
    rank: int = 0
    mine: int = 0

    @property
    def used(self) -> int:
        """Seats in use or spoken for."""
        return max(self.load.used + self.load.waiting, self.mine)

    @property
    def share(self) -> float:
        """Of its seats in use."""
        return self.used / max(1, self.load.seats)

    def has_room(self, seats: int) -> bool:
        """Whether so many sequences more can begin at once; more than it has altogether need it empty."""
        return self.used + min(seats, self.load.seats) <= self.load.seats


def order(choices: Sequence[Choice], seats: int, known: str | None = None) -> list[str]:
    """The names of those that take requests, in the order in which they are asked.

    Those with room come first, by rank; in a rank the one that knows the beginning (`known`) unless it is much fuller
    than the emptiest, then the emptiest. Those without room follow by what one waits there: they decide themselves.
    """
    open_ = [choice for choice in choices if choice.load.open]
    roomy = [choice for choice in open_ if choice.has_room(seats)]
    emptiest: dict[int, float] = {}
    for choice in roomy:
        emptiest[choice.rank] = min(choice.share, emptiest.get(choice.rank, choice.share))

    def knows(choice: Choice) -> bool:
        return choice.name == known and choice.share <= emptiest[choice.rank] + SPREAD

    with_room = sorted(roomy, key=lambda one: (one.rank, not knows(one), one.share, one.name))
    full = [choice for choice in open_ if not choice.has_room(seats)]
    without = sorted(full, key=lambda one: (one.load.wait_s, one.rank, one.share, one.name))
    return [choice.name for choice in (*with_room, *without)]


def beginnings(prompt: Prompt, salt: str = "") -> tuple[int, ...]:
    """Hashes of a prompt's beginnings, the longest first; none of a short one. salt: whose prefix cache it is."""
    if isinstance(prompt, Several):  # embeddings have no prefix cache
        return ()
    if prompt and isinstance(prompt[0], int):
        units, each = [n for n in LENGTHS if len(prompt) * TOKEN_CHARACTERS >= n], TOKEN_CHARACTERS
        return tuple(hash((salt, tuple(prompt[: n // each]))) for n in reversed(units))
    text = prompt if isinstance(prompt, str) else _head(prompt)
    return tuple(hash((salt, text[:n])) for n in reversed(LENGTHS) if len(text) >= n)


def _head(messages: Sequence[object]) -> str:
    """The messages' beginning as one text: roles and contents, so far as a hash reaches."""
    parts: list[str] = []
    length = 0
    for message in messages:
        for part in message if isinstance(message, tuple) else (str(message),):
            parts.append(part[: LENGTHS[-1]])
            length += len(parts[-1]) + 1
        if length >= LENGTHS[-1]:
            break
    return "\0".join(parts)


@dataclass(slots=True)
class Memory:
    """Which worker served a beginning last; the oldest are forgotten."""

    kept: int = KEPT
    _by_hash: OrderedDict[int, str] = field(default_factory=OrderedDict)

    def known(self, hashes: Sequence[int]) -> str | None:
        """The worker that served the longest of them."""
        return next((self._by_hash[one] for one in hashes if one in self._by_hash), None)

    def note(self, hashes: Sequence[int], name: str) -> None:
        """A worker serves a prompt of these beginnings."""
        for one in hashes:
            self._by_hash[one] = name
            self._by_hash.move_to_end(one)
        while len(self._by_hash) > self.kept:
            self._by_hash.popitem(last=False)
