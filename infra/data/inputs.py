"""What a job reads: from the text a user typed to the frozen list of files, with one schema over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

from infra.data.bodies import ANY, Rules
from infra.data.ids import IdCheck, id_texts
from infra.data.line_files import line_files
from infra.data.lines import LineReader
from infra.data.parquet import MAGIC, batch_rows, open_parquet, parquet_facts
from infra.data.unify import Unifier
from jobs.errors import BadInput, InputChanged, NightmillError
from jobs.model import InputFile, Value
from jobs.ports.objects import ObjectFacts, Objects

Format = Literal["parquet", "jsonl"]
LINE_SCHEMA = pa.schema([("custom_id", pa.string()), ("body", pa.string())])
"""What a JSONL line is to everything above: its id, and its request as JSON."""
_ENDINGS: dict[str, Format] = {
    ".parquet": "parquet", ".parq": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip
_WILD = re.compile(r"[*?\[]")
_TOKENS = re.compile(r"\*\*/|\*\*|\[[^\]]+\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs(Value):
    """A job's input. schema: the unified columns (LINE_SCHEMA for JSONL).

    Of JSONL: endpoint that its lines name; more, dimensions: as in `LineReader`.
    """

    source: str
    files: tuple[InputFile, ...]
    format: Format
    schema: pa.Schema
    endpoint: str = ""
    more: bool = False
    dimensions: frozenset[int | None] = frozenset()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def absolute(text: str) -> str:
    """A path as a full path, a URI as it is: a job may go on in another directory."""
    return text if "://" in text else str(Path(text).absolute())


Tables = Callable[[str, Sequence[ObjectFacts]], tuple[Sequence[InputFile], pa.Schema]]
"""Looks at Parquet files: (what the user typed, the files) → the files as they are frozen, and the schema over them."""


def resolve(objects: Objects, text: str, *, rules: Rules = ANY, scratch: Path, tables: Tables | None = None) -> Inputs:
    """The input that a path or URI of a file, a folder or a glob names, looked at in full for JSONL.

    rules: what the lines of a JSONL file may be. scratch: a local folder for buckets of ids. tables: who looks at
    Parquet, where this process should not.
    Raises BadInput, naming file, line, row or column; NotFound from the object store.
    """
    source = absolute(text)
    found = _find(objects, source)
    kind = _one_format(objects, found)
    reader = LineReader(rules)
    files: Sequence[InputFile]
    if kind == "jsonl":
        files, schema = line_files(objects, source, found, reader, scratch), LINE_SCHEMA
    else:
        files, schema = _tables(objects, found) if tables is None else tables(source, found)
    if not any(file.rows for file in files):
        raise BadInput(source=source, reason="it has no rows")
    return Inputs(
        source=source,
        files=placed(files),
        format=kind,
        schema=schema,
        endpoint=reader.rules.endpoint if kind == "jsonl" else "",
        more=reader.more,
        dimensions=frozenset(reader.dimensions),
    )


def _find(objects: Objects, source: str) -> list[ObjectFacts]:
    """The files, sorted by URI. Names that begin with "_" or "." are not data (as everywhere in the Parquet world)."""
    if (single := objects.facts(source)) is not None:
        return [single]
    if _WILD.search(source):
        return _matches(objects, source)
    folder = source.rstrip("/") + "/"
    found = [facts for facts in objects.list(folder) if not _hidden(facts.uri[len(folder) :])]
    if not found:
        raise BadInput(source=source, reason="there is no such file, and no folder with data files in it")
    return found


def _matches(objects: Objects, pattern: str) -> list[ObjectFacts]:
    fixed = _WILD.split(pattern, maxsplit=1)[0]
    folder = fixed[: fixed.rfind("/") + 1]
    regex = re.compile("".join(_regex(token) for token in _TOKENS.findall(pattern)))
    found = [facts for facts in objects.list(folder) if regex.fullmatch(facts.uri)]
    kept = [facts for facts in found if not _hidden(facts.uri[len(folder) :])]
    if not kept:
        raise BadInput(source=pattern, reason="no file matches")
    return kept


def _regex(token: str) -> str:
    """As in a shell: one star stays inside its folder, two cross folders."""
    if token[0] == "[" and len(token) > 1:
        return "[" + token[1:-1].replace("!", "^", token[1] == "!").replace("\\", "\\\\") + "]"
    return {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(token, re.escape(token))


def _hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _one_format(objects: Objects, found: Sequence[ObjectFacts]) -> Format:
    first = _format(objects, found[0])
    for facts in found[1:]:
        other = _format(objects, facts)
        if other != first:
            raise BadInput(
                source=facts.uri, reason=f"it is {other}, but {found[0].uri} is {first}; a job takes files of one kind"
            )
    return first


def _format(objects: Objects, facts: ObjectFacts) -> Format:
    name = facts.uri.lower()
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    with objects.open(facts.uri) as file:
        head = file.read(64)
    if not head:
        raise BadInput(source=facts.uri, reason="the file is empty")
    if head[:4] == MAGIC:
        return "parquet"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        return "jsonl"
    raise BadInput(
        source=facts.uri,
        reason="it is neither Parquet nor JSONL (known by .parquet or .jsonl, or by how it begins); "
        "use a glob such as FOLDER/*.parquet to leave files out",
    )


def _tables(objects: Objects, found: Sequence[ObjectFacts]) -> tuple[list[InputFile], pa.Schema]:
    unifier = Unifier()
    files = []
    for facts in found:
        file, schema = parquet_facts(objects, facts)
        unifier.add(facts.uri, schema)
        files.append(file)
    return files, unifier.schema


def placed(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Each with its place in the whole."""
    found = []
    at = 0
    for file in files:
        found.append(file.evolve(first_row=at))
        at += file.rows
    return tuple(found)


def check_ids(objects: Objects, inputs: Inputs, column: str, *, scratch: Path) -> None:
    """The id column must be there, of whole numbers or text, never null and never twice. Raises BadInput."""
    if column not in inputs.schema.names:
        raise BadInput(
            source=inputs.source,
            reason=f"there is no column {column!r} for --id; it has {', '.join(inputs.schema.names)}",
        )
    kind = inputs.schema.field(column).type
    if id_texts(pa.array([], kind)) is None:
        raise BadInput(source=inputs.source, reason=f"column {column!r} is {kind}; ids are whole numbers or text")
    what = f"column {column!r}"
    place = partial(_place_of, inputs.files)
    with IdCheck(source=inputs.source, what=what, place=place, expected=inputs.rows, scratch=scratch) as check:
        for file in inputs.files:
            _check_file(objects, file, column, check)
        check.finish()


def _place_of(files: Sequence[InputFile], row: int) -> str:
    if len(files) == 1:
        return f"row {row}"
    file = next(file for file in reversed(files) if file.first_row <= row)
    return f"row {row - file.first_row} of {file.uri}"


def _check_file(objects: Objects, file: InputFile, column: str, check: IdCheck) -> None:
    with open_parquet(objects, file.uri) as reader:
        if column not in reader.schema_arrow.names:
            raise BadInput(source=file.uri, reason=f"it has no column {column!r}, so its rows have no id")
        at = file.first_row
        try:
            for batch in reader.iter_batches(batch_rows(file), columns=[column], use_threads=False):
                ids = id_texts(batch.column(batch.schema.get_field_index(column)))
                assert ids is not None
                _check_text(file, column, ids, at)
                check.add(ids, pa.array(range(at, at + len(ids)), pa.int64()))
                at += len(ids)
        except (NightmillError, MemoryError):
            raise
        except (pa.ArrowException, OSError) as error:
            raise BadInput(
                source=file.uri, reason=f"column {column!r} cannot be read after row {at}: {error}"
            ) from error


def _check_text(file: InputFile, column: str, ids: pa.Array, at: int) -> None:
    try:
        ids.validate(full=True)
    except pa.ArrowInvalid:
        bad = next(i for i in range(len(ids)) if not _is_utf8(ids.slice(i, 1)))
        raise BadInput(source=file.uri, reason=f"column {column!r} is not valid UTF-8 in row {at + bad}") from None


def _is_utf8(one: pa.Array) -> bool:
    try:
        one.take(pa.array([0])).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def verify_unchanged(objects: Objects, file: InputFile) -> None:
    """Raises InputChanged if the file is no longer the one on the frozen list."""
    now = objects.facts(file.uri)
    if now is None:
        raise InputChanged(file=file.uri, reason="it is gone")
    if now.size != file.size:
        raise InputChanged(file=file.uri, reason=f"it had {file.size} bytes and now has {now.size}")
    if now.stamp != file.stamp:
        raise InputChanged(file=file.uri, reason=f"it was {file.stamp} and is now {now.stamp}")
