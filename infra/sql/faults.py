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

# SQLSTATEs of PostgreSQL.
_DISK_FULL = "53100"
_READ_ONLY = "25006"
"""The server is a standby now: whoever took over has to be found."""
_ROLLED_BACK = frozenset({"40001", "40P01"})
"""Serialization failure, deadlock."""
_BAD_STATEMENT = "42"
_NO_PRIVILEGE = "42501"
"""Of the same class, but for the operator to grant."""
_AWAY = ("08", "57P", "25P03", "25P04", "53300", _READ_ONLY)
"""Connection lost, server going or coming, transaction ended for its idleness or length, too many connections."""


class DatabaseNewer(Refused):
    """The database {where} was written by a newer Nightmill (revision {revision}). Upgrade this one."""

    code = "database_newer"


class DatabaseUnfit(Refused):
    """The database {where} cannot be used: {reason}."""

    code = "database_unfit"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise ours for theirs, with the cause kept. Nothing above this module sees an exception of SQLAlchemy."""
    try:
        yield
    except exc.IntegrityError as error:
        raise _integrity(error) from error
    except exc.DataError as error:
        raise _bug(error.orig, where) from error
    except exc.DBAPIError as error:
        raise _dbapi(error.orig, where) from error
    except sqlite3.Error as error:
        raise _dbapi(error, where) from error
    except exc.SQLAlchemyError as error:
        raise DatabaseUnavailable(where=where, reason=_line(error)) from error


def passes(error: DatabaseUnavailable) -> bool:
    """Whether the same transaction may be tried again at once: the server rolled it back, or is away for a moment.

    A transaction that waited in vain for a lock or ran out of time does not pass: its caller has waited enough.
    """
    cause = error.__cause__
    if not isinstance(cause, exc.DBAPIError):
        return False
    state = _sqlstate(cause.orig)
    if state is None:  # libpq tells no SQLSTATE of a connection that it could not make or that broke
        return cause.connection_invalidated or _is_of_connecting(cause)
    return state in _ROLLED_BACK or state.startswith(_AWAY)


def is_read_only(error: DatabaseUnavailable) -> bool:
    """Whether the server, once the primary, is a standby now."""
    cause = error.__cause__
    return isinstance(cause, exc.DBAPIError) and _sqlstate(cause.orig) == _READ_ONLY


def _is_of_connecting(error: exc.DBAPIError) -> bool:
    """Without a statement there was no connection to carry it."""
    return isinstance(error, exc.OperationalError) and error.statement is None


def _sqlstate(error: BaseException | None) -> str | None:
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def _integrity(error: exc.IntegrityError) -> Conflict | Broken:
    text = _line(error.orig or error)
    if "append-only" in text:
        return Broken(reason=text)
    return Conflict(reason=text)


def _dbapi(error: BaseException | None, where: str) -> DatabaseUnavailable | StorageFull | Broken:
    name, state = getattr(error, "sqlite_errorname", None) or "", _sqlstate(error) or ""
    if name == "SQLITE_FULL" or "database or disk is full" in str(error) or state == _DISK_FULL:
        return StorageFull(where=where)
    if state.startswith(_BAD_STATEMENT) and state != _NO_PRIVILEGE:
        return _bug(error, where)
    if name.startswith("SQLITE_IOERR") and _no_room(where):
        return StorageFull(where=where)
    return DatabaseUnavailable(where=where, reason=_line(error))


def _bug(error: BaseException | None, where: str) -> Broken:
    return Broken(reason=f"the database {where} refuses a statement: {_line(error)}")


def _no_room(where: str) -> bool:
    try:
        room = os.statvfs(os.path.dirname(where) or ".")  # noqa: PTH120  # `where` is for people and may be no path
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _NO_ROOM_BYTES


def _line(error: BaseException | None) -> str:
    """PostgreSQL's first line only: its details quote values, and whoever reads this may be another tenant."""
    told = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return " ".join(told.split())
