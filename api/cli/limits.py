"""Options for the limits of interactive requests, of a tenant or a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from jobs.tenancy import LIMITS, ApiKey, RequestLimits, Tenant

F = TypeVar("F", bound=Callable[..., Any])

NONE = 0
"""What "none" is given as: no limit. None is what was not given."""
_HELP = {
    "requests_per_minute": "Interactive requests a minute.",
    "tokens_per_minute": "Tokens a minute of interactive requests: the prompt, and at most what may be generated.",
    "concurrent_requests": "Interactive requests at a time.",
}
_WORDS = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "concurrent_requests": "requests at a time",
}
_MOST = 10**12


class Most(click.ParamType[int]):
    """A whole number from 1, or "none"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == "none":
            return NONE
        text = str(value).replace("_", "")
        if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= _MOST):
            self.fail(f"{value!r} is no limit: write a whole number from 1, or none.", param, ctx)
        return int(text)


def limit_options(command: F) -> F:
    """`--requests-per-minute`, `--tokens-per-minute`, `--concurrent-requests`."""
    for field in reversed(LIMITS):
        option = click.option(f"--{field.replace('_', '-')}", type=Most(), metavar="N|none", help=_HELP[field])
        command = option(command)
    return command


def given(options: Mapping[str, int | None]) -> dict[str, int | None]:
    """Of a command's options those that were given, by field."""
    return {field: options[field] or None for field in LIMITS if options[field] is not None}


def said(record: ApiKey | Tenant) -> str:
    """ "60 requests a minute, 4 requests at a time", or "" without limits."""
    limits = RequestLimits.of(record).fields
    return ", ".join(f"{most:,} {_WORDS[field]}" for field, most in limits.items() if most is not None)
