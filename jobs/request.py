"""What a job is asked for by, whoever asks: names and values of a request, the same from a terminal and from a topic.

Values here are of the right type already (the command line's options, the ingress's schema see to that); what is left
is to read durations and shares, and to say of two requests whether they are the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any
from urllib.parse import unquote

from jobs.errors import BadInput, StorageRefused
from jobs.model import Priority, Value
from jobs.ports.intake import SubmitRequest

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NOT_ASKED_FOR = frozenset(
    {"tenant", "creator", "idempotency_key", "engine_args", "asked_model", "endpoint", "webhook", "foreign"}
)
"""Who asks, how an engine is run, who is told, how the input is looked at: the rows are the same for it."""
_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Value):
    """A sampling parameter by its OpenAI or vLLM name. low, high: the range, ends included but for `above_low`."""

    name: str
    help: str
    whole: bool = False
    low: float | None = None
    high: float | None = None
    above_low: bool = False


SAMPLING = (
    Parameter(
        name="max_tokens",
        help="Output tokens a row may have; a row cut off by it is `truncated`.",
        whole=True,
        low=1,
    ),
    Parameter(name="temperature", help="0 picks the likeliest token each time.", low=0, high=2),
    Parameter(name="top_p", help="Nucleus sampling.", low=0, high=1, above_low=True),
    Parameter(name="top_k", help="Sample among the k likeliest tokens.", whole=True, low=-1),
    Parameter(name="min_p", help="Least probability, relative to the likeliest token's.", low=0, high=1),
    Parameter(name="seed", help="Seed of the sampling of every row.", whole=True),
    Parameter(name="presence_penalty", help="Penalty on tokens that occurred.", low=-2, high=2),
    Parameter(name="frequency_penalty", help="Penalty on tokens by how often they occurred.", low=-2, high=2),
    Parameter(name="repetition_penalty", help="Factor against repetition; 1 for none.", low=0, high=2, above_low=True),
)


def share(value: Any) -> float | None:
    """ "20%", "0.2", 0.2 as a share; "never" as None. Raises ValueError with a sentence."""
    if value is None or value == "never":
        return None
    text = str(value)
    try:
        found = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{value!r} is no share: write 20%, 0.2 or never") from None
    if not 0 <= found <= 1:
        raise ValueError(f"{value!r} is not between 0% and 100%")
    return found


def duration_s(value: Any) -> float:
    """ "90s", "30m", "8h", "2d", or a number of seconds. Raises ValueError with a sentence."""
    if isinstance(value, (int, float)):
        return float(value)
    found = _DURATION.fullmatch(value.strip())
    if not found:
        raise ValueError(f"{value!r} is no duration: write 90s, 30m, 8h or 2d")
    return float(found[1]) * _SECONDS[found[2]]


def request_of(
    asked: Mapping[str, Any],
    *,
    tenant: str,
    creator: str,
    key: str | None = None,
    engine_args: Mapping[str, Any] | None = None,
) -> SubmitRequest:
    """asked: by the names of docs/ingress.md; what is missing or None has its default. Raises BadInput naming one."""
    given = {name: value for name, value in asked.items() if value is not None}
    return SubmitRequest(
        tenant=tenant,
        creator=creator,
        sampling=sampling_of(given),
        engine_args=engine_args or {},
        idempotency_key=key,
        **{field: _read(name, read, given[name]) for name, (field, read) in _FIELDS.items() if name in given},
    )


def sampling_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters among what was given."""
    found = {p.name: given[p.name] for p in SAMPLING if given.get(p.name) is not None}
    stop = given.get("stop")
    return {**found, "stop": [stop] if isinstance(stop, str) else list(stop)} if stop else found


def _as_it_is(value: Any) -> Any:
    return value


def _schema(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _vary(value: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {column: tuple(values) for column, values in value.items()}


_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "input": ("input", _as_it_is),
    "model": ("model", _as_it_is),
    "output": ("output", _as_it_is),
    "pool": ("pool", _as_it_is),
    "priority": ("priority", Priority),
    "id": ("id_column", _as_it_is),
    "system": ("system", _as_it_is),
    "prompt": ("prompt", _as_it_is),
    "template": ("template", _as_it_is),
    "schema": ("schema", _schema),
    "keep": ("keep", tuple),
    "vary": ("vary", _vary),
    "limit": ("limit", _as_it_is),
    "order": ("order", _as_it_is),
    "sample": ("sample", _as_it_is),
    "sample_seed": ("sample_seed", _as_it_is),
    "pause_on": ("pause_on", share),
    "rows_per_task": ("rows_per_task", _as_it_is),
    "deadline": ("deadline_s", duration_s),
    "project": ("project", _as_it_is),
    "tags": ("tags", dict),
}
"""What a request's names are called in `SubmitRequest`, and how they are read; the rest have its defaults."""

_NAME_OF = {field: name for name, (field, _) in _FIELDS.items()}

NAMES = frozenset({*_FIELDS, *(parameter.name for parameter in SAMPLING), "stop"})
"""All names that `request_of` reads."""


def _read(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise BadInput(source=name, reason=str(error)) from error


# ---- the same request again ---------------------------------------------------------------------


def digest(request: SubmitRequest) -> dict[str, str]:
    """By the name of each value that is not at its default: the beginning of the SHA-256 of its value as JSON.

    A field that a later release adds is missing in what an earlier one wrote, and so counts as its default there.
    """
    asked: dict[str, Any] = {}
    for field in fields(SubmitRequest):
        value = getattr(request, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in _NOT_ASKED_FOR and value != default:
            asked |= dict(value) if field.name == "sampling" else {_NAME_OF[field.name]: value}
    return {name: hashlib.sha256(_json(value).encode()).hexdigest()[:_DIGEST_CHARS] for name, value in asked.items()}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the fields in which two digests differ; none where the first was not kept."""
    if not before:
        return []
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# ---- storage ------------------------------------------------------------------------------------


def check_storage(uri: str, prefixes: Sequence[str], *, setting: str) -> None:
    """Whether an ingress may name it: below one of the prefixes, and not by way of `..`. Raises StorageRefused."""
    place = _plain(uri)
    inside = any(place == p.rstrip("/") or place.startswith(p if p.endswith("/") else f"{p}/") for p in prefixes)
    if not inside or {".", ".."} & set(place.split("/")):
        raise StorageRefused(uri=uri, setting=setting, prefixes=", ".join(prefixes) or "nothing")


def _plain(uri: str) -> str:
    """With the scheme in small letters; a local file as it is opened, its %-escapes read, a path as a `file://` URI."""
    match = _SCHEME.match(uri)
    if match is None:
        return f"file://{uri}"
    scheme, rest = match[1].lower(), uri[match.end() :]
    return f"file://{unquote(rest).removeprefix('localhost')}" if scheme == "file" else f"{scheme}://{rest}"
