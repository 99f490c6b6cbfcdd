"""One request of an OpenAI batch line: what of it can be done, and a refusal by name for everything else."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import orjson

from infra.data.guided import check_output_schema
from infra.data.line_fields import CARRIED, WITHOUT_EFFECT, mend_of
from infra.engines.sampling import BadSampling, checked
from jobs.errors import BadSchema
from jobs.ports.engine import Prompt, Several, TokenIds

SORTED = orjson.OPT_SORT_KEYS
MAX_ANSWERS = 128
"""Of one line: its inputs times `n`."""
_KNOWN_SCHEMAS = 1024
_LONGEST = 500
"""Characters of a message: it may quote what a line says."""


class BadBody(Exception):
    """What is wrong with a request body; the caller adds where it stands.

    code, param: as OpenAI's batches have them in a line's error.
    """

    def __init__(self, message: str, *, code: str = "invalid_request", param: str | None = None) -> None:
        super().__init__(message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…")
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the lines of a file may be.

    model: what they must name, None for any. endpoint: what their `url` must be, "" for what the first says.
    no_tools: why they cannot bring tools, and what to do about it; "" where they can.
    sizes: that `dimensions` may be, None for any.
    """

    model: str | None = None
    endpoint: str = ""
    no_tools: str = ""
    sizes: Sequence[int] | None = None


ANY = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request in our terms. sampling: only what the body says itself, as an engine takes it; schema: JSON text.

    tools, tool_choice, dimensions: as in `RequestProfile`. echo: what the answer repeats of the request, or how it is
    to be written. more: the answer has more to it than one text or one vector.
    """

    prompt: Prompt
    sampling: dict[str, Any] = field(default_factory=dict)
    schema: str | None = None
    tools: str | None = None
    tool_choice: str = "auto"
    dimensions: int | None = None
    echo: Mapping[str, Any] | None = None

    @property
    def more(self) -> bool:
        sampling = self.sampling
        return (
            self.echo is not None
            or self.tools is not None
            or isinstance(self.prompt, Several)
            or "logprobs" in sampling
            or sampling.get("n", 1) > 1
        )


def bad(message: str, param: str | None = None, code: str = "invalid_request") -> BadBody:
    """param: inside the body."""
    return BadBody(message, code=code, param=None if param is None else f"body.{param}")


def object_of(body: Any) -> dict[str, Any]:
    """The body. Raises BadBody."""
    if not isinstance(body, dict):
        msg = "`body` must be an object"
        raise BadBody(msg, param="body")
    return body


def check_fields(body: dict[str, Any], endpoint: str) -> None:
    """Whether all of its fields are known and taken. A null stands for "not given". Raises BadBody naming them."""
    carried, others = CARRIED[endpoint], WITHOUT_EFFECT[endpoint]
    strange = [name for name in body if name not in carried]
    if not strange:
        return
    if refused := sorted(name for name in strange if name not in others):
        known = (*carried, *others)
        names = ", ".join(f"{name}{mend_of(name) or _meant(name, known)}" for name in refused)
        msg = f"the body field{'s' * (len(refused) > 1)} {names} cannot be used here; remove it"
        raise bad(msg, refused[0], "unsupported_parameter")
    for name in strange:
        fits, words = others[name]
        if (value := body[name]) is not None and not fits(value):
            raise bad(f"`{name}` can only be {words} here{mend_of(name)}", name, "unsupported_parameter")


def _meant(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1, cutoff=0.75)
    return f" (did you mean {near[0]}?)" if near else ""


def check_model(found: Any, model: str | None) -> None:
    """Raises BadBody."""
    if not isinstance(found, str) or not found:
        raise bad("`model` is missing", "model", "missing_required_parameter")
    if model is not None and found != model:
        raise bad(f"`model` is {found!r}, but this job runs {model!r}", "model", "mismatched_model")


def check_sampling(sampling: dict[str, Any]) -> None:
    """Raises BadBody."""
    if "max_tokens" in sampling and "max_completion_tokens" in sampling:
        raise bad("give max_tokens or max_completion_tokens, not both", "max_tokens")
    try:
        checked(sampling)
    except BadSampling as error:
        raise bad(str(error), error.name) from error


def given(body: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Those of the names that the body has, and not as null."""
    return {name: body[name] for name in names if body.get(name) is not None}


def flag(body: dict[str, Any], name: str, default: bool) -> bool:  # noqa: FBT001 - a value, not a switch
    """Raises BadBody."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad(f"`{name}` must be true or false, not {value!r}", name)
    return value


def whole(body: dict[str, Any], name: str, low: int, high: int) -> int | None:
    """Raises BadBody."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise bad(f"`{name}` must be a whole number from {low} to {high}, not {value!r}", name)
    return value


# ---- texts and token ids ------------------------------------------------------------------------


def read_inputs(value: Any, name: str, most: int) -> Prompt:
    """A text, a list of texts, token ids, or a list of such. Raises BadBody. most: inputs in all."""
    if isinstance(value, str):
        return _text(value, name)
    if not isinstance(value, list) or not value:
        raise bad(f"`{name}` must be a text, a list of texts, a list of token ids, or a list of such lists", name)
    if _is_id(value[0]):
        return _ids(value, name)
    if len(value) > most:
        raise bad(f"`{name}` has {len(value)} inputs; at most {most} are taken", name)
    inputs = tuple([_input(entry, f"{name}[{place}]") for place, entry in enumerate(value)])
    return inputs[0] if len(inputs) == 1 else Several(inputs)


def _input(entry: Any, name: str) -> str | TokenIds:
    if isinstance(entry, str):
        return _text(entry, name)
    if isinstance(entry, list) and entry:
        return _ids(entry, name)
    raise bad(f"{name} must be a text or a list of token ids", name)


def _text(text: str, name: str) -> str:
    if not text or text.isspace():
        raise bad(f"{name} is empty", name)
    return text


def _ids(value: list[Any], name: str) -> TokenIds:
    if not all(map(_is_id, value)):
        place = next(place for place, entry in enumerate(value) if not _is_id(entry))
        raise bad(f"{name}[{place}] is no token id: a whole number from 0", name)
    return tuple(value)


def _is_id(entry: Any) -> bool:
    return isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < 2**31


# ---- schemas ------------------------------------------------------------------------------------


class Faults:
    """What is wrong with schemas seen lately, by their digest: most requests of a file have the same few."""

    def __init__(self, check: Callable[[str], object]) -> None:
        self._check = check
        self._known: OrderedDict[bytes, str | None] = OrderedDict()

    def of(self, schema: str) -> str | None:
        digest = hashlib.blake2b(schema.encode(), digest_size=16).digest()
        if digest not in self._known:
            self._known[digest] = self._fault(schema)
            if len(self._known) > _KNOWN_SCHEMAS:
                self._known.popitem(last=False)
        return self._known[digest]

    def _fault(self, schema: str) -> str | None:
        try:
            self._check(schema)
        except BadSchema as error:
            return str(error.data["reason"])
        return None


_guided = Faults(check_output_schema)


def guided_schema(schema: Any, name: str) -> str:
    """A schema that the output must follow, as canonical JSON. name: the field that says it. Raises BadBody."""
    text = orjson.dumps(schema, option=SORTED).decode()
    fault = _guided.of(text)
    if fault is not None:
        raise bad(f"the schema of `{name}` cannot be used: {fault}", name)
    return text


def read_format(value: Any, name: str = "response_format") -> str | None:
    """Chat's `response_format`. Raises BadBody."""
    kind = value.get("type") if isinstance(value, dict) else None
    if value is None or kind == "text":
        return None
    if kind == "json_object":
        return '{"type":"object"}'
    inner = value.get("json_schema") if kind == "json_schema" else None
    if isinstance(inner, dict) and isinstance(inner.get("schema"), dict):
        return guided_schema(inner["schema"], name)
    raise bad(f"`{name}` must be of type text, json_object or json_schema with a schema", name)
