"""Bodies of interactive requests and their answers, for `/openapi.json` alone: what reads and writes them is what reads
and writes the lines of a batch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.rest.schemas import example

_TEXT = Field(min_length=1)
_USAGE = {
    "prompt_tokens": 14,
    "completion_tokens": 9,
    "total_tokens": 23,
    "prompt_tokens_details": {"cached_tokens": 0},
}
_ID = "06cdkpbm5y3xb28v4r7t9w1z0q"


class StreamOptions(BaseModel):
    """include_usage: a last chunk says the usage."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _Generating(BaseModel):
    """What requests for text have in common."""

    model: Annotated[str, Field(min_length=1, description="A served model, or an alias of one.")]
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, float] | None = None
    response_format: dict[str, Any] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Field(max_length=512)] | None = None


class ChatMessage(BaseModel):
    """content: text, or parts of type text. tool_calls: of an assistant. tool_call_id: which call a tool answers."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatRequest(_Generating):
    """OpenAI's, and vLLM's further sampling parameters; docs/lines.md has all fields."""

    model_config = example(
        {"model": "smollm2", "messages": [{"role": "user", "content": "Name three rivers."}], "max_tokens": 64}
    )

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


_Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
_Inputs = Annotated[str, _TEXT] | Annotated[list[Annotated[str, _TEXT]], _TEXT] | _Ids | Annotated[list[_Ids], _TEXT]


class CompletionRequest(_Generating):
    """As `ChatRequest`, of a text that goes on."""

    model_config = example({"model": "smollm2", "prompt": "The three longest rivers are", "max_tokens": 64})

    prompt: _Inputs
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class EmbeddingRequest(BaseModel):
    """input: a text, texts, token ids, or lists of token ids; at most 2,048."""

    model_config = example({"model": "minilm", "input": ["a lamp", "a chair"], "encoding_format": "float"})

    model: Annotated[str, Field(min_length=1)]
    input: _Inputs
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None


# ---- answers ------------------------------------------------------------------------------------


class PromptDetails(BaseModel):
    """cached_tokens: of the prompt, those that the prefix cache had."""

    cached_tokens: int


class CompletionUsage(BaseModel):
    """Tokens of a request: its prompt counts once, whatever `n` is."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class AssistantMessage(BaseModel):
    """content: null where tools are called."""

    role: Literal["assistant"]
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(BaseModel):
    """One of the `n` answers."""

    index: int
    message: AssistantMessage
    logprobs: dict[str, Any] | None = None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(BaseModel):
    """OpenAI's. `id` is also the id of its charge."""

    model_config = example(
        {
            "id": f"chatcmpl-{_ID}",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": "smollm2",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "The Nile, the Amazon, the Yangtze.", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": _USAGE,
        }
    )

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: CompletionUsage


class TextChoice(BaseModel):
    """One of the answers, by prompt and then by `n`."""

    index: int
    text: str
    logprobs: dict[str, Any] | None = None
    finish_reason: Literal["stop", "length"]


class TextCompletion(BaseModel):
    """OpenAI's. `id` is also the id of its charge."""

    model_config = example(
        {
            "id": f"cmpl-{_ID}",
            "object": "text_completion",
            "created": 1_790_000_000,
            "model": "smollm2",
            "choices": [
                {"index": 0, "text": " the Nile, the Amazon.", "logprobs": None, "finish_reason": "stop"},
            ],
            "usage": _USAGE,
        }
    )

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: CompletionUsage


class Embedding(BaseModel):
    """A vector: numbers, or float32, little-endian, in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors, in the order of the inputs."""

    model_config = example(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.013, -0.082, 0.041]}],
            "model": "minilm",
            "usage": {"prompt_tokens": 4, "total_tokens": 4},
        }
    )

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


REQUESTS: tuple[type[BaseModel], ...] = (ChatRequest, CompletionRequest, EmbeddingRequest)
