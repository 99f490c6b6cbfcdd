"""All JSONL files of an input: their lines, and their ids over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from infra.data.ids import IdCheck
from infra.data.lines import LineReader, check_lines
from jobs.errors import BadInput
from jobs.filing import LineError
from jobs.model import InputFile
from jobs.ports.objects import ObjectFacts, Objects


def line_files(
    objects: Objects, source: str, found: Sequence[ObjectFacts], reader: LineReader, scratch: Path
) -> list[InputFile]:
    """Every line of the files checked, and that no custom_id is there twice. Raises BadInput, with `lines`."""
    names = _LineNames()
    expected = sum(facts.size for facts in found) // 200  # a short request has about 200 bytes
    with IdCheck(source=source, what="custom_id", place=names.place, expected=expected, scratch=scratch) as check:
        ids = _Batched(check)
        files = []
        for facts in found:
            names.begin(facts.uri, several=len(found) > 1)
            files.append(check_lines(objects, facts, reader=reader, note_id=partial(names.note, ids)))
        ids.flush()
        try:
            check.finish()
        except BadInput as error:
            raise BadInput(**error.data, lines=tuple(names.repeated(*one) for one in error.data["again"])) from None
    return files


class _Batched:
    """Turns ids one by one into batches for the check."""

    def __init__(self, check: IdCheck) -> None:
        self._check = check
        self._ids: list[str] = []
        self._places: list[int] = []

    def add(self, custom_id: str, place: int) -> None:
        self._ids.append(custom_id)
        self._places.append(place)
        if len(self._ids) >= 1 << 16:
            self.flush()

    def flush(self) -> None:
        if self._ids:
            self._check.add(pa.array(self._ids, pa.string()), pa.array(self._places, pa.int64()))
        self._ids, self._places = [], []


class _LineNames:
    """Numbers lines through all files, and back: one integer says file and line."""

    _SHIFT = 40

    def __init__(self) -> None:
        self._uris: list[str] = []
        self._several = False

    def begin(self, uri: str, *, several: bool) -> None:
        self._uris.append(uri)
        self._several = several

    def note(self, ids: _Batched, custom_id: str, line: int) -> None:
        ids.add(custom_id, (len(self._uris) - 1 << self._SHIFT) + line)

    def repeated(self, custom_id: str, number: int) -> LineError:
        line = number & (1 << self._SHIFT) - 1
        return LineError(
            code="duplicate_custom_id",
            message=f"the custom_id {custom_id!r} was used before",
            line=line,
            param="custom_id",
        )

    def place(self, number: int) -> str:
        file, line = number >> self._SHIFT, number & (1 << self._SHIFT) - 1
        return f"line {line}" + (f" of {self._uris[file]}" if self._several else "")
