"""Works on their way into the database, and which of them came back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from queue import SimpleQueue

from jobs.moves import Answer
from workers.about import named_pool
from workers.settler import Settler
from workers.together import Together
from workers.work import Work

_FEW_ROWS = 256


class Settling:
    """Called by its worker's loop alone; `works` may be read from any thread.

    many: threads for tasks of many rows, which take memory. few: for the others, which wait for the database; whole
    ones whose parts lie there too go in lists.
    """

    def __init__(self, settler: Settler, *, many: Executor | None = None, few: Executor | None = None) -> None:
        self._settler = settler
        self._many: Executor = many or named_pool(8, "settle")
        self._few: Executor = few or named_pool(8, "settle-few")
        self._lists: Together[Work, Answer] = Together(settler.finish_all, self._few)
        self._works: dict[Future[Answer], Work] = {}
        self._over: SimpleQueue[Future[Answer]] = SimpleQueue()

    @property
    def works(self) -> list[Work]:
        return [*self._works.values()]

    def finish(self, work: Work) -> None:
        """Begin on a work at rest."""
        if work.task.rows <= _FEW_ROWS and work.whole and self._settler.sink.shares(work.job):
            self._note(work, self._lists.submit(work))
        else:
            self._begin(self._settler.finish, work)

    def after_death(self, work: Work) -> None:
        """Begin on a work whose engine died."""
        self._begin(self._settler.after_death, work)

    def over(self) -> Iterator[tuple[Work, Future[Answer]]]:
        """Those that ended since the last call."""
        while not self._over.empty():
            future = self._over.get()
            yield self._works.pop(future), future

    def close(self) -> None:
        """Waits for what is under way."""
        self._few.shutdown(wait=True)
        self._many.shutdown(wait=True)

    def _begin(self, settle: Callable[[Work], Answer], work: Work) -> None:
        threads = self._few if work.task.rows <= _FEW_ROWS else self._many
        self._note(work, threads.submit(settle, work))

    def _note(self, work: Work, future: Future[Answer]) -> None:
        self._works[future] = work
        future.add_done_callback(self._over.put)
