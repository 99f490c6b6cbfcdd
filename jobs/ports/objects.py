"""The object port: immutable files by URI. `file:///…` (or a plain path) now; `s3://` behind the same calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from jobs.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFacts(Value):
    """stamp: "mtime_ns:<n>" or "etag:<text>"; changes when the object does."""

    uri: str
    size: int
    stamp: str


class Objects(Protocol):
    """Raises StorageFull, NotFound, Exists. Puts and `replace` are durable (file and folder synced) when they return.

    A name from `publish` and a deletion are durable once the folder is synced: a job has thousands of parts, and each
    sync takes milliseconds.
    """

    def put_if_absent(self, uri: str, data: bytes) -> ObjectFacts:
        """Write the whole object or nothing. The same bytes again are fine; others raise Exists."""
        ...

    def put_many(self, items: Sequence[tuple[str, bytes]]) -> list[ObjectFacts]:
        """As `put_if_absent` for each (URI, data), several at once where that helps. Raises the first error."""
        ...

    def put_file_if_absent(self, uri: str, local: Path) -> ObjectFacts:
        """As `put_if_absent`, moving a finished local file to its place."""
        ...

    def replace(self, uri: str, data: bytes) -> ObjectFacts:
        """Write atomically, over whatever was there."""
        ...

    def publish(self, source: str, target: str) -> None:
        """Give an object a second name in one step. Done before with the same content: fine; other: Exists."""
        ...

    def publish_many(self, pairs: Sequence[tuple[str, str]]) -> None:
        """As `publish` for each (source, target), several at once where each takes its time."""
        ...

    def read(self, uri: str) -> bytes: ...

    def open(self, uri: str) -> BinaryIO:
        """A seekable reader, for Parquet."""
        ...

    def facts(self, uri: str) -> ObjectFacts | None:
        """None if there is no such object."""
        ...

    def list(self, prefix: str, *, unfinished: bool = False) -> Iterator[ObjectFacts]:
        """Objects below a folder URI, sorted by URI.

        unfinished: also what writers there have begun, or left when they died; only a sweeper wants these.
        """
        ...

    def delete(self, uri: str) -> None:
        """No error if it is not there."""
        ...

    def delete_many(self, uris: Sequence[str]) -> None:
        """As `delete` for each, several at once where each takes its time."""
        ...

    def sync(self, folder: str) -> None:
        """Make what was published to and deleted from this folder durable."""
        ...

    def link(self, uri: str, seconds: int) -> str | None:
        """A URL by which anybody may read the object for so long; None where the store gives none."""
        ...

    def scratch(self, near: str) -> Path:
        """A new local file name from which `put_file_if_absent(near, …)` is one rename where that is possible."""
        ...
