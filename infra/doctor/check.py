"""What a check of the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobs.model import Value


class Level(StrEnum):
    """warn: a run may work, slower or not with every model. fail: no run can work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Value):
    """found: what is there. mend: what to do, "" if nothing."""

    name: str
    level: Level
    found: str
    mend: str = ""
