"""The data directory's secret: 32 random bytes, made once, from which the tenants' prefix-cache salts are derived."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from jobs.errors import StorageCorrupt

BYTES = 32


def home_secret(home: Path) -> bytes:
    """Read it; the first process to ask makes it. Only its owner may read the file. Raises StorageCorrupt."""
    file = home / "secret"
    if not file.exists():
        _make(file)
    secret = file.read_bytes()
    if len(secret) != BYTES:
        raise StorageCorrupt(uri=str(file), reason=f"it has {len(secret)} bytes instead of {BYTES}")
    return secret


def _make(file: Path) -> None:
    """Written beside and linked: whoever links first wins, and nobody sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".secret-{secrets.token_hex(8)}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, secrets.token_bytes(BYTES))
        os.fsync(handle)
        _link(beside, file)
    finally:
        os.close(handle)
        beside.unlink(missing_ok=True)


def _link(beside: Path, file: Path) -> None:
    try:
        file.hardlink_to(beside)
    except FileExistsError:
        return  # another process was quicker; its secret holds
    except OSError:  # a file system without hard links
        beside.rename(file)
