"""Hints for a name that was not found: the nearest known one, and the others."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one, or None if none does."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def known_names(name: str, known: Iterable[str], *, most: int = 20) -> str:
    """The hint of a NotFound, such as: Did you mean smollm2? Known: fake, minilm, smollm2."""
    names = sorted(known)
    near = nearest(name, names)
    listed = ", ".join(names[:most]) + (", …" if len(names) > most else "")
    return " ".join(filter(None, (f"Did you mean {near}?" if near else "", f"Known: {listed}." if names else "")))
