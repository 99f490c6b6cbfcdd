"""What the exit codes mean, and which error gives which."""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from jobs.errors import Conflict, NightmillError, Refused, Unavailable


class Exit(IntEnum):
    """The exit code of every command."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "Done."
    BUG = 1, "Something unexpected, a fault in Nightmill (the log has the traceback); or a book that does not add up."
    REFUSED = 2, "The request cannot be taken as it is: change it. Also for a wrong command line."
    SOME_ERRORS = 3, "The job is finished, and some of its rows are errors."
    PAUSED = 4, "The job is paused or was stopped; `nightmill resume` goes on."
    NOT_COMPLETED = 5, "The job was cancelled, expired or failed."
    TIMED_OUT = 6, "The wait timed out; the job goes on."
    UNAVAILABLE = 7, "An engine, the database or the disk cannot be used now; try again."
    CONFLICT = 8, "Someone else has it: another process runs the job, or the object is already there."
    INTERRUPTED = 130, "Stopped at once by Ctrl-C; what was committed is kept."
    PIPE_CLOSED = 141, "Whoever read the output stopped reading."


def exit_for(error: NightmillError) -> Exit:
    """By the branch of the error tree: who has to act."""
    if isinstance(error, Refused):
        return Exit.REFUSED
    if isinstance(error, Conflict):
        return Exit.CONFLICT
    return Exit.UNAVAILABLE if isinstance(error, Unavailable) else Exit.BUG
