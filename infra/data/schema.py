"""The columns of the result files, fixed at submit, whatever the data turns out to be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import orjson
import pyarrow as pa

from infra.data.typed import TypedColumn, typed_shapes
from jobs.errors import BadInput

BEFORE = (("row", pa.int64()), ("input_row", pa.int64()), ("custom_id", pa.string()))
AFTER = (
    ("outcome", pa.string()),
    ("error_code", pa.string()),
    ("error_message", pa.string()),
    ("finish_reason", pa.string()),
    ("input_tokens", pa.int64()),
    ("cached_tokens", pa.int64()),
    ("output_tokens", pa.int64()),
    ("amount_pico", pa.int64()),
    ("request_hash", pa.string()),
)
"""As for OpenAI: `input_tokens` is the whole prompt, `cached_tokens` the part of it that came from the cache."""
OUTPUT = "output"
ANSWER = "answer"
"""JSON, only in results of JSONL inputs whose answers have more to them than `output`. docs/lines.md has its form."""
RESERVED = frozenset({*(name for name, _ in BEFORE), OUTPUT, *(name for name, _ in AFTER)})
Kept = tuple[tuple[str, str], ...]


def kept_columns(schema: pa.Schema, vary: Mapping[str, Sequence[str]], keep: Sequence[str] | None) -> Kept:
    """(input column, output column) pairs; keep: the columns asked for, None for all.

    A column with the name of a result column is kept as `input_<name>`, with as many underscores behind it as it takes
    to be the only one of that name. Names are compared without case, because many readers do not look at case.
    Varied values are columns too and stand behind the input's own. Raises BadInput for an unknown name.
    """
    for name in vary:
        if name in schema.names:
            raise BadInput(source=f"--vary {name}", reason="the input has a column of this name; choose another")
    everything = [*schema.names, *vary]
    for name in keep or ():
        if name not in everything:
            near = get_close_matches(name, everything, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BadInput(source=f"--keep {name}", reason=f"there is no such column{hint}")
    wanted = everything if keep is None else [name for name in everything if name in set(keep)]
    taken = {*RESERVED, *(name.lower() for name in wanted)}
    return tuple((name, _renamed(name, "input_", taken) if name.lower() in RESERVED else name) for name in wanted)


def _renamed(name: str, prefix: str, taken: set[str]) -> str:
    """A free name; it is taken from then on."""
    new = prefix + name
    while new.lower() in taken:
        new += "_"
    taken.add(new.lower())
    return new


def typed_columns(schema_text: str | None, kept: Kept) -> tuple[TypedColumn, ...]:
    """The typed columns of an output schema; a property whose name is taken gets `output_<name>`."""
    if schema_text is None:
        return ()
    taken = {*RESERVED, *(name.lower() for _, name in kept)}
    columns = []
    for name, shape in typed_shapes(orjson.loads(schema_text)).items():
        column = _renamed(name, "output_", taken) if not name or name.lower() in taken else name
        taken.add(column.lower())
        columns.append(TypedColumn(property=name, column=column, shape=shape))
    return tuple(columns)


def output_schema(
    inputs: pa.Schema,
    *,
    kept: Kept,
    schema_text: str | None = None,
    embedding_size: int | None = None,
    more: bool = False,
) -> pa.Schema:
    """Place, kept columns, `output`, typed columns, what became of the row.

    embedding_size: of an embedding model, -1 where its rows ask for different ones. more: with `answer`.
    """
    output = pa.string() if embedding_size is None else pa.list_(pa.field("element", pa.float32()), embedding_size)
    return pa.schema(
        [
            *(pa.field(name, kind) for name, kind in BEFORE),
            *(pa.field(new, _type(inputs, name)) for name, new in kept),
            pa.field(OUTPUT, output),
            *(pa.field(column.column, column.shape.kind) for column in typed_columns(schema_text, kept)),
            *(pa.field(name, kind) for name, kind in AFTER),
            *([pa.field(ANSWER, pa.string())] if more else ()),
        ]
    )


def _type(inputs: pa.Schema, name: str) -> pa.DataType:
    """A column that the input has not is a varied value."""
    return inputs.field(name).type if name in inputs.names else pa.string()


def fingerprint(schema: pa.Schema) -> str:
    """sha256 of the schema, hex: equal for folders that can be read as one."""
    return hashlib.sha256(schema.serialize().to_pybytes()).hexdigest()


def dump_schema(schema: pa.Schema) -> bytes:
    """Arrow's own form; the same bytes for the same schema."""
    return schema.serialize().to_pybytes()  # type: ignore[no-any-return]  # pyarrow has no types


def load_schema(data: bytes) -> pa.Schema:
    """The way back."""
    return pa.ipc.read_schema(pa.py_buffer(data))


def names_of(columns: Iterable[TypedColumn]) -> list[str]:
    """Their names in the result."""
    return [column.column for column in columns]
