"""How much of a JSON Schema is too much: what would take a grammar compiler, a validator or us too long is refused.

Every bound is static, so that no schema has to be tried to find out. Measured with xgrammar on two cores: the time goes
with the square of the properties that may be missing, and with the product of a pattern's repetitions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from jobs.errors import BadSchema

MAX_BYTES = 128 << 10
MAX_NESTING = 64
"""As in vLLM: objects and arrays inside each other, in the text of the schema."""
MAX_PROPERTIES = 2000
MAX_OPTIONAL = 300
MAX_VALUES = 5000
MAX_PATTERN = 1000
MAX_REPEATS = 10_000
MAX_COUNT = 1_000_000
MAX_UNFOLDED = 100_000
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_ELSEWHERE = ("$dynamicRef", "$recursiveRef")
_REPEATS = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_HERE = ("allOf", "anyOf", "oneOf")
"""Words whose schemas look at the same value as the one they stand in."""
_HERE_TOO = ("not", "if", "then", "else")


def check_bounds(text: str, schema: Any) -> None:
    """Raises BadSchema. schema: the parsed text."""
    if len(text) > MAX_BYTES:
        raise BadSchema(reason=f"it has {len(text)} characters, more than {MAX_BYTES}")
    parts = list(_objects(schema))
    _check_sum("properties", MAX_PROPERTIES, [len(found) for found in _mappings(parts, "properties")])
    _check_sum("enum values", MAX_VALUES, [len(part["enum"]) for part in parts if isinstance(part.get("enum"), list)])
    for part in parts:
        _check_part(part)
    _check_unfolded(schema, parts)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in it, level by level: no recursion, because the depth is not known to be small yet."""
    level = [schema]
    for _ in range(MAX_NESTING + 1):
        yield from (node for node in level if isinstance(node, dict))
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise BadSchema(reason=f"it is nested more than {MAX_NESTING} deep")


def _mappings(parts: list[dict[str, Any]], word: str) -> list[dict[str, Any]]:
    return [part[word] for part in parts if isinstance(part.get(word), dict)]


def _check_sum(what: str, most: int, counts: list[int]) -> None:
    if sum(counts) > most:
        raise BadSchema(reason=f"it has {sum(counts)} {what}, more than {most}")


def _check_part(part: dict[str, Any]) -> None:
    properties, required = part.get("properties"), part.get("required")
    if isinstance(properties, dict):
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
        optional = len(properties.keys() - needed)
        if optional > MAX_OPTIONAL:
            raise BadSchema(reason=f"an object has {optional} properties that are not required; {MAX_OPTIONAL} may be")
    for word in _ELSEWHERE:
        if word in part:
            raise BadSchema(reason=f"{word} cannot be used; refer with $ref to what stands under $defs")
    ref = part.get("$ref")
    if isinstance(ref, str) and ref.startswith("#") and ref != "#" and not ref.startswith("#/"):
        raise BadSchema(reason=f"$ref {ref} is no JSON pointer; refer to what stands under $defs")
    for word in _COUNTS:
        count = part.get(word)
        if isinstance(count, int | float) and count > MAX_COUNT:
            raise BadSchema(reason=f"{word} is {count}, more than {MAX_COUNT}")
    patterns = part.get("patternProperties")
    for pattern in (part.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
        if isinstance(pattern, str):
            _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise BadSchema(reason=f"a pattern has {len(pattern)} characters, more than {MAX_PATTERN}")
    repeats = math.prod(max(int(high or low), 1) for low, high in _REPEATS.findall(pattern))
    if repeats > MAX_REPEATS:
        raise BadSchema(reason=f"the repetitions of a pattern come to {repeats} together, more than {MAX_REPEATS}")


# ---- references ---------------------------------------------------------------------------------


def _check_unfolded(root: Any, parts: list[dict[str, Any]]) -> None:
    """Walk from every schema through what looks at the same value, references included, as a validator would.

    Without end where one refers to itself that way; and a few lines of references to references can unfold into more
    than anyone can check.
    """
    left = MAX_UNFOLDED
    for part in parts:
        stack: list[tuple[Any, frozenset[str]]] = [(part, frozenset())]
        while stack:
            left -= 1
            if left < 0:
                raise BadSchema(reason=f"its references unfold into more than {MAX_UNFOLDED} parts")
            node, behind = stack.pop()
            if isinstance(node, dict):
                stack += _same_value(root, node, behind)


def _same_value(root: Any, node: dict[str, Any], behind: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    ref = node.get("$ref")
    if isinstance(ref, str):
        if ref in behind:
            raise BadSchema(reason=f"{ref} refers to itself without end")
        yield target(root, ref), behind | {ref}
    for word in _HERE:
        if isinstance(node.get(word), list):
            yield from ((branch, behind) for branch in node[word])
    yield from ((node[word], behind) for word in _HERE_TOO if word in node)


def target(root: Any, ref: str) -> Any:
    """What a reference inside the schema names; None if nothing."""
    if not ref.startswith("#"):
        return None
    found: Any = root
    for part in ref.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
