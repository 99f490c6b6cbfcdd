"""Reading results back: while a job runs (its committed parts) and after (its published folder)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from infra.data.frozen import FrozenJobs, JobFolder, freeze
from infra.data.manifest import read_manifest
from infra.data.openai_lines import line_of
from infra.data.parquet import open_parquet
from infra.data.schema import ANSWER
from infra.data.universe import save_rows
from infra.data.values import python_values
from jobs.errors import NotFound
from jobs.model import Job, Part
from jobs.ports.objects import Objects

_BATCH_ROWS = 4096
_LINE_COLUMNS = (
    "row",
    "custom_id",
    "output",
    "outcome",
    "error_code",
    "error_message",
    "finish_reason",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    ANSWER,
)
_ANSWERED = frozenset({"ok", "truncated", "refused"})


def _plain_rows(batch: pa.RecordBatch) -> Iterator[Mapping[str, Any]]:
    """A value that Python cannot hold (the year 12000) is None here; the Parquet file has it."""
    columns = [python_values(column, {}) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


class Results:
    """parts: the committed parts of a job by its id (`store.parts`); used until the job's folder is published.

    Everywhere: outcomes: only rows with one of these; family: retries of the job, oldest first: each row is then taken
    from the youngest that has it, the job's own rows first; parts: what the caller already knows of the job's parts.
    """

    def __init__(self, objects: Objects, jobs: FrozenJobs, *, parts: Callable[[str], Iterable[Part]]) -> None:
        self._objects = objects
        self._jobs = jobs
        self._parts = parts

    def schema(self, job: Job) -> pa.Schema:
        """The columns of the job's results."""
        return self._jobs.of(job).output

    def rows(
        self,
        job: Job,
        *,
        parts: Iterable[Part] | None = None,
        family: Sequence[Job] = (),
        outcomes: Collection[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Mapping[str, Any]]:
        """Rows as plain values, as many as `limit`. While the job runs: those that are committed."""
        batches = self.batches(job, parts=parts, family=family, outcomes=outcomes)
        return islice(chain.from_iterable(map(_plain_rows, batches)), limit)

    def jsonl(
        self,
        job: Job,
        *,
        parts: Iterable[Part] | None = None,
        family: Sequence[Job] = (),
        outcomes: Collection[str] | None = None,
        which: str = "all",
    ) -> Iterator[bytes]:
        """OpenAI's batch lines, each with its newline. which: "output", "error" or "all"."""
        created = int(job.finished_at or job.created_at)
        for batch in self.batches(job, parts=parts, family=family, outcomes=outcomes):
            for row in batch.select([name for name in _LINE_COLUMNS if name in batch.schema.names]).to_pylist():
                if which == "all" or (which == "output") is (row["outcome"] in _ANSWERED):
                    yield line_of(job, row, created)

    def batches(
        self,
        job: Job,
        *,
        parts: Iterable[Part] | None = None,
        family: Sequence[Job] = (),
        outcomes: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The results a few thousand rows at a time. Memory: one batch, and the row numbers of the family."""
        if not family:
            yield from self._one(job, parts, outcomes, columns)
            return
        schema = self.schema(job)
        names = schema.names if columns is None else list(columns)
        for member, hidden in self._layers(job, family):
            # The outcome is asked of the row that counts: a retried error that is now ok is no error any more.
            known = parts if member is job else None
            for batch in self._one(member, known, outcomes, [*dict.fromkeys(["row", *names])]):
                left = batch.filter(pc.invert(pc.is_in(batch.column("row"), value_set=hidden)))
                if left.num_rows:
                    yield left.select(names).cast(pa.schema([schema.field(name) for name in names]))

    def _layers(self, job: Job, family: Sequence[Job]) -> list[tuple[Job, pa.Array]]:
        """Each job with the rows that a younger one has, oldest job first."""
        newer: list[pa.Array] = [pa.array([], pa.int64())]
        layers: list[tuple[Job, pa.Array]] = []
        for member in reversed([job, *family]):
            layers.append((member, pa.concat_arrays(newer)))
            if member is not job:
                newer += [batch.column("row") for batch in self._one(member, None, None, ["row"])]
        return layers[::-1]

    def _one(
        self, job: Job, parts: Iterable[Part] | None, outcomes: Collection[str] | None, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        wanted = None if outcomes is None else pa.array([str(outcome) for outcome in outcomes], pa.string())
        read = None if columns is None else [*dict.fromkeys([*columns, "outcome"])]
        for uri, task in self._places(job, parts):
            for batch in self._file(job, uri, task, read):
                found = batch
                if wanted is not None:
                    found = batch.filter(pc.is_in(batch.column("outcome"), value_set=wanted))
                if found.num_rows:
                    yield found if columns is None else found.select(list(columns))

    def _places(self, job: Job, parts: Iterable[Part] | None) -> list[tuple[str, str | None]]:
        manifest = read_manifest(self._objects, job.folder)
        if manifest is not None:
            return [(f"{job.folder}/{part.name}", part.task) for part in manifest.parts]
        return [(part.uri, part.task) for part in (self._parts(job.id) if parts is None else parts)]

    def _file(self, job: Job, uri: str, task: str | None, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        try:
            file = open_parquet(self._objects, uri, columns=len(columns or ()) or 16)
        except NotFound:
            file = open_parquet(self._objects, self._moved(job, uri, task), columns=16)
        with file:
            yield from file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)

    def _moved(self, job: Job, uri: str, task: str | None) -> str:
        """Where a part went that was published since we looked."""
        manifest = read_manifest(self._objects, job.folder)
        for part in manifest.parts if manifest is not None else ():
            if part.task == task is not None:
                return f"{job.folder}/{part.name}"
        raise NotFound(kind="object", name=uri, hint="The job has just been published; ask again.")

    def select_rows(self, job: Job, outcomes: Collection[str], child_id: str) -> tuple[str, int]:
        """Write what a retry of these rows is made of: their numbers, and the schemas it has in common with its parent.

        (URI for the child's `JobSpec.select`, how many rows).
        """
        folder = JobFolder(home=self._jobs.home, tenant=job.tenant, job=child_id)
        frozen = self._jobs.of(job)
        freeze(self._objects, folder, inputs=frozen.schema, output=frozen.output, plain=job.spec.plain)
        found = self.batches(job, outcomes=outcomes, columns=["row"])
        numbers = chain.from_iterable(batch.column("row").to_pylist() for batch in found)
        return folder.select, save_rows(self._objects, folder.select, numbers)
