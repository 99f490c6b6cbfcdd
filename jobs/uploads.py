"""Keeping what was uploaded: the bytes first, then the record, both under an id that was chosen before."""

from __future__ import annotations

from pathlib import Path

from jobs.filing import StoredFile
from jobs.ports.filing import FileStore
from jobs.ports.objects import Objects

PARQUET = b"PAR1"
"""What a Parquet file begins with; anything else that is uploaded is read as lines."""


def place_of(folder: str, file_id: str, head: bytes) -> str:
    """URI of an uploaded file's bytes, made of ids only. head: how the file begins."""
    ending = "parquet" if head.startswith(PARQUET) else "jsonl"
    return f"{folder}/files/{file_id}.{ending}"


def keep(file: StoredFile, content: bytes | Path, *, store: FileStore, objects: Objects) -> StoredFile:
    """Put what came, or move a finished local file, to its place; then write its record.

    Safe to repeat: the same bytes at the same place are fine, and the record of the same id stays.
    """
    if isinstance(content, bytes):
        objects.put_if_absent(file.uri, content)
    else:
        objects.put_file_if_absent(file.uri, content)
    return store.add_file(file)
