"""The endpoints that a line may name: who reads its body, what kind of model it needs, and what it comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from infra.data.bodies import ANY, BadBody, Body, Rules, check_fields, check_model, object_of
from infra.data.chat_bodies import read_chat
from infra.data.line_fields import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from infra.data.response_bodies import read_response
from infra.data.text_bodies import read_completion, read_embedding
from jobs.ports.engine import ModelKind
from jobs.prompts import inputs_of, messages_of, plain_text

MESSAGE_TOKENS = 4
REPLY_TOKENS = 3
"""What a chat template adds to each message, and before the answer (ChatML and its kin)."""


class Endpoint(NamedTuple):
    """kind: of the requests; models: kinds that can answer them."""

    read: Callable[[dict[str, Any], Rules], Body]
    kind: ModelKind
    models: frozenset[ModelKind]


ENDPOINTS: Mapping[str, Endpoint] = {
    CHAT: Endpoint(read_chat, "chat", frozenset({"chat"})),
    COMPLETIONS: Endpoint(read_completion, "completion", frozenset({"chat", "completion"})),
    EMBEDDINGS: Endpoint(read_embedding, "embedding", frozenset({"embedding"})),
    RESPONSES: Endpoint(read_response, "chat", frozenset({"chat"})),
}


def read_body(body: Any, rules: Rules = ANY) -> Body:
    """Raises BadBody naming the field. `rules.endpoint` is one of the four, or "" for chat completions."""
    endpoint = rules.endpoint or CHAT
    found = object_of(body)
    check_fields(found, endpoint)
    check_model(found.get("model"), rules.model)
    try:
        return ENDPOINTS[endpoint].read(found, rules)
    except orjson.JSONEncodeError as error:  # it reads deeper than it writes
        raise BadBody(f"a schema or a value of `body` cannot be written as JSON: {error}", param="body") from error


class Outline(NamedTuple):
    """What planning asks of a request. text: in the order in which the engine will have it; messages: how many;
    answers: how many texts are generated; max_tokens: of each, None where it does not say.
    """

    text: str
    messages: int
    answers: int
    max_tokens: int | None

    def input_tokens(self, tokens_per_char: float) -> int:
        """Estimated, of all of its inputs together."""
        extra = MESSAGE_TOKENS * self.messages + (REPLY_TOKENS if self.messages else 0)
        return int(len(self.text) * tokens_per_char) + extra


NOTHING = Outline("", 0, 0, None)


def outline(body: Any, endpoint: str) -> Outline:
    """Of a request that was found good before; NOTHING of one that is not."""
    try:
        return outline_of(read_body(body, Rules(endpoint=endpoint)))
    except BadBody:
        return NOTHING


def outline_of(found: Body) -> Outline:
    """Of a request that was read."""
    limit = found.sampling.get("max_completion_tokens") or found.sampling.get("max_tokens")
    answers = len(inputs_of(found.prompt)) * int(found.sampling.get("n", 1))
    return Outline(f"{found.tools or ''}{_text(found)}", len(messages_of(found.prompt)), answers, limit)


def _text(body: Body) -> str:
    """Roles included, as in any chat template."""
    messages = messages_of(body.prompt)
    return "\n".join("\n".join(message) for message in messages) or plain_text(body.prompt)
