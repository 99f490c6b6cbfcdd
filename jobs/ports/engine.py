"""The engine port: rows in by chunks, finished rows out by polling; nothing here blocks on a single row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ModelKind = Literal["chat", "completion", "embedding"]
FinishReason = Literal["stop", "length", "abort", "error"]
Message = tuple[str, str] | tuple[str, str, str]
"""(role, content): a chat message of plain text. A third entry holds what tools need besides, as a JSON object: the
`tool_calls` of an assistant (their arguments as text), or the `tool_call_id` that a tool's message answers.
"""
TokenIds = tuple[int, ...]
Place = tuple[str, float, Sequence[tuple[str, float]]]
"""A generated token, its log probability, and the likeliest tokens there with theirs."""


@dataclass(frozen=True, slots=True)
class Several:
    """Several inputs of one row; each has answers of its own."""

    inputs: tuple[str | TokenIds, ...]


Prompt = str | tuple[Message, ...] | TokenIds | Several
"""A text, the messages of a chat, a text as the model's own token ids, or several texts in one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProfile:
    """What many rows share: sent to the engine once, referred to by `key` afterwards.

    sampling: canonical JSON object of OpenAI-named sampling parameters (`max_tokens`, `temperature`, `top_p`,
        `top_k`, `min_p`, `seed`, `stop`, `n`, `presence_penalty`, `frequency_penalty`, `repetition_penalty`, …).
        `logprobs` is a whole number here: so many likeliest tokens beside the chosen one, at each place.
    schema: JSON Schema (JSON text) that the output must follow by guided decoding, or None.
    cache_salt: keeps one tenant's prefix cache apart from another's; set by us, never by the caller.
    priority: lower is more urgent (vLLM's convention).
    dimensions: for embeddings, the size asked for; None for the model's own.
    tools: OpenAI's list of tools as canonical JSON, shown to the model by its chat template; None for none.
    tool_choice: `auto`; or, where `schema` makes the model call tools, `required`, or the name of the one to call.
    stream: whether pieces of each row are told while it runs. None of an embedding, nor where there are `tools`: what
        is text and what is a call is known at the end.
    """

    key: str
    kind: ModelKind
    sampling: str = "{}"
    schema: str | None = None
    cache_salt: str = ""
    priority: int = 0
    dimensions: int | None = None
    tools: str | None = None
    tool_choice: str = "auto"
    stream: bool = False

    @property
    def streams(self) -> bool:
        """Whether pieces are told."""
        return self.stream and self.kind != "embedding" and self.tools is None


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One row. `id` is unique among the rows in the engine. Messages need a profile of kind `chat`."""

    id: int
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What became of one row. Token counts: `cached_tokens` ≤ `input_tokens`; a row in error may have 0 of all.

    An aborted row has the text and the counts of what was generated till then; all are 0 before its first token.

    Several answers to one input count its tokens once, and the output of all; several inputs count each. `text`,
    `embedding`: the first answer. finish_reason: "length" if any answer was cut.
    answers: JSON, only where a row has more to say than that: a list of all its answers, by input and then by choice.
        A generated one is `{"text", "finish_reason"}`, with `tokens` (of each place `[token, logprob, [[token,
        logprob], …]]`, the likeliest first) where `logprobs` were asked for, and with `calls` (`[[name, arguments],
        …]`, arguments as text) where it calls tools; `text` is then what stands beside the calls, or null.
        An embedding is float32, little-endian, in base64.
    error_code (only with finish_reason "error"): `context_length_exceeded`, `invalid_request`, `engine_error`.
    """

    id: int
    finish_reason: FinishReason
    text: str = ""
    embedding: Sequence[float] | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error_code: str | None = None
    error_message: str | None = None
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class EnginePiece:
    """What was generated of one row since its last piece. choice: which of its answers, by input and then by choice.

    An answer's pieces, joined, are the text, the output tokens and the places that its result has; a result does not
    count on them, it says all again. text: may be empty, where a token is no whole character yet, or may become a stop
    string. tokens: only where `logprobs` were asked for; as many as `output_tokens`.
    """

    id: int
    choice: int
    text: str
    output_tokens: int = 0
    tokens: Sequence[Place] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What a started engine is. `kv_cache_tokens`: room for cached tokens, 0 if unknown (or pooling)."""

    engine: str
    version: str
    model: str
    kind: ModelKind
    max_model_len: int
    max_num_seqs: int
    kv_cache_tokens: int = 0
    block_size: int = 0
    embedding_size: int | None = None
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """What is inside an engine: rows that it computes, rows that wait there, and the share (0 to 1) of its KV cache in
    use, None where it has none.
    """

    running: int = 0
    waiting: int = 0
    kv_use: float | None = None


class Engine(Protocol):
    """One engine on its accelerators. Used from one thread at a time, but for `wake` and `occupancy`.

    Life: `start` → any number of `submit` / `poll` / `abort` → `stop`. After `EngineDied` (its subclass `EngineHung`
    too) every row that was inside is lost, the engine's processes are gone, and `start` may be called again.
    """

    def start(self) -> EngineInfo:
        """Start and wait until ready. Raises EngineStartFailed with the engine's own last words."""
        ...

    def check_schema(self, schema: str) -> None:
        """Raise BadSchema, saying what, if guided decoding cannot take this JSON Schema (JSON text)."""
        ...

    def submit(self, profile: RequestProfile, requests: Sequence[EngineRequest]) -> None:
        """Put rows into the engine; returns at once. A row that cannot run comes back from `poll` as an error."""
        ...

    def poll(self, timeout_s: float) -> list[EngineResult]:
        """Rows that finished since the last call; waits up to `timeout_s` for the first one, for a piece or for `wake`.

        Raises EngineDied when the engine ended, EngineHung (after ending it) when rows are inside and no token
        moved for the hang time-out.
        """
        ...

    def take_pieces(self) -> list[EnginePiece]:
        """What was generated of rows with a `stream` profile and not yet taken, in order; never waits.

        To be called after each `poll`: the pieces of a row that `poll` returned are all there by then. A death is told
        by `poll` once the pieces that came before it were taken.
        """
        ...

    def wake(self) -> None:
        """From any thread: let the `poll` that runs return now, or else the next one."""
        ...

    def abort(self, ids: Sequence[int]) -> None:
        """Stop these rows. Each still comes back from `poll` once, at once: finished, or with finish_reason "abort"."""
        ...

    def in_flight(self) -> int:
        """Rows submitted and not yet returned by `poll`."""
        ...

    def tokens_moved(self) -> int:
        """A counter that grows while the engine works (prompt and output tokens); for progress and hang detection."""
        ...

    def occupancy(self) -> Occupancy:
        """As the engine last told, about a second ago. From any thread."""
        ...

    def stop(self) -> None:
        """End the engine and its processes. Idempotent; safe after a death."""
        ...
