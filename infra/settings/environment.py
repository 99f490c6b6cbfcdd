"""The file of the setting `environment_file`: what a shell would have been told to export."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from jobs.errors import BadSetting

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)


def add_to_environment(file: Path, environ: MutableMapping[str, str]) -> None:
    """What is there already stays. Raises BadSetting; its words never repeat a value, which may be a secret."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"environment_file: {file}: {getattr(error, 'strerror', None) or error}"
        raise BadSetting(reason=reason, faults=(reason,)) from error
    for name, value in _pairs(file, text):
        environ.setdefault(name, value)


def _pairs(file: Path, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        try:
            words = shlex.split(match[2]) if match else None
        except ValueError:
            words = None
        if match is None or words is None or len(words) > 1:
            reason = f"environment_file: line {number} of {file} is not NAME=value"
            raise BadSetting(reason=reason, faults=(reason,))
        yield match[1], words[0] if words else ""
