"""`python -m tests.support.parquet_fuzz FIRST LAST`: seeded, broken Parquet through the intake and the row reader.

A line a case that is done, so that whoever started it knows which one it was that ended the process; in the end a line
with the memory that it took. Everything runs in this process, within the memory that a look may take.
"""

from __future__ import annotations

import io
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from infra.data import look_child
from infra.data.bounds import ParquetBounds
from infra.data.index import InputIndex
from infra.data.inputs import Inputs, check_ids, placed
from infra.data.read import RowReader
from infra.data.unify import Unifier
from jobs.errors import NightmillError
from jobs.ports.objects import ObjectFacts
from jobs.ranges import Range

BOUNDS = ParquetBounds(rows=1_000_000, columns=200, page_bytes=16 << 20, dictionary_bytes=4 << 20, grown_bytes=64 << 20)
_MEMORY_BYTES = 1 << 30
_SLOW_S = 10.0


def _table(rows=60):
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "s": [f"row {n % 7}" * 3 for n in range(rows)],
            "u": [f"unique {n}" if n % 5 else None for n in range(rows)],
            "f": [n / 3 for n in range(rows)],
            "b": [n % 2 == 0 for n in range(rows)],
            "t": [datetime(2026, 1, 1, tzinfo=UTC)] * rows,
            "d": [Decimal(n) / 100 for n in range(rows)],
            "l": [[{"role": "user", "content": f"hello {n}"}] * (n % 3) for n in range(rows)],
            "x": pa.array([b"\0\1"] * rows, pa.binary(2)),
        }
    )


@cache
def bases() -> tuple[bytes, ...]:
    """Good files of many kinds."""
    ways = [
        {"compression": "none"},
        {"compression": "zstd", "data_page_version": "2.0"},
        {"compression": "snappy", "row_group_size": 20, "write_page_index": True},
        {"compression": "gzip", "use_dictionary": False, "column_encoding": {"u": "DELTA_BYTE_ARRAY"}},
        {"compression": "lz4", "use_byte_stream_split": ["f"], "use_dictionary": ["s"], "data_page_size": 64},
        {"compression": "brotli", "store_schema": False, "write_page_checksum": True},
    ]
    made = []
    for way in ways:
        sink = io.BytesIO()
        pq.write_table(_table(), sink, **way)
        made.append(sink.getvalue())
    return tuple(made)


def case(number: int) -> bytes:
    """The same for the same number."""
    chance = random.Random(number)
    data = bytearray(chance.choice(bases()))
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        chance.choice(_MUTATIONS)(data, chance)
    return bytes(data)


def _place(data, chance, inside=None):
    """Often in the footer, where the lies are."""
    if inside is None:
        length = int.from_bytes(data[-8:-4], "little") if len(data) > 12 else 0
        start = max(0, len(data) - 8 - length)
        if chance.random() < 0.3 and start < len(data):
            return chance.randrange(start, len(data))
    return chance.randrange(max(1, len(data)))


def _flip(data, chance):
    if data:
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _set(data, chance):
    if data:
        data[_place(data, chance)] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))


def _grow(data, chance):
    """A number of Thrift's that is much larger than it was."""
    at = _place(data, chance)
    data[at : at + 1] = bytes([255] * chance.randrange(1, 9) + [1])


def _cut(data, chance):
    at = _place(data, chance)
    del data[at : at + chance.choice((1, 2, 8, 64))]


def _end(data, chance):
    del data[_place(data, chance, inside=False) :]


def _repeat(data, chance):
    at = _place(data, chance)
    data[at:at] = data[at : at + chance.choice((1, 4, 32))]


def _length(data, chance):
    if len(data) > 8:
        data[-8:-4] = chance.choice((0, 1, 8, len(data), 1 << 31, (1 << 32) - 1, chance.randrange(1 << 16))).to_bytes(
            4, "little"
        )


def _splice(data, chance):
    other = chance.choice(bases())
    at, start = _place(data, chance), chance.randrange(len(other))
    data[at : at + 32] = other[start : start + 32]


_MUTATIONS: Sequence = (_flip, _flip, _flip, _set, _set, _grow, _cut, _end, _repeat, _length, _splice)


class OneFile:
    """Objects with one object, in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, uri):
        return io.BytesIO(self._data)

    def facts(self, uri):
        return ObjectFacts(uri=uri, size=len(self._data), stamp="etag:x")


def outcome(data: bytes, scratch: Path, taken: Callable[[], object] = lambda: None) -> str:
    """What the intake says of a file: an error's code, or `read` and `faults` once its rows were read.

    taken: is called when the intake has taken it, and a worker would read it.
    """
    objects = OneFile(data)
    facts = objects.facts("file:///x.parquet")
    try:
        file, schema = look_child._one(objects, facts, BOUNDS, far=False)
        unifier = Unifier()
        unifier.add(facts.uri, schema)
        inputs = Inputs(source=facts.uri, files=placed([file]), format="parquet", schema=unifier.schema)
        if "id" in inputs.schema.names:
            check_ids(objects, inputs, "id", scratch=scratch)
        taken()
        reader, rows = RowReader(objects), min(inputs.rows, 1000)
        found = reader.rows(
            InputIndex(inputs.files), inputs.schema, (Range(0, rows),), inputs.schema.names, limit_bytes=None
        )
        reader.close()
    except NightmillError as error:
        return error.code
    except (MemoryError, pa.ArrowMemoryError):
        return "memory"
    except (pa.ArrowException, OSError, ValueError, OverflowError, RecursionError, KeyError, TypeError) as error:
        return f"other: {type(error).__name__}: {error}"
    return "faults" if found.faults else "read"


def main(first: int, last: int) -> None:
    pa.set_cpu_count(1)
    resource.setrlimit(resource.RLIMIT_AS, (look_child._mapped() + _MEMORY_BYTES,) * 2)
    scratch, found, slow, early = Path("/nonexistent"), Counter(), [], 0
    for number in range(first, last):
        began = time.monotonic()
        _say(f"{number} look")
        told = outcome(case(number), scratch, lambda number=number: _say(f"{number} read"))
        found[told] += 1
        if time.monotonic() - began > _SLOW_S:
            slow.append(number)
        if number == first + (last - first) // 3:
            early = _resident()
        _say(f"{number} done {told}")
    grown = _resident() - early
    _say(json.dumps({"found": found, "slow": slow, "grown_mib": grown >> 20}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
