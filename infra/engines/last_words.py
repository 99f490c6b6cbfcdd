"""From a log that an engine left behind to the one sentence that says why it did not start."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

TAIL_BYTES = 256 * 1024
MAX_CHARS = 600
DEATH_LINES = 400
"""A death's own traceback is among the last lines; an error further up was survived."""
_PREFIX = re.compile(r"^(\([\w ]+pid=\d+\) )?((DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ \[[^\]]*\] ?)?")
_ERROR = re.compile(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception|Exit|Interrupt|Failed|Refused))(?::\s*(.*))?$")
_EMPTY_PHRASES = ("see root cause above", "Failed core proc", "Engine core initialization failed")
_WORKER_DIED = re.compile(r"proc (\S+) died unexpectedly \(exit code: (-?\d+)\)")
_FATAL = re.compile(
    r"out of memory|segmentation fault|bus error|illegal instruction|cannot open shared object", re.IGNORECASE
)


def start_reason(failure: str, lines: Sequence[str], code: int | None) -> str:
    """Why a start failed: the engine's own report, the root cause in its log, or its exit, whichever says most."""
    if failure and not any(phrase in failure for phrase in _EMPTY_PHRASES):
        return failure
    words = useful_error(lines)
    ended = exit_words(code) if code is not None else ""
    if code is not None and code < 0:
        return f"{ended}; last words: {words}" if words else ended
    return words or failure or ended or "it gave no reason"


def death_reason(failure: str, lines: Sequence[str], code: int | None) -> str:
    """Why an engine died at work: which of its processes ended and how, with its last error if that says more."""
    worker = next((found for line in reversed(lines) if (found := _WORKER_DIED.search(line))), None)
    if worker:
        return f"{worker[1]}: {exit_words(int(worker[2]))}"
    if not failure:
        return exit_words(code) if code is not None else "it closed its connection"
    words = root_cause(lines[-DEATH_LINES:])
    return f"{failure}; last words: {words}" if words else failure


def exit_words(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
    hint = " (often: out of memory)" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"


def read_tail(log: Path, start: int) -> list[str]:
    """The lines written since byte `start`, at most the last 256 KiB of them."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def useful_error(lines: Sequence[str]) -> str:
    """The root cause among the lines, else the last words at all."""
    last = [bare for line in lines if (bare := _PREFIX.sub("", line).strip())][-3:]
    return root_cause(lines) or _short(" / ".join(last))


def root_cause(lines: Sequence[str]) -> str:
    """The first exception or fatal message that says something; empty if there is none."""
    bare = [_PREFIX.sub("", line).rstrip() for line in lines]
    for line in bare:
        found = _ERROR.match(line)
        if found and found[2] and not any(phrase in line for phrase in _EMPTY_PHRASES):
            return _short(f"{found[1]}: {found[2]}")
    for line in bare:
        if _FATAL.search(line):
            return _short(line)
    return ""


def _short(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
