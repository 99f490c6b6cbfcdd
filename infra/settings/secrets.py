"""What of the settings must be read nowhere: not in a log line, not in an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from urllib.parse import unquote, urlsplit

from infra.settings.table import Settings

ENVIRONMENT = ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""Variables that libraries of ours read."""
LEAST = 4
"""Shorter ones are no secrets: to hide them would garble every line that has these letters."""


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Passwords, and of URLs that may hold one the password alone; the longest first."""
    others = (environ.get(name, "") for name in ENVIRONMENT)
    found = {secret for secret in (*_secrets(settings), *others) if len(secret) >= LEAST}
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


def _secrets(settings: Settings) -> Iterator[str]:
    for field in fields(settings):
        if field.metadata and not field.repr:
            yield from _of_text(str(getattr(settings, field.name)))


def _of_text(text: str) -> Iterator[str]:
    if "://" not in text:
        yield text
        return
    try:
        password = urlsplit(text).password
    except ValueError:  # no URL after all
        yield text
        return
    if password:
        yield from (password, unquote(password))
