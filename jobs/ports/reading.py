"""Port of what interactive requests say: their bodies read as a batch's lines are, their answers written as theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jobs.errors import NotFound, Refused
from jobs.model import Price, Value
from jobs.pools import Pool
from jobs.ports.engine import EngineResult, ModelKind
from jobs.requests import LiveRequest, Piece


class BadRequest(Refused):
    """{reason}."""

    code = "invalid_request"


class UnsupportedParameter(BadRequest):
    """{reason}."""

    code = "unsupported_parameter"


class MissingParameter(BadRequest):
    """{reason}."""

    code = "missing_required_parameter"


class ContextExceeded(BadRequest):
    """{reason}."""

    code = "context_length_exceeded"


class ModelNotFound(NotFound):
    """There is no model {name} for requests here. {hint}"""

    code = "model_not_found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served(Value):
    """What is known of a model in the pool that takes its requests.

    context: tokens of prompt and output together, None if nobody says. no_tools: why it cannot be given tools, "" where
    it can. sizes: what `dimensions` may be, None for any.
    """

    model: str
    kind: ModelKind
    context: int | None = None
    no_tools: str = ""
    sizes: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking(Value):
    """Who asks for what. id: of the request, by which it is charged. asked_model: the name that the body has.

    created: seconds since the epoch. creator: the API key's id.
    """

    id: str
    tenant: str
    creator: str
    endpoint: str
    asked_model: str
    served: Served
    price: Price
    created: float
    project: str = ""


class Writer(Protocol):
    """Writes one answer. `whole` is all of it; or `begin`, `more` and `end` make server-sent events, in this order."""

    def whole(self, result: EngineResult) -> bytes:
        """The body of an answer that is no stream."""
        ...

    def begin(self) -> bytes:
        """What comes before the first piece; may be nothing."""
        ...

    def more(self, pieces: Sequence[Piece]) -> bytes:
        """Events of some pieces, in order."""
        ...

    def end(self, result: EngineResult) -> bytes:
        """What the pieces did not say, why each answer ended, the usage if it is wanted, and `[DONE]`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Value):
    """A body that was read. stream: whether its answer is wanted as a stream."""

    request: LiveRequest
    writer: Writer
    stream: bool = False


class Reading(Protocol):
    """Reads bodies. Of any thread."""

    def served(self, pool: Pool) -> Served:
        """What its requests may be; reads files. Raises NotFound, ModelChanged."""
        ...

    def read(self, asking: Asking, body: Any) -> Asked:
        """Raises BadRequest with the field as `param`; ContextExceeded naming the input."""
        ...
