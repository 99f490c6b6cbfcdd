"""The row source: a task's rows, read and made into prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from infra.data.bodies import SORTED, BadBody, Body, Rules
from infra.data.endpoints import read_body
from infra.data.frozen import FrozenJob, FrozenJobs, salt
from infra.data.ids import id_texts
from infra.data.profiles import profile_of
from infra.data.read import RowReader, Rows, row_array
from infra.data.staging import read_staged
from infra.data.values import bad_text
from infra.data.vary import vary_columns, vary_suffix
from jobs.errors import BadInput, InputChanged
from jobs.model import Job, Task
from jobs.ports.engine import Prompt, RequestProfile
from jobs.ports.objects import Objects
from jobs.ports.rows import OpenRows, RowFault
from jobs.prompts import messages_of

INVALID_UTF8 = "invalid_utf8"
_ASKING = frozenset({"user", "tool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """What of a task's rows goes into the result. kept: the kept columns in the order of `JobSpec.kept`."""

    frozen: FrozenJob
    rows: pa.Array
    input_rows: pa.Array
    custom_ids: pa.Array
    kept: Sequence[pa.Array]


class ParquetRowSource:
    """Opens tasks of Parquet and JSONL jobs, staged or not. Safe to call from several threads.

    secret: of this home; it makes the tenants' cache salts.
    """

    def __init__(self, objects: Objects, jobs: FrozenJobs, reader: RowReader, *, secret: bytes) -> None:
        self._objects = objects
        self._jobs = jobs
        self._reader = reader
        self._secret = secret

    def open(self, job: Job, task: Task) -> OpenRows:
        frozen = self._jobs.of(job)
        rows = clean(self._read(frozen, task))
        columns = {**rows.columns, **vary_columns(job.spec, rows.rows)}
        table, tenant_salt = _table(frozen, rows, columns), salt(job.tenant, self._secret)
        if frozen.template is None:
            return _from_bodies(job, rows, tenant_salt, table)
        prompts, faults = frozen.template.render(columns, rows.size, rows.faults)
        profiles = [profile_of(job, tenant_salt)]
        return OpenRows(size=rows.size, prompts=prompts, faults=faults, profiles=profiles, table=table)

    def open_void(self, job: Job, task: Task) -> RowTable:
        """The rows of a task that was given up; where the input is no longer there, without what stood in it."""
        frozen = self._jobs.of(job)
        try:
            rows = clean(self._read(frozen, task))
        except (InputChanged, BadInput):
            rows = _without_input(frozen, task)
        return _table(frozen, rows, {**rows.columns, **vary_columns(job.spec, rows.rows)})

    def _read(self, frozen: FrozenJob, task: Task) -> Rows:
        if task.source.staged is not None:
            return read_staged(self._objects, task.source.staged, task.source.row_group, task.ranges, frozen.needed)
        copies = frozen.job.spec.copies
        return self._reader.rows(frozen.index, frozen.schema, task.ranges, frozen.needed, copies=copies)


def _without_input(frozen: FrozenJob, task: Task) -> Rows:
    rows = row_array(task.ranges)
    columns = {name: pa.nulls(len(rows), frozen.schema.field(name).type) for name in frozen.needed}
    return Rows(rows=rows, input_rows=pc.divide(rows, frozen.job.spec.copies), columns=columns)


def clean(rows: Rows) -> Rows:
    """Values that are not UTF-8 become null, and their rows faults: no reader could open the result otherwise."""
    columns = dict(rows.columns)
    faults = dict(rows.faults)
    for name, column in rows.columns.items():
        bad = bad_text(column)
        if not bad:
            continue
        columns[name] = _nulled(column, set(bad))
        for index in bad:
            faults.setdefault(index, RowFault(INVALID_UTF8, f"column {name} is not valid UTF-8 in this row"))
    return Rows(rows=rows.rows, input_rows=rows.input_rows, columns=columns, faults=faults)


def _nulled(column: pa.Array, bad: set[int]) -> pa.Array:
    places = pa.array([None if index in bad else index for index in range(len(column))], pa.int64())
    if pa.types.is_dictionary(column.type):  # its dictionary would still hold the bad text
        return column.dictionary_decode().take(places).dictionary_encode().cast(column.type)
    return column.take(places)


def _table(frozen: FrozenJob, rows: Rows, columns: dict[str, pa.Array]) -> RowTable:
    return RowTable(
        frozen=frozen,
        rows=rows.rows,
        input_rows=rows.input_rows,
        custom_ids=_custom_ids(frozen, rows),
        kept=[columns[name] for name, _ in frozen.job.spec.kept],
    )


def _custom_ids(frozen: FrozenJob, rows: Rows) -> pa.Array:
    """The id column as text; copies of a row get their varied values behind it. Without one, the row number."""
    spec = frozen.job.spec
    if frozen.template is None:
        ids = rows.columns["custom_id"]
    elif spec.id_column is None:
        return rows.rows.cast(pa.string())
    else:
        ids = id_texts(rows.columns[spec.id_column])
    if not spec.vary:
        return ids
    return pc.binary_join_element_wise(ids, vary_suffix(spec, rows.rows), "")


def _from_bodies(job: Job, rows: Rows, tenant_salt: str, table: RowTable) -> OpenRows:
    """Ready-made requests: each with its own sampling, the equal ones under one profile."""
    rules = Rules(endpoint=job.spec.endpoint)
    prompts: list[Prompt | None] = []
    faults = dict(rows.faults)
    profiles: list[RequestProfile] = []
    numbers: dict[bytes, int] = {}
    of: list[int] = []
    echoes: dict[int, Mapping[str, Any]] = {}
    for index, text in enumerate(rows.columns["body"].to_pylist()):
        prompt, number = None, 0
        if index not in faults:
            try:
                body = read_body(orjson.loads(text), rules)
            except (BadBody, orjson.JSONDecodeError) as error:
                faults[index] = RowFault("invalid_request", str(error))
            else:
                prompt = _prompt(body.prompt, index, faults)
                number = numbers.setdefault(_key(body), len(numbers))
                if number == len(profiles):
                    profiles.append(profile_of(job, tenant_salt, body))
                if body.echo is not None:
                    echoes[index] = body.echo
        prompts.append(prompt)
        of.append(number)
    return OpenRows(
        size=rows.size,
        prompts=prompts,
        faults=faults,
        profiles=profiles or [profile_of(job, tenant_salt)],
        profile_of=of,
        echoes=echoes,
        table=table,
    )


def _key(body: Body) -> bytes:
    """Equal for bodies that ask for the same but of another prompt."""
    return orjson.dumps([body.sampling, body.schema, body.tools, body.tool_choice, body.dimensions], option=SORTED)


def _prompt(prompt: Prompt, index: int, faults: dict[int, RowFault]) -> Prompt | None:
    """None where nobody says anything in a chat; other prompts are never empty."""
    messages = messages_of(prompt)
    if messages and not any(m[0] in _ASKING and m[1] and not m[1].isspace() for m in messages):
        faults[index] = RowFault("empty_prompt", "the prompt of this row is empty")
        return None
    return prompt
