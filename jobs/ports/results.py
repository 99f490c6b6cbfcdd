"""The results port: rows of a job read back, while it runs (what is committed) and after its end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from jobs.model import Job


class Results(Protocol):
    """Memory: a few thousand rows."""

    def rows(
        self, job: Job, *, outcomes: Collection[str] | None = None, limit: int | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """Rows as plain values. outcomes: only those with one of these."""
        ...

    def jsonl(self, job: Job, *, outcomes: Collection[str] | None = None, which: str = "all") -> Iterator[bytes]:
        """OpenAI's batch lines, each with its newline; the same bytes each time once the job is at its end.

        which: "output", "error" or "all".
        """
        ...
