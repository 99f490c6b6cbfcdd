"""The engine arguments of the fake engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from infra.engines.backend import StartFailed, check_argument_names


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeArgs:
    """Engine arguments of the fake engine. Speeds of 0 mean: as fast as possible.

    rows_per_s, tokens_per_s (output): of the whole engine. row_latency_s, token_latency_s: added to each row, and for
    each of its output tokens.
    Faults: `die_on`, `hang_on`, `error_on`, `length_on` act on a row whose prompt holds the text; `die_after_rows` and
    `hang_after_rows` act once that many rows have finished. To die is SIGKILL, as from the kernel when memory ran out.
    tool_call_parser: any name, so that lines may bring tools. call_on: a row whose prompt holds the text calls the
    first of its tools; where the line says that it must call one, every row does.
    """

    max_num_seqs: int = 256
    max_model_len: int = 4096
    embedding_size: int = 64
    start_s: float = 0.0
    rows_per_s: float = 0.0
    tokens_per_s: float = 0.0
    row_latency_s: float = 0.0
    token_latency_s: float = 0.0
    die_on: str = ""
    hang_on: str = ""
    error_on: str = ""
    length_on: str = ""
    die_after_rows: int = 0
    hang_after_rows: int = 0
    tool_call_parser: str = ""
    call_on: str = ""


_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("text", (str,)),
}


def read_args(given: Mapping[str, Any]) -> FakeArgs:
    """Raises StartFailed naming the argument."""
    check_argument_names(given, [f.name for f in fields(FakeArgs)])
    for field in fields(FakeArgs):
        value = given.get(field.name, field.default)
        wanted, kinds = _KINDS[type(field.default)]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise StartFailed(f"{field.name} must be {wanted}, not {value!r}")
    return FakeArgs(**given)
