"""What a closure that may run twice knows of its earlier run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Before:
    """Whether an earlier run of a closure came to its end. It runs again when it was rolled back, and when its commit
    was not answered: what it then finds done was done by itself.
    """

    done: bool = False
