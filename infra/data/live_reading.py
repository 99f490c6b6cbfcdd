"""Bodies of interactive requests: read, checked and made into work by what reads the lines of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from infra.data.bodies import BadBody, Body, Rules, bad, flag, object_of
from infra.data.endpoints import ENDPOINTS, outline_of, read_body
from infra.data.frozen import salt
from infra.data.line_fields import CHAT, EMBEDDINGS
from infra.data.line_rules import ModelFacts, no_tools
from infra.data.live_writing import ChatStreamWriter, TextStreamWriter, WholeWriter
from infra.data.openai_bodies import Head
from infra.data.profiles import live_profile
from jobs.model import Model
from jobs.pools import Pool
from jobs.ports.reading import (
    Asked,
    Asking,
    BadRequest,
    ContextExceeded,
    MissingParameter,
    Served,
    UnsupportedParameter,
    Writer,
)
from jobs.prompts import inputs_of
from jobs.requests import LiveRequest

_STREAM = frozenset({"stream", "stream_options"})
_OPTIONS = frozenset({"include_usage", "include_obfuscation"})
_ERRORS: dict[str, type[BadRequest]] = {
    cls.code: cls for cls in (BadRequest, UnsupportedParameter, MissingParameter, ContextExceeded)
}
_MOST_LOGPROBS = 1 << 19
"""Of one answer, each with its token: twenty of 25,000 tokens. They come to 30 MB, and ten times that in hand."""
_UNKNOWN_CONTEXT = 4096
"""Tokens; only to estimate with, where a model's files do not say."""


class _Stream(NamedTuple):
    """How the answer is wanted."""

    wanted: bool
    usage: bool


class BodyReading:
    """`jobs.ports.reading.Reading`. find: a model by its name, as written down. secret: as in `ParquetRowSource`."""

    def __init__(
        self,
        *,
        find: Callable[[str], Model],
        context: Callable[[Model], int | None],
        facts: ModelFacts,
        secret: Callable[[], bytes],
        tokens_per_char: float,
    ) -> None:
        self._find = find
        self._context = context
        self._facts = facts
        self._secret = secret
        self._tokens_per_char = tokens_per_char

    def served(self, pool: Pool) -> Served:
        found = self._find(pool.model)
        model = found.evolve(engine_args={**found.engine_args, **pool.engine_args})
        return Served(
            model=model.name,
            kind=model.kind,
            context=self._context(model),
            no_tools=no_tools(model, {}, self._facts),
            sizes=self._facts.sizes(model) if model.kind == "embedding" else None,
        )

    def read(self, asking: Asking, body: Any) -> Asked:
        try:
            _check_kind(asking)
            found, stream = _split(object_of(body), asking.endpoint)
            rules = Rules(
                endpoint=asking.endpoint,
                model=asking.asked_model,
                no_tools=asking.served.no_tools,
                sizes=asking.served.sizes,
            )
            read = read_body(found, rules)
            _check_ids(read, asking)
            return self._asked(asking, read, stream)
        except BadBody as error:
            _refuse(error)

    def _asked(self, asking: Asking, body: Body, stream: _Stream) -> Asked:
        outline = outline_of(body)
        inputs = len(inputs_of(body.prompt))
        context = asking.served.context or _UNKNOWN_CONTEXT
        input_tokens = min(context * inputs, max(inputs, outline.input_tokens(self._tokens_per_char)))
        left = max(1, context - input_tokens // inputs)
        each = 0 if asking.endpoint == EMBEDDINGS else min(outline.max_tokens or left, left)
        _check_logprobs(body, each * outline.answers)
        profile = live_profile(
            asking.endpoint,
            salt(asking.tenant, self._secret()),
            body,
            stream=stream.wanted and body.tools is None,
        )
        request = LiveRequest(
            id=asking.id,
            tenant=asking.tenant,
            project=asking.project,
            creator=asking.creator,
            model=asking.served.model,
            asked_model=asking.asked_model,
            endpoint=asking.endpoint,
            price=asking.price,
            profile=profile,
            prompt=body.prompt,
            input_tokens=input_tokens,
            output_tokens=each * outline.answers,
            seats=outline.answers,
        )
        return Asked(request=request, writer=_writer(asking, body, stream, outline.answers), stream=stream.wanted)


def _check_kind(asking: Asking) -> None:
    kinds = ENDPOINTS[asking.endpoint].models
    if asking.served.kind not in kinds:
        raise bad(
            f"{asking.endpoint} takes a model of kind {' or '.join(sorted(kinds))}; "
            f"{asking.asked_model} is of kind {asking.served.kind}",
            "model",
        )


def _split(body: dict[str, Any], endpoint: str) -> tuple[dict[str, Any], _Stream]:
    """The body as a line has it, and what only a request can say."""
    if endpoint == EMBEDDINGS or not body.keys() & _STREAM:
        return body, _Stream(wanted=False, usage=False)
    wanted = flag(body, "stream", default=False)
    options = body.get("stream_options")
    usage = False
    if options is not None:
        if not wanted:
            raise bad("`stream_options` needs `stream`: true", "stream_options")
        if not isinstance(options, dict) or options.keys() - _OPTIONS:
            raise bad("`stream_options` must be an object with include_usage", "stream_options")
        usage = flag(options, "include_usage", default=False)
        flag(options, "include_obfuscation", default=False)
    return {name: value for name, value in body.items() if name not in _STREAM}, _Stream(wanted, usage)


def _check_ids(body: Body, asking: Asking) -> None:
    """Texts are counted by the engine; token ids can be counted here."""
    most, embeds = asking.served.context, asking.endpoint == EMBEDDINGS
    if most is None:
        return
    name = "input" if embeds else "prompt"
    inputs = inputs_of(body.prompt)
    for place, ids in enumerate(inputs):
        if isinstance(ids, tuple) and isinstance(ids[0], int) and len(ids) > most - (not embeds):
            where = f"{name}[{place}]" if len(inputs) > 1 else name
            msg = f"{where} has {len(ids)} tokens; the model's context has {most}"
            raise bad(msg, where, ContextExceeded.code)


def _check_logprobs(body: Body, output_tokens: int) -> None:
    """Raises BadBody. output_tokens: of all answers, at most."""
    likeliest = body.sampling.get("logprobs")
    if likeliest is None:
        return
    found = output_tokens * (1 + int(likeliest))
    if found > _MOST_LOGPROBS:
        msg = (
            f"logprobs of up to {output_tokens:,} tokens come to {found:,}; at most {_MOST_LOGPROBS:,} are told at "
            "once: give a lower max_tokens, n, or number of likeliest tokens"
        )
        raise bad(msg, "logprobs")


def _refuse(error: BadBody) -> NoReturn:
    param = None if error.param is None else error.param.removeprefix("body.")
    raise _ERRORS.get(error.code, BadRequest)(reason=str(error), param=param) from None


def _writer(asking: Asking, body: Body, stream: _Stream, answers: int) -> Writer:
    head = Head(id=asking.id.partition("-")[2], place=asking.id, model=asking.asked_model, created=int(asking.created))
    if not stream.wanted:
        return WholeWriter(head, asking.endpoint, body.echo)
    kind = ChatStreamWriter if asking.endpoint == CHAT else TextStreamWriter
    return kind(head, asking.endpoint, body.echo, choices=answers, usage=stream.usage)
