"""The engine port: rows in by chunks, finished rows out by polling; nothing here blocks on a single row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

ModelKind = Literal["chat", "completion", "embedding"]
FinishReason = Literal["stop", "length", "abort", "error"]
Message = tuple[str, str]
"""(role, content): a chat message of plain text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProfile:
    """What many rows share: sent to the engine once, referred to by `key` afterwards.

    sampling: canonical JSON object of OpenAI-named sampling parameters (`max_tokens`, `temperature`, `top_p`,
        `top_k`, `min_p`, `seed`, `stop`, `n` = 1, `presence_penalty`, `frequency_penalty`, `repetition_penalty`, …).
    schema: JSON Schema (JSON text) that the output must follow by guided decoding, or None.
    cache_salt: keeps one tenant's prefix cache apart from another's; set by us, never by the caller.
    priority: lower is more urgent (vLLM's convention).
    dimensions: for embeddings, the size asked for; None for the model's own.
    """

    key: str
    kind: ModelKind
    sampling: str = "{}"
    schema: str | None = None
    cache_salt: str = ""
    priority: int = 0
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One row. `id` is unique among the rows in the engine. `prompt` is text, or messages for a chat model."""

    id: int
    prompt: str | tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What became of one row. Token counts: `cached_tokens` ≤ `input_tokens`; a row in error may have 0 of all.

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


class Engine(Protocol):
    """One engine on its accelerators. Used from one thread at a time.

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
        """Rows that finished since the last call; waits up to `timeout_s` for the first one.

        Raises EngineDied when the engine ended, EngineHung (after ending it) when rows are inside and no token
        moved for the hang time-out.
        """
        ...

    def abort(self, ids: Sequence[int]) -> None:
        """Stop these rows. Each still comes back from `poll` once: finished, or with finish_reason "abort"."""
        ...

    def in_flight(self) -> int:
        """Rows submitted and not yet returned by `poll`."""
        ...

    def tokens_moved(self) -> int:
        """A counter that grows while the engine works (prompt and output tokens); for progress and hang detection."""
        ...

    def stop(self) -> None:
        """End the engine and its processes. Idempotent; safe after a death."""
        ...
