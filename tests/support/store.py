"""The database as tests of a worker need it: one job's board in memory, with the faults a test asks for."""

from __future__ import annotations

from collections.abc import Sequence

from jobs import moves
from jobs.board import Board
from jobs.errors import DatabaseUnavailable, NotFound
from jobs.model import Job, JobState, Task, TaskState, Usage
from jobs.moves import Answer, Move
from jobs.ports.store import Progress, Store

AWAY = DatabaseUnavailable(where="memory", reason="the test took it away")


class BoardStore(Store):
    """Answers for one job. Methods that no test needs are the port's empty ones.

    away: so many calls from now on go unanswered, and have no effect. away_at: as that, the calls with these numbers,
    counted from 0. lost_answers: so many moves are made, but their answer is lost. made: every move that was made.
    """

    def __init__(self, job: Job, tasks: Sequence[Task]) -> None:
        self._job = job
        self.board = Board(job_state=job.state, tasks={task.id: task for task in tasks})
        self.away = 0
        self.away_at: frozenset[int] = frozenset()
        self.calls = 0
        self.lost_answers = 0
        self.made: list[Move] = []
        self.progress: dict[str, Usage] = {}

    # ---- the port -------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        self._reach()
        if job_id != self._job.id:
            raise NotFound(kind="job", name=job_id, hint="")
        return self._job.evolve(state=self.board.job_state)

    def task(self, task_id: str) -> Task:
        self._reach()
        if task_id not in self.board.tasks:
            raise NotFound(kind="task", name=task_id, hint="")
        return self.board.tasks[task_id]

    def with_jobs(self, task_ids: Sequence[str]) -> dict[str, tuple[Task, Job]]:
        self._reach()
        job, tasks = self._job.evolve(state=self.board.job_state), self.board.tasks
        return {name: (tasks[name], job) for name in task_ids if name in tasks}

    def tasks(self, job_id: str, states: frozenset[TaskState], limit: int = 1000) -> list[Task]:
        self._reach()
        found = [task for task in self.board.tasks.values() if task.job == job_id and task.state in states]
        return sorted(found, key=lambda task: task.id)[:limit]

    def make(self, moves: Sequence[Move]) -> list[Answer]:
        self._reach()
        answers = [self._make(move) for move in moves]
        if self.lost_answers:
            self.lost_answers -= 1
            raise AWAY
        return answers

    def beat(self, owner: str, progress: Sequence[Progress], lease_s: float) -> dict[str, JobState]:
        self._reach()
        held = {t.token for t in self.board.tasks.values() if t.state is TaskState.LEASED and t.owner == owner}
        self.progress = {item.token: item.usage for item in progress}
        return {item.token: self.board.job_state for item in progress if item.token in held}

    def owners(self) -> list[str]:
        self._reach()
        return sorted({str(task.owner) for task in self.in_state(TaskState.LEASED)})

    def leased_by(self, owner: str) -> list[tuple[Task, Usage]]:
        self._reach()
        return [(task, Usage()) for task in self.in_state(TaskState.LEASED) if task.owner == owner]

    # ---- what a test does with it -----------------------------------------------------------------

    def set_job_state(self, state: JobState) -> None:
        self.board = self.board.evolve(job_state=state)

    def take_lease_away(self, task_id: str) -> None:
        """As the reaper does."""
        task = self.board.tasks[task_id]
        self._make(moves.hand_back(task, moves.Waste(cause="lease_lost")))

    def states(self) -> dict[str, TaskState]:
        return {task.id: task.state for task in self.board.tasks.values()}

    def in_state(self, state: TaskState) -> list[Task]:
        return [task for task in self.board.tasks.values() if task.state is state]

    def _make(self, move: Move) -> Answer:
        self.board, answer = self.board.make(move)
        if answer is Answer.MADE:
            self.made.append(move)
        return answer

    def _reach(self) -> None:
        self.calls += 1
        if self.away or self.calls - 1 in self.away_at:
            self.away = max(0, self.away - 1)
            raise AWAY


def a_store(job: Job, *tasks: Task) -> BoardStore:
    return BoardStore(job, tasks)  # type: ignore[abstract]  # what no test needs is left to the port
