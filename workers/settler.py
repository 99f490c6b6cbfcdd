"""From open work to a committed task: write the part, then make the one move that counts and charges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from jobs import ledger, moves, ranges
from jobs.errors import Broken, DatabaseUnavailable
from jobs.model import Outcome, Part, Usage, VoidReason
from jobs.moves import Answer, Group, Move, Waste
from jobs.ports.clock import Clock
from jobs.ports.rows import PartSink, Results, Settled
from jobs.ports.store import TaskStore
from jobs.retry import Backoff, Fate, PoisonPolicy, after_death
from workers.about import about
from workers.tally import Committed
from workers.work import Work

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settler:
    """Settles each work once. Every method answers LOST when the lease was no longer ours, and then changes nothing.

    A part that was written for a lost lease stays under `_parts/`, where no reader looks, until it is swept. again: how
    long a database that is away is waited for; if the lost answer was "made", the next one is "already".
    """

    store: TaskStore
    sink: PartSink
    clock: Clock
    poison: PoisonPolicy = PoisonPolicy()
    again: Backoff = Backoff()
    committed: Committed = field(default_factory=Committed)

    def finish(self, work: Work) -> Answer:
        """Work at rest: all rows done; or its job is ending; or it was stopped and the others go to a child."""
        with about(work.job, work.task):
            if work.ending is not None or not work.unfinished():
                return self._commit(work, work.ending)
            left = Group(rows=work.place(work.unfinished()), suspect=work.task.suspect)
            return self._part_with(work, [left], "drain")

    def finish_all(self, works: Sequence[Work]) -> list[Answer]:
        """As `finish` for each; they are whole. What they write shares transactions. Raises the first error: then begin
        again, alone: of one that was made meanwhile the answer is "already".
        """
        wanted = [Results(work.job, work.task, work.rows, work.results) for work in works]
        settled = self.sink.write_all(wanted)
        return self._post([self._committed(*one) for one in zip(works, settled, strict=True)], works, settled)

    def after_death(self, work: Work) -> Answer:
        """The engine died: keep what was finished, set the rows that were inside apart."""
        with about(work.job, work.task):
            return self._after_death(work)

    def _after_death(self, work: Work) -> Answer:
        inside = sorted(work.inside)
        outside = sorted(set(work.unfinished()) - work.inside)
        fate = after_death(work.task, in_engine=len(inside), policy=self.poison)
        if fate is Fate.DEAD:
            return self._make([moves.void_leased(work.task, VoidReason.DEAD, self._waste(work, "engine_died"))])[0]
        if fate is Fate.AGAIN and inside:
            deaths = work.task.alone_deaths + 1
            waste = self._waste(work, "engine_died")
            return self._make([moves.hand_back(work.task, waste, alone_deaths=deaths)])[0]
        return self._part_with(work, self._groups(work, fate, inside, outside), "engine_died")

    @staticmethod
    def _groups(work: Work, fate: Fate, inside: Sequence[int], outside: Sequence[int]) -> list[Group]:
        struck = work.place(inside)
        pieces = ranges.halves(struck) if fate is Fate.HALVE else (struck,)
        groups = [Group(rows=piece, suspect=True) for piece in pieces]
        return [*groups, Group(rows=work.place(outside), suspect=work.task.suspect)]

    def hand_back(self, work: Work, cause: str) -> Answer:
        """Nothing is kept: the task is queued again as it was."""
        with about(work.job, work.task):
            return self._make([moves.hand_back(work.task, self._waste(work, cause))])[0]

    def _commit(self, work: Work, unfinished: Outcome | None) -> Answer:
        settled = self.sink.write(work.job, work.task, work.rows, work.results, unfinished=unfinished)
        return self._post([self._committed(work, settled)], [work], [settled])[0]

    def _committed(self, work: Work, settled: Settled) -> Move:
        part = _complete(work, settled, [])
        entries = self._charge(work, settled.usage)
        waste = self._aborted(work, "aborted")
        return moves.commit(work.task, part=part, usage=settled.usage, entries=entries, waste=waste)

    def _part_with(self, work: Work, groups: Sequence[Group], cause: str) -> Answer:
        """Commit the finished rows, if any, and leave the groups to children."""
        filled = [group for group in groups if group.rows]
        settled = self._write_finished(work)
        if settled.part is not None:
            drain = moves.drain(
                work.task,
                filled,
                part=_complete(work, settled, filled),
                usage=settled.usage,
                entries=self._charge(work, settled.usage),
                waste=self._aborted(work, cause),
            )
            return self._post([drain], [work], [settled])[0]
        if len(filled) == 1:
            waste = self._waste(work, cause)
            suspect = True if filled[0].suspect else None
            return self._make([moves.hand_back(work.task, waste, suspect=suspect)])[0]
        return self._make([moves.divide(work.task, filled, self._waste(work, cause))])[0]

    def _write_finished(self, work: Work) -> Settled:
        if not any(result is not None for result in work.results) and not work.rows.faults:
            return Settled(part=None, usage=Usage(), left=work.task.ranges)
        return self.sink.write(work.job, work.task, work.rows, work.results, unfinished=None)

    def _charge(self, work: Work, usage: Usage) -> tuple[ledger.Entry, ...]:
        return ledger.charge(work.job, work.task.id, usage, self.clock.now())

    def _waste(self, work: Work, cause: str) -> Waste:
        return self._wasted(work, cause, work.finished.usage().plus(work.aborted.usage()))

    def _aborted(self, work: Work, cause: str) -> Waste | None:
        return self._wasted(work, cause, work.aborted.usage()) if work.aborted.rows else None

    def _wasted(self, work: Work, cause: str, usage: Usage) -> Waste:
        return waste_of(work, cause, usage, self.clock.now())

    def _post(self, wanted: Sequence[Move], works: Sequence[Work], settled: Sequence[Settled]) -> list[Answer]:
        """Moves that commit rows."""
        began = self.clock.monotonic()
        answers = self._make(wanted)
        seconds = self.clock.monotonic() - began
        for move, answer, work, one in zip(wanted, answers, works, settled, strict=True):
            if answer is not Answer.LOST:
                self.committed.note(one.usage, seconds)
            with about(work.job, work.task):
                log.info("task_settled", move=move.name, answer=answer, rows=one.usage.rows, seconds=round(seconds, 4))
        return answers

    def _make(self, wanted: Sequence[Move]) -> list[Answer]:
        attempt = 0
        while True:
            try:
                return self.store.make(wanted)
            except DatabaseUnavailable as error:
                attempt += 1
                wait_s = self.again.wait_s(attempt)
                if wait_s is None:
                    raise
                log.warning("settling_again", move=wanted[0].name, reason=error.sentence, in_s=wait_s)
                self.clock.sleep(wait_s)


def _complete(work: Work, settled: Settled, groups: Sequence[Group]) -> Part:
    """The part, once it and the children are known to hold every row of the task between them."""
    written = settled.part.rows if settled.part else 0
    left = sum(ranges.count(group.rows) for group in groups)
    if settled.part is None or written + left != work.task.rows:
        raise Broken(
            reason=f"task {work.task.id} has {work.task.rows} rows, but {written} were written and {left} left"
        )
    return settled.part


def waste_of(work: Work, cause: str, usage: Usage, at: float) -> Waste:
    """A waste event; it posts only when tokens were spent."""
    tokens = usage.input_tokens + usage.cached_tokens + usage.output_tokens
    entries = ledger.waste(work.job, work.task.id, work.task.epoch, cause, usage, at) if tokens else ()
    return Waste(cause=cause, usage=usage, entries=entries)
