"""Logs: a constant event name with data, as JSON lines in a file; on stderr only what a person must see.

The file may be written by several processes at once: each line is one append. `bind` puts ids on every later event of
the thread, `unbind` takes them off. A secret of the settings is in no line, whoever put it there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

from jobs.errors import BadSetting, StorageFull

MAX_BYTES = 64 << 20
"""A longer log file is set aside at the next start, over the one set aside before."""

HIDDEN = "[hidden]"
Show = Callable[[str], None]

bind = structlog.contextvars.bind_contextvars
unbind = structlog.contextvars.unbind_contextvars


def set_up(file: Path, level: str = "info", show: Show | None = None, secrets: Sequence[str] = ()) -> None:
    """Send events of `level` and above to the file, and warnings and errors to `show` (default: stderr).

    A live view passes its own `show`, so that a warning does not break it. secrets: texts that are in no line, whatever
    an event holds. Raises BadSetting where the file cannot be written, StorageFull.
    """
    lines, hide = _Lines(file), _hiding(secrets)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _Showing(show or _to_stderr, hide),
            lambda _, __, event: hide(_as_json(event)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )


class _Lines:
    """A structlog logger that appends lines to a file, one system call each, so that processes do not mix theirs."""

    def __init__(self, file: Path) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.is_file() and file.stat().st_size > MAX_BYTES:
                file.replace(file.with_name(file.name + ".1"))
            self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            weakref.finalize(self, os.close, self._fd)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise StorageFull(where=str(file)) from error
            fault = f"log_file: {file}: {error.strerror or error}"
            raise BadSetting(reason=fault, faults=(fault,)) from error

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):  # a full disk must not stop what could still be committed
            os.write(self._fd, message.encode("utf-8", "backslashreplace") + b"\n")

    debug = info = warning = error = critical = exception = fatal = log = msg


def _hiding(secrets: Sequence[str]) -> Callable[[str], str]:
    """Replaces every secret, also as it is written inside a JSON text."""
    forms = [form for secret in secrets for form in {secret, _in_json(secret)}]

    def hide(line: str) -> str:
        for form in forms:
            line = line.replace(form, HIDDEN)
        return line

    return hide


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _as_json(event: EventDict) -> str:
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return json.dumps({**first, **event}, default=str, ensure_ascii=False)


class _Showing:
    """Shows warnings and errors to a person, without their traceback: that is in the file."""

    def __init__(self, show: Show, hide: Callable[[str], str]) -> None:
        self._show = show
        self._hide = hide

    def __call__(self, _: WrappedLogger, method: str, event: EventDict) -> EventDict:
        silent = event.pop("silent", False)  # for what is shown to the person in another way
        if not silent and method in {"warning", "error", "critical", "exception"}:
            self._show(self._hide(line(event)))
        return event


def line(event: EventDict) -> str:
    """ "error: engine died: reason=…, tasks=…": an event for people."""
    hidden = {"event", "level", "timestamp", "exception", "stack"}
    data = ", ".join(f"{key}={_short(value)}" for key, value in event.items() if key not in hidden)
    words = str(event.get("event", "")).replace("_", " ")
    return f"{event.get('level', 'warning')}: {words}" + (f": {data}" if data else "")


def _short(value: Any, most: int = 200) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - it is for the person at the terminal
