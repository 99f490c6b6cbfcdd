"""What the fake engine answers to a row, as a function of the request alone."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from infra.engines import fake_text
from infra.engines.answers import Calls, Generated, embedded_row, extractor, generated_row
from infra.engines.backend import SchemaRefused, at_input, error_row, too_long
from infra.engines.fake_args import FakeArgs
from infra.engines.fake_schema import instance, parse_schema
from infra.engines.sampling import BadSampling, read_sampling
from jobs.ports.engine import EngineRequest, EngineResult, FinishReason, Place, Prompt, RequestProfile, Several
from jobs.prompts import inputs_of, plain_text

_CALL = "<tool_call>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """A profile, digested: what its rows have in common. more: a row has more to say than one text."""

    profile: RequestProfile
    key: bytes
    priority: int
    max_tokens: int | None
    dims: int | None
    schema: object
    refused: str | None
    choices: int = 1
    logprobs: int | None = None
    stop: tuple[str, ...] = ()
    more: bool = False


def flavour_of(profile: RequestProfile) -> Flavour:
    """Digest a profile once, for all its rows."""
    refused, params, schema = None, {}, None
    try:
        params = read_sampling(profile.sampling)
        schema = parse_schema(profile.schema) if profile.schema else None
    except (BadSampling, SchemaRefused) as error:
        refused = str(error)
    key = orjson.dumps(params, option=orjson.OPT_SORT_KEYS) + (profile.schema or "").encode()
    stop = params.get("stop", ())
    choices, logprobs = params.get("n", 1), params.get("logprobs")
    return Flavour(
        profile=profile,
        key=fake_text.digest_of(key.decode(), b"").to_bytes(8, "little"),
        priority=profile.priority,
        max_tokens=params.get("max_tokens"),
        dims=profile.dimensions or 0 if profile.kind == "embedding" else None,
        schema=schema,
        refused=refused,
        choices=choices,
        logprobs=logprobs,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        more=choices > 1 or logprobs is not None or profile.tools is not None,
    )


def answer_row(request: EngineRequest, text: str, flavour: Flavour, args: FakeArgs) -> EngineResult:
    """text: the whole prompt in plain."""
    if flavour.refused:
        return error_row(request.id, "invalid_request", flavour.refused)
    if flavour.dims is not None:
        return _embedded(request, flavour.dims or args.embedding_size, args)
    if isinstance(request.prompt, Several) or flavour.more:
        return _several(request, flavour, args)
    tokens, cached = fake_text.count_prompt(request.prompt)
    if (fault := _fault(request.id, text, tokens, args)) is not None:
        return fault
    output, reason = _generate(text, tokens, flavour, args)
    return EngineResult(request.id, reason, output, None, tokens, cached, fake_text.tokens_of(output))


def _fault(row: int, text: str, tokens: int, args: FakeArgs) -> EngineResult | None:
    if tokens >= args.max_model_len:
        return too_long(row, tokens, args.max_model_len)
    if args.error_on and args.error_on in text:
        return error_row(row, "engine_error", f"the prompt holds {args.error_on!r} (error_on)", tokens)
    return None


def _generate(text: str, tokens: int, flavour: Flavour, args: FakeArgs, choice: int = 0) -> tuple[str, FinishReason]:
    digest = fake_text.digest_of(f"{text}\0{choice}" if choice else text, flavour.key)
    if flavour.schema is not None:
        full = orjson.dumps(instance(flavour.schema, digest)).decode()
    elif flavour.profile.tools is not None and args.call_on and args.call_on in text:
        full = _call(flavour.profile.tools, digest)
    else:
        full = fake_text.answer(digest)
    for stop in flavour.stop:
        full = full.partition(stop)[0]
    room = args.max_model_len - tokens
    output, was_cut = fake_text.cut(full, min(flavour.max_tokens or room, room))
    long = was_cut or bool(args.length_on and args.length_on in text)
    return output, "length" if long else "stop"


def _call(tools: str, digest: int) -> str:
    function = orjson.loads(tools)[0]["function"]
    arguments = instance(function.get("parameters") or {"type": "object"}, digest)
    return _CALL + orjson.dumps({"name": function["name"], "arguments": arguments}).decode()


def _parse(text: str) -> tuple[str | None, Calls]:
    if not text.startswith(_CALL):
        return text, []
    try:
        call = orjson.loads(text.removeprefix(_CALL))
    except orjson.JSONDecodeError:  # it was cut
        return text, []
    return None, [(call["name"], orjson.dumps(call["arguments"]).decode())]


def _several(request: EngineRequest, flavour: Flavour, args: FakeArgs) -> EngineResult:
    answers = []
    inputs = inputs_of(request.prompt)
    for place, prompt in enumerate(inputs):
        text = plain_text(prompt)
        tokens, cached = fake_text.count_prompt(prompt, flavour.profile.tools)
        if (fault := _fault(request.id, text, tokens, args)) is not None:
            return fault if len(inputs) == 1 else at_input(fault, place, embeds=False)
        answers.append([_one(text, tokens, cached, flavour, args, choice) for choice in range(flavour.choices)])
    return generated_row(request.id, answers, extractor(flavour.profile, _parse))


def _one(text: str, tokens: int, cached: int, flavour: Flavour, args: FakeArgs, choice: int) -> Generated:
    output, reason = _generate(text, tokens, flavour, args, choice)
    return Generated(
        text=output,
        finish_reason=reason,
        input_tokens=tokens,
        cached_tokens=cached,
        output_tokens=fake_text.tokens_of(output),
        tokens=None if flavour.logprobs is None else _places(output, flavour.logprobs),
    )


def _places(output: str, most: int) -> list[Place]:
    """Every four characters are a token: it is the likeliest, at -0.5; the next are made up, each half as likely."""
    size = fake_text.CHARS_PER_TOKEN
    places: list[Place] = []
    for at in range(0, len(output), size):
        token = output[at : at + size]
        others = [(token if rank == 0 else f"{token}{rank}", -0.5 - rank) for rank in range(most)]
        places.append((token, -0.5, others))
    return places


def _embedded(request: EngineRequest, dims: int, args: FakeArgs) -> EngineResult:
    if isinstance(request.prompt, Several):
        return embedded_row(request.id, [_vector(request.id, text, dims, args) for text in request.prompt.inputs])
    return _vector(request.id, request.prompt, dims, args)


def _vector(row: int, prompt: Prompt, dims: int, args: FakeArgs) -> EngineResult:
    tokens, cached = fake_text.count_prompt(prompt)
    if tokens > args.max_model_len:
        return too_long(row, tokens, args.max_model_len)
    vector = fake_text.unit_vector(plain_text(prompt), dims)
    return EngineResult(row, "stop", embedding=vector, input_tokens=tokens, cached_tokens=cached)
