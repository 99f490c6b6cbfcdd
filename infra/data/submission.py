"""A job submission as the value of a message: JSON, checked against the schema that ships beside this module."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson

from infra.hints import nearest
from jobs.errors import BadInput

SCHEMA = Path(__file__).with_name("submission.schema.json")
_WHOLE = {"#/$defs/count", "#/$defs/whole"}
_SHOWN = 5
_LONGEST = 200


def read_submission(value: bytes) -> dict[str, Any]:
    """The fields by their names; one that is null is as one that is missing. Raises BadInput naming what is wrong."""
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise BadInput(source="the message's value", reason=f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(source="the message's value", reason="it is no JSON object")
    schema, validator = _schema()
    known: dict[str, Any] = schema["properties"]
    given = {name: item for name, item in found.items() if item is not None}
    mine = {name: item for name, item in given.items() if name in known}
    if faults := [*_unknown(given, known), *(_sentence(error, known) for error in validator.iter_errors(mine))]:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise BadInput(source="the submission", reason="; ".join(map(_short, faults[:_SHOWN])) + more)
    return {name: _whole(item) if known[name].get("$ref") in _WHOLE else item for name, item in mine.items()}


@cache
def _schema() -> tuple[dict[str, Any], jsonschema_rs.Validator]:
    schema: dict[str, Any] = orjson.loads(SCHEMA.read_bytes())
    return schema, jsonschema_rs.validator_for(schema)


def _unknown(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """The validator's own words would not say which name was meant."""
    faults = []
    for name in sorted(set(given) - set(known)):
        near = nearest(name, known)
        faults.append(f"the field {name} is not known" + (f", did you mean {near}?" if near else ""))
    return faults


def _sentence(error: jsonschema_rs.ValidationError, known: dict[str, Any]) -> str:
    place = [str(part) for part in error.instance_path]
    if not place:
        return error.message
    if "anyOf" in error.schema_path:  # the validator names all that it is not
        return f"{place[0]}: it does not fit: {known[place[0]]['description']}"
    return f"{'.'.join(place)}: {error.message}"


def _whole(value: float) -> int:
    """JSON Schema takes 5.0 for a whole number, and so it is one."""
    return int(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
