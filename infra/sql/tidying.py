"""Moves what SQLite's log holds into its database file, beside those who write.

SQLite does it within a commit, each time the log has grown by so many pages: that commit and all behind it then wait
for a flush of them all, a tenth of a second on a busy machine. Done every second by somebody for whom nobody waits,
little is left for them.
"""

from __future__ import annotations

import threading

import sqlalchemy as sa
import structlog

log = structlog.get_logger()

EVERY_S = 1.0


class Tidier:
    """`stir` after a commit, from any thread; a thread of its own, from the first one on until `close`."""

    def __init__(self, engine: sa.Engine, every_s: float = EVERY_S) -> None:
        self._engine = engine
        self._every_s = every_s
        self._stirred = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def stir(self) -> None:
        """There is something to move."""
        self._stirred.set()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="database-tidier", daemon=True)
                    self._thread.start()

    def close(self) -> None:
        """Once what is under way is done."""
        self._closed.set()
        self._stirred.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            self._stirred.wait()
            if self._closed.wait(self._every_s):
                return
            self._stirred.clear()
            try:
                tidy(self._engine)
            except sa.exc.SQLAlchemyError as error:  # somebody else is at it, or the disk is full: commits will tell
                log.debug("not_tidied", reason=str(error))


def tidy(engine: sa.Engine) -> tuple[int, int]:
    """(pages in the log, those of them that lie in the file by now). It waits for nobody, and nobody for it."""
    with engine.connect() as connection:
        _, pages, moved = connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").one()
    return pages, moved
