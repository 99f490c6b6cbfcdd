"""What the engine's process asks of an engine library, and the errors that cross its edge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Protocol

from infra.engines.spec import EngineSpec
from jobs.ports.engine import EngineInfo, EnginePiece, EngineRequest, EngineResult, Occupancy, RequestProfile

Deliver = Callable[[Sequence[EngineResult]], None]
"""Takes finished rows from any thread; cheap."""
Tell = Callable[[Sequence[EnginePiece]], None]
"""Takes pieces of rows, before the rows; as `Deliver`."""
Die = Callable[[str], None]
"""Reports that the engine is dead, with the reason; ends the process."""


class StartFailed(Exception):
    """The engine cannot start; the message is what the user reads."""


class SchemaRefused(Exception):
    """Guided decoding cannot take the schema; the message says what."""


class Backend(Protocol):
    """An engine library inside the engine's process.

    Made by `Maker` after its cheap imports. `load` runs on the main thread; everything else may be called from the
    reader thread, `check_schema` already while `load` runs.
    """

    def check_schema(self, schema: str) -> None:
        """Raise SchemaRefused if guided decoding cannot take this JSON Schema."""
        ...

    def load(self) -> EngineInfo:
        """Load the model and return when ready. Raises StartFailed, or anything with a telling message."""
        ...

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        """Take rows; returns at once. Each comes back through `deliver` once, its pieces through `tell` before."""
        ...

    def forget(self, keys: Sequence[str]) -> None:
        """Drop what was made of these profiles, but for the rows that are inside. One may come again, anew."""
        ...

    def abort(self, ids: Sequence[int]) -> None:
        """End these rows early; each still comes back once."""
        ...

    def tokens_moved(self) -> int:
        """Prompt and output tokens done so far, never falling."""
        ...

    def occupancy(self) -> Occupancy:
        """What is inside now, as cheaply as it can be told."""
        ...

    def close(self) -> None:
        """End the engine, orderly where that is quick."""
        ...


Maker = Callable[[EngineSpec, Deliver, Tell, Die], Backend]


def check_argument_names(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise StartFailed naming the first engine argument that does not exist, and the nearest that does."""
    names = sorted(known)
    for name in given:
        if name not in names:
            near = get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
            raise StartFailed(f"unknown engine argument {name}: {hint}")


def error_row(row: int, code: str, message: str, input_tokens: int = 0) -> EngineResult:
    """The result of a row that could not run."""
    return EngineResult(row, "error", input_tokens=input_tokens, error_code=code, error_message=message)


def at_input(fault: EngineResult, place: int, *, embeds: bool) -> EngineResult:
    """The fault of one of several inputs, named as the request has it."""
    name = "input" if embeds else "prompt"
    return replace(fault, error_message=f"{name}[{place}]: {fault.error_message}")


def too_long(row: int, prompt_tokens: int, max_model_len: int) -> EngineResult:
    """The result of a prompt that leaves no room for even one output token. Nothing is computed, so nothing counts."""
    message = (
        f"the prompt has {prompt_tokens} tokens; with at least 1 output token that is more than "
        f"the {max_model_len} tokens of the model's context"
    )
    return error_row(row, "context_length_exceeded", message)
