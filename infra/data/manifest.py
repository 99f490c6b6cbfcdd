"""`_manifest.json`: what a finished result folder holds. The same bytes whoever writes it.

Past MANY_PARTS parts the list of parts is a Parquet file of its own beside a small JSON head (200,000 parts as JSON
are 67 MB).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from infra.data.parquet import write_table
from infra.data.schema import fingerprint
from jobs.errors import NotFound, StorageCorrupt
from jobs.model import Job, Value
from jobs.ports.objects import Objects
from jobs.ports.planning import Final

MANY_PARTS = 1000
NAME = "_manifest.json"
PARTS_NAME = "_manifest.parts.parquet"
VERSION = 1
_LAID_OUT = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_FIELDS = pa.schema(
    [
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("checksum", pa.string()),
        ("first_row", pa.int64()),
        ("last_row", pa.int64()),
        ("task", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart(Value):
    """A part as readers see it. checksum: sha256, hex; task: None for one that was put together from several."""

    name: str
    rows: int
    size: int
    checksum: str
    first_row: int
    last_row: int
    task: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Value):
    """A read manifest. head: everything but the parts."""

    head: dict[str, Any]
    parts: tuple[PublishedPart, ...]

    @property
    def job(self) -> str:
        return str(self.head["job"])


def manifest_uri(folder: str) -> str:
    """Where a folder's manifest lies."""
    return f"{folder}/{NAME}"


def write_manifests(objects: Objects, ends: Sequence[tuple[Job, pa.Schema, Sequence[PublishedPart], Final]]) -> None:
    """Write them, each the last of its folder's files but `_SUCCESS`."""
    written = [_manifest(*end) for end in ends]
    objects.put_many([lists for lists, _ in written if lists is not None])
    objects.put_many([head for _, head in written])


def _manifest(
    job: Job, schema: pa.Schema, parts: Sequence[PublishedPart], final: Final
) -> tuple[tuple[str, bytes] | None, tuple[str, bytes]]:
    """(the list of the parts where it is a file of its own, the manifest), as URI and bytes."""
    usage = final.usage
    head: dict[str, Any] = {
        "version": VERSION,
        "job": job.id,
        "tenant": job.tenant,
        "model": job.spec.model,
        "model_checksum": job.spec.model_checksum,
        "state": str(final.state),
        "reason": final.reason,
        "rows": usage.rows,
        "outcomes": dict(sorted(usage.outcomes.items())),
        # As in the rows: input_tokens are all prompt tokens, cached_tokens those of them that came from the cache.
        "input_tokens": usage.input_tokens + usage.cached_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "amount_pico": final.amount_pico,
        "currency": job.price.currency,
        "price_version": job.price.version,
        "schema_fingerprint": fingerprint(schema),
        "columns": [{"name": field.name, "type": str(field.type)} for field in schema],
        "part_count": len(parts),
    }
    lists = None
    if len(parts) > MANY_PARTS:
        table = pa.Table.from_pylist([asdict(part) for part in parts], schema=_FIELDS)
        lists = f"{job.folder}/{PARTS_NAME}", write_table(table, row_group_rows=1 << 16)
        head["parts_file"] = PARTS_NAME
    else:
        head["parts"] = [asdict(part) for part in parts]
    return lists, (manifest_uri(job.folder), _text(head))


def _text(head: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(head, option=_LAID_OUT)
    except TypeError:  # an amount beyond 64 bits, which orjson does not write
        return json.dumps(head, indent=2, ensure_ascii=False).encode() + b"\n"


def read_manifest(objects: Objects, folder: str) -> Manifest | None:
    """None where there is none (yet). Raises StorageCorrupt."""
    uri = manifest_uri(folder)
    try:
        head = json.loads(objects.read(uri))  # as orjson does not: whole numbers of any length
        entries = head.pop("parts", None)
        if entries is None:
            with objects.open(f"{folder}/{head['parts_file']}") as file:
                entries = pq.read_table(file).to_pylist()
        return Manifest(head=head, parts=tuple(PublishedPart(**entry) for entry in entries))
    except NotFound:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StorageCorrupt(uri=uri, reason=f"it is no manifest: {error}") from error
