"""Plans a job segment by segment: reads what the prompts are made of, orders where that gains, cuts tasks.

A segment is worked through in blocks of rows that fit into memory together, whatever they decode to.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from infra.data.frozen import FrozenJob, FrozenJobs
from infra.data.read import RowReader, Rows, TooMuch
from infra.data.staging import staged_uri, write_staged
from infra.data.survey import survey
from infra.data.universe import Layout, layout
from infra.data.weigh import weigh
from jobs.model import InputFile, Job, Source, Task
from jobs.plan import PlanPolicy, Sizes, cut, split, target_rows
from jobs.ports.objects import Objects
from jobs.ports.planning import PlannedSegment
from jobs.ranges import Range, Ranges, count, halves

_PROBED_ROWS = 512
_FEWEST_ROWS = 1024
"""Of a block, whatever they decode to."""


class Planner:
    """The planner of one process. Safe to call from several threads.

    jobs: the frozen sides of jobs; reader: may be shared with the row source.
    """

    def __init__(self, objects: Objects, jobs: FrozenJobs, reader: RowReader, policy: PlanPolicy | None = None) -> None:
        self._objects = objects
        self._jobs = jobs
        self._reader = reader
        self._policy = policy or PlanPolicy()
        self._layouts: dict[str, Layout] = {}
        self._decoded: dict[str, int] = {}
        self._lock = threading.Lock()

    def plan(
        self,
        job: Job,
        files: Sequence[InputFile],
        segment: int,
        *,
        ending: bool = False,
        rows_per_s: float | None = None,
    ) -> PlannedSegment:
        """The tasks of one segment. Staged files are written before it returns."""
        frozen = self._jobs.of(job, files)
        found = self._layout(frozen, files)
        ranges = found.rows(segment)
        cutter = _Cutter(job, segment, self._policy, found.universe.size, rows_per_s)
        if ending:
            cutter.point(ranges, _unread(count(ranges), encoded_row_bytes(frozen, ranges)), 0)
        else:
            for part in self._blocks(frozen, found, ranges):
                self._plan_block(frozen, part, cutter)
        # Planning takes much memory for a short time; the allocator would keep most of it.
        pa.default_memory_pool().release_unused()
        return PlannedSegment(tasks=tuple(cutter.tasks), last=segment == found.segments - 1)

    def _layout(self, frozen: FrozenJob, files: Sequence[InputFile]) -> Layout:
        job = frozen.job
        with self._lock:
            if job.id not in self._layouts:
                self._layouts.pop(next(iter(self._layouts)), None) if len(self._layouts) > 16 else None
                self._layouts[job.id] = layout(self._objects, frozen.folder.layout, job.spec, files, self._policy)
            return self._layouts[job.id]

    def _blocks(self, frozen: FrozenJob, found: Layout, ranges: Ranges) -> Iterator[Ranges]:
        """The segment in pieces that decode to about `order_bytes` each."""
        rows = count(ranges)
        copies = frozen.job.spec.copies
        most = _FEWEST_ROWS // copies * copies or copies
        if rows > most:
            fit = self._policy.order_bytes // self._row_bytes(frozen, found)
            most = max(_FEWEST_ROWS, fit) // copies * copies or copies
        if rows:
            yield from split(ranges, [*range(most, rows, most), rows])

    def _row_bytes(self, frozen: FrozenJob, found: Layout) -> int:
        """What a row decodes to, by the job's first rows: to look at each segment's own would decode it twice."""
        with self._lock:
            known = self._decoded.get(frozen.job.id)
        if known is None:
            first = found.universe.ranges(0, 1)
            fits = self._policy.order_bytes // max(1, encoded_row_bytes(frozen, first))
            first = found.universe.ranges(0, max(1, min(_PROBED_ROWS, found.universe.size, fits)))
            probe = self._read(frozen, first, frozen.needed, None)
            known = sum(column.nbytes for column in probe.columns.values()) // max(1, probe.size) + 16
            if frozen.template is None:
                known *= 2  # a request is there twice: as it came, and as the text to order it by
            with self._lock:
                self._decoded[frozen.job.id] = known
        return known

    def _plan_block(self, frozen: FrozenJob, ranges: Ranges, cutter: _Cutter) -> None:
        try:
            self._plan_rows(frozen, ranges, cutter)
        except TooMuch:
            for half in halves(ranges):
                self._plan_block(frozen, half, cutter)

    def _plan_rows(self, frozen: FrozenJob, ranges: Ranges, cutter: _Cutter) -> None:
        room = 3 * self._policy.order_bytes if count(ranges) > 1 else None
        rows = self._read(frozen, ranges, frozen.mentioned, room)
        estimated = survey(frozen, rows, self._policy)
        weighed = weigh(estimated.tree, pc.sum(estimated.tokens).as_py() or 0, self._policy)
        row_bytes = encoded_row_bytes(frozen, ranges)
        if weighed.order is None or rows.faults:
            # Rows that cannot be read would lie in a staged file as nulls: they stay where they are.
            cutter.point(ranges, _sizes(estimated.tokens, row_bytes), estimated.output_tokens)
            return
        if frozen.needed != frozen.mentioned:
            rows = self._read(frozen, ranges, frozen.needed, room)
            if rows.faults:
                cutter.point(ranges, _sizes(estimated.tokens, row_bytes), estimated.output_tokens)
                return
        sizes = _sizes(estimated.tokens.take(weighed.order), row_bytes)
        stops = cutter.stops(sizes, weighed.borders)
        uri = staged_uri(frozen.folder.staged, cutter.segment, ranges, stops)
        write_staged(self._objects, uri, rows, weighed.order, stops)
        cutter.stage(uri, stops, sizes, estimated.output_tokens)

    def _read(self, frozen: FrozenJob, ranges: Ranges, columns: Sequence[str], limit_bytes: int | None) -> Rows:
        copies = frozen.job.spec.copies
        return self._reader.rows(frozen.index, frozen.schema, ranges, columns, copies=copies, limit_bytes=limit_bytes)


class _Cutter:
    """Turns cuts into tasks, numbered through the segment."""

    def __init__(self, job: Job, segment: int, policy: PlanPolicy, total_rows: int, rows_per_s: float | None) -> None:
        self.segment = segment
        self.tasks: list[Task] = []
        self._job = job
        self._policy = policy
        spec = job.spec
        self._target = target_rows(
            policy, spec.model_kind, total_rows=total_rows, rows_per_s=rows_per_s, rows_per_task=spec.rows_per_task
        )
        self._most = max(self._target, policy.most_rows(spec.model_kind))

    def stops(self, sizes: Sizes, borders: Sequence[Sequence[int]] = ()) -> list[int]:
        exact = self._job.spec.rows_per_task is not None
        return cut(sizes, target=self._target, most=self._most, policy=self._policy, borders=borders, exact=exact)

    def point(self, ranges: Ranges, sizes: Sizes, output_tokens: int) -> None:
        """Tasks that read the input itself."""
        stops = self.stops(sizes)
        start = 0
        for stop, part in zip(stops, split(ranges, stops), strict=True):
            self._add(Source(), part, sizes, start, stop, output_tokens)
            start = stop

    def stage(self, uri: str, stops: Sequence[int], sizes: Sizes, output_tokens: int) -> None:
        """Tasks that read a staged file."""
        start = 0
        for group, stop in enumerate(stops):
            source = Source(staged=uri, row_group=group)
            self._add(source, (Range(0, stop - start),), sizes, start, stop, output_tokens)
            start = stop

    def _add(self, source: Source, ranges: Ranges, sizes: Sizes, start: int, stop: int, output_tokens: int) -> None:
        job = self._job
        self.tasks.append(
            Task(
                id=f"{job.id}.s{self.segment:05d}.{len(self.tasks):05d}",
                job=job.id,
                segment=self.segment,
                pool=job.pool,
                priority=job.priority,
                source=source,
                ranges=ranges,
                rows=stop - start,
                est_input_tokens=sizes.tokens[stop] - sizes.tokens[start],
                est_output_tokens=-(-output_tokens * (stop - start) // max(1, sizes.rows)),
            )
        )


def _sizes(tokens: pa.Array, row_bytes: int) -> Sizes:
    """Running sums in planning order."""
    sums = [0, *pc.cumulative_sum(tokens).to_pylist()]
    # Four bytes a token stand for the prompt, the row's average size for the columns that are kept.
    return Sizes(tokens=sums, bytes=[4 * total + row_bytes * number for number, total in enumerate(sums)])


def _unread(rows: int, row_bytes: int) -> Sizes:
    """Of rows that are given up without a look at them."""
    return Sizes(
        tokens=[0] * (rows + 1), bytes=range(0, row_bytes * (rows + 1), row_bytes) if row_bytes else [0] * (rows + 1)
    )


def encoded_row_bytes(frozen: FrozenJob, ranges: Ranges) -> int:
    """Bytes of the input row of one of these rows, where it is widest, before compression."""
    copies = frozen.job.spec.copies
    return frozen.index.row_bytes([Range(start // copies, -(-stop // copies)) for start, stop in ranges])
