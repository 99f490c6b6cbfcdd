"""One schema over many Parquet files: equal types, but a file may lack a column or have only nulls in it."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.errors import BadInput


class Unifier:
    """Takes the files' schemas one by one; columns stay in the order in which they first appear."""

    def __init__(self) -> None:
        self._types: dict[str, pa.DataType] = {}
        self._owners: dict[str, str] = {}

    def add(self, uri: str, schema: pa.Schema) -> None:
        """Raises BadInput for a column that cannot have one type."""
        seen: set[str] = set()
        for field in schema:
            if field.name in seen:
                raise BadInput(source=uri, reason=f"it has two columns named {field.name!r}; rename one")
            seen.add(field.name)
            self._add_column(uri, field)

    def _add_column(self, uri: str, field: pa.Field) -> None:
        before = self._types.get(field.name)
        kind = workable_type(field.type)
        merged = kind if before is None else merge_types(before, kind)
        if merged is None:
            raise BadInput(
                source=uri,
                reason=f"column {field.name!r} is {field.type} here but {before} in {self._owners[field.name]}; "
                "give it one type in all files",
            )
        if merged != before:
            self._types[field.name], self._owners[field.name] = merged, uri

    @property
    def schema(self) -> pa.Schema:
        """The unified schema: every column may be null, no metadata."""
        return pa.schema([pa.field(name, kind) for name, kind in self._types.items()])


def workable_type(kind: pa.DataType) -> pa.DataType:
    """The same type without views: they are the same in Parquet, and Arrow can hardly compute with them."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(workable_type(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(workable_type(kind.value_type)))
    if types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(workable_type(kind.value_type)))
    return kind


def merge_types(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds both, if they are equal but for all-null parts; None otherwise."""
    if left.equals(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_null(right):
        return left
    if pa.types.is_list(left) and pa.types.is_list(right):
        inner = merge_types(left.value_type, right.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        return _merge_structs(left, right)
    return None


def _merge_structs(left: pa.StructType, right: pa.StructType) -> pa.DataType | None:
    if _names(left) != _names(right):
        return None
    merged = [(a.name, merge_types(a.type, b.type)) for a, b in zip(left, right, strict=True)]
    if any(kind is None for _, kind in merged):
        return None
    return pa.struct([pa.field(name, kind) for name, kind in merged])


def _names(kind: Iterable[pa.Field]) -> list[str]:
    return [field.name for field in kind]


def align(batch: pa.RecordBatch, names: Iterable[str], schema: pa.Schema) -> pa.RecordBatch:
    """The wanted columns of a batch in the unified types; one that its file has not is null."""
    columns, fields = [], []
    for name in names:
        field = schema.field(name)
        index = batch.schema.get_field_index(name)
        if index < 0:
            column = pa.nulls(batch.num_rows, field.type)
        else:
            column = batch.column(index)
            if not column.type.equals(field.type):
                column = column.cast(field.type)
        columns.append(column)
        fields.append(field)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
