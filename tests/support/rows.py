"""Reading and writing rows without files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jobs import ranges
from jobs.model import Job, Outcome, Part, Task, Usage
from jobs.outcomes import of_result
from jobs.ports.engine import EngineResult
from jobs.ports.rows import OpenRows, PartSink, Results, RowFault, RowSource, Settled
from tests.support.values import a_part, open_rows


class MemoryRows(RowSource):
    """The prompt of row 17 is `row 17`. faulty: rows that cannot be rendered. broken: raised instead of reading."""

    def __init__(self, faulty: Collection[int] = ()) -> None:
        self.faulty = frozenset(faulty)
        self.broken: Exception | None = None

    def open(self, job: Job, task: Task) -> OpenRows:
        if self.broken is not None:
            raise self.broken
        numbers = list(ranges.rows_of(task.ranges))
        faults = {i: RowFault("template_error", "no such column") for i, n in enumerate(numbers) if n in self.faulty}
        prompts = [None if i in faults else f"row {n}" for i, n in enumerate(numbers)]
        return open_rows(task, prompts=prompts, faults=faults)


class MemorySink(PartSink):
    """Keeps each part's rows: uri → row → outcome."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[int, Outcome]] = {}

    def write(
        self,
        job: Job,
        task: Task,
        rows: OpenRows,
        results: Sequence[EngineResult | None],
        *,
        unfinished: Outcome | None,
    ) -> Settled:
        written: dict[int, Outcome] = {}
        left: list[int] = []
        for index, (row, result) in enumerate(zip(ranges.rows_of(task.ranges), results, strict=True)):
            if result is not None:
                written[row] = of_result(result.finish_reason, result.error_code)[0]
            elif index in rows.faults:
                written[row] = Outcome.ERROR
            elif unfinished is not None:
                written[row] = unfinished
            else:
                left.append(row)
        usage = _usage(results, written)
        return Settled(part=self._part(task, written), usage=usage, left=ranges.from_rows(left))

    def shares(self, job: Job) -> bool:
        return bool(job.id)

    def write_all(self, works: Sequence[Results]) -> list[Settled]:
        return [self.write(*work, unfinished=None) for work in works]

    def write_void(self, job: Job, task: Task, outcome: Outcome, code: str | None, message: str | None) -> Settled:
        written = dict.fromkeys(ranges.rows_of(task.ranges), outcome)
        return Settled(part=self._part(task, written), usage=_usage([], written), left=())

    def rows_of(self, parts: Sequence[Part]) -> dict[int, Outcome]:
        """row → outcome over these parts; a row that is in two of them fails."""
        out: dict[int, Outcome] = {}
        for part in parts:
            assert not out.keys() & self.parts[part.uri].keys(), "a row twice"
            out |= self.parts[part.uri]
        return out

    def _part(self, task: Task, written: dict[int, Outcome]) -> Part | None:
        if not written:
            return None
        part = a_part(task, ranges.from_rows(written), outcomes=_count(written))
        self.parts[part.uri] = written
        return part


def _usage(results: Sequence[EngineResult | None], written: dict[int, Outcome]) -> Usage:
    there = [result for result in results if result is not None]
    return Usage(
        rows=len(written),
        input_tokens=sum(r.input_tokens - r.cached_tokens for r in there),
        cached_tokens=sum(r.cached_tokens for r in there),
        output_tokens=sum(r.output_tokens for r in there),
        outcomes=_count(written),
    )


def _count(written: dict[int, Outcome]) -> dict[str, int]:
    outcomes = [str(outcome) for outcome in written.values()]
    return {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))}
