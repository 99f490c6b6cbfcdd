"""Every URI by its scheme: one object port over a local folder and S3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from infra.objects.local import LocalObjects, scheme_of
from jobs.errors import Refused
from jobs.ports.objects import ObjectFacts, Objects

Opener = Callable[[], Objects]


@dataclass(slots=True, kw_only=True)
class RoutedObjects:
    """openers: by scheme; each is asked once, when the first of its URIs comes. Plain paths are local files."""

    openers: Mapping[str, Opener] = field(default_factory=lambda: {"file": LocalObjects})
    _opened: dict[str, Objects] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def of(self, uri: str) -> Objects:
        """The adapter for a URI. Raises Refused naming the scheme and those there are."""
        scheme = scheme_of(uri)
        with self._lock:
            if scheme not in self._opened:
                if scheme not in self.openers:
                    known = ", ".join(f"{name}://" for name in self.openers)
                    reason = f"{uri} has the scheme {scheme}://, and only {known} and plain paths can be used"
                    raise Refused(reason=reason)
                self._opened[scheme] = self.openers[scheme]()
            return self._opened[scheme]

    def put_if_absent(self, uri: str, data: bytes) -> ObjectFacts:
        return self.of(uri).put_if_absent(uri, data)

    def put_many(self, items: Sequence[tuple[str, bytes]]) -> list[ObjectFacts]:
        found: dict[str, ObjectFacts] = {}
        for scheme in dict.fromkeys(scheme_of(uri) for uri, _ in items):
            mine = [item for item in items if scheme_of(item[0]) == scheme]
            facts = self.of(mine[0][0]).put_many(mine)
            found |= {uri: one for (uri, _), one in zip(mine, facts, strict=True)}
        return [found[uri] for uri, _ in items]

    def put_file_if_absent(self, uri: str, local: Path) -> ObjectFacts:
        return self.of(uri).put_file_if_absent(uri, local)

    def replace(self, uri: str, data: bytes) -> ObjectFacts:
        return self.of(uri).replace(uri, data)

    def publish(self, source: str, target: str) -> None:
        self.publish_many([(source, target)])

    def publish_many(self, pairs: Sequence[tuple[str, str]]) -> None:
        for source, target in pairs:
            if scheme_of(source) != scheme_of(target):
                raise Refused(reason=f"{source} cannot be published as {target}: the two lie in different stores")
        for scheme in {scheme_of(target) for _, target in pairs}:
            mine = [pair for pair in pairs if scheme_of(pair[1]) == scheme]
            self.of(mine[0][1]).publish_many(mine)

    def read(self, uri: str) -> bytes:
        return self.of(uri).read(uri)

    def open(self, uri: str) -> BinaryIO:
        return self.of(uri).open(uri)

    def facts(self, uri: str) -> ObjectFacts | None:
        return self.of(uri).facts(uri)

    def list(self, prefix: str, *, unfinished: bool = False) -> Iterator[ObjectFacts]:
        return self.of(prefix).list(prefix, unfinished=unfinished)

    def delete(self, uri: str) -> None:
        self.of(uri).delete(uri)

    def delete_many(self, uris: Sequence[str]) -> None:
        for scheme in {scheme_of(uri) for uri in uris}:
            mine = [uri for uri in uris if scheme_of(uri) == scheme]
            self.of(mine[0]).delete_many(mine)

    def sync(self, folder: str) -> None:
        self.of(folder).sync(folder)

    def link(self, uri: str, seconds: int) -> str | None:
        return self.of(uri).link(uri, seconds)

    def scratch(self, near: str) -> Path:
        return self.of(near).scratch(near)
