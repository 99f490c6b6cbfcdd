"""What goes wrong in a database, said once in our words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from jobs.errors import Broken, Conflict, DatabaseUnavailable, Refused, StorageFull

_NO_ROOM_BYTES = 1 << 20
"""Below this much free space an input/output error of SQLite is taken for a full disk: its shared memory file fails
that way."""


class DatabaseNewer(Refused):
    """The database {where} was written by a newer Nightmill (revision {revision}). Upgrade this one."""

    code = "database_newer"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise ours for theirs, with the cause kept. Nothing above this module sees an exception of SQLAlchemy."""
    try:
        yield
    except exc.IntegrityError as error:
        raise _integrity(error) from error
    except exc.DBAPIError as error:
        raise _dbapi(error.orig, where) from error
    except sqlite3.Error as error:
        raise _dbapi(error, where) from error
    except exc.SQLAlchemyError as error:
        raise DatabaseUnavailable(where=where, reason=_line(error)) from error


def _integrity(error: exc.IntegrityError) -> Conflict | Broken:
    text = _line(error.orig or error)
    if "append-only" in text:
        return Broken(reason=text)
    return Conflict(reason=text)


def _dbapi(error: BaseException | None, where: str) -> DatabaseUnavailable | StorageFull:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name == "SQLITE_FULL" or "database or disk is full" in str(error):
        return StorageFull(where=where)
    if name.startswith("SQLITE_IOERR") and _no_room(where):
        return StorageFull(where=where)
    return DatabaseUnavailable(where=where, reason=_line(error))


def _no_room(where: str) -> bool:
    try:
        room = os.statvfs(os.path.dirname(where) or ".")  # noqa: PTH120  # `where` is for people and may be no path
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _NO_ROOM_BYTES


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())
