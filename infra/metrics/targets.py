"""Files by which Prometheus finds the ports, in the form of its file_sd_configs: one a process, and gone with it.

Beside each lies a lock that dies with its process: whoever comes next removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.locks import FileLock, LockTaken

Target = tuple[str, Mapping[str, str]]
"""(`host:port`, labels)"""


class TargetFile:
    """The file of this process, until `close` or its end."""

    def __init__(self, folder: Path, name: str, target: Target) -> None:
        sweep(folder)
        path = folder / f"{name}@{socket.gethostname()}.lock"
        self._lock = FileLock(path)
        self._file = path.with_suffix(".json")
        write_targets(self._file, [target])

    def close(self) -> None:
        self._file.unlink(missing_ok=True)
        self._lock.close()


def write_targets(file: Path, targets: Sequence[Target]) -> None:
    """A file that is whole at any time."""
    body = [{"targets": [target], "labels": dict(labels)} for target, labels in targets]
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(body, indent=1) + "\n")
    fresh.replace(file)


def read_targets(folder: Path, *, but: str = "") -> set[str]:
    """Every `host:port` that a file of the folder lists; but: name of a file to leave out."""
    found: set[str] = set()
    for file in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            entries = json.loads(file.read_text()) if file.name != but else []
            found |= {target for entry in entries for target in entry["targets"]}
    return found


def sweep(folder: Path) -> None:
    """Remove what killed processes of this machine left. Of other machines no lock is seen, so theirs stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"*@{socket.gethostname()}.lock"):
        with contextlib.suppress(LockTaken):
            lock = FileLock(path)
            path.with_suffix(".json").unlink(missing_ok=True)
            lock.close()
