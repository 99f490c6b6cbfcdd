"""From a request profile to vLLM's parameters, and what vLLM says about a JSON Schema."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import orjson
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend, has_xgrammar_unsupported_json_features

from infra.engines.answers import Extract, extractor
from infra.engines.backend import SchemaRefused
from infra.engines.sampling import BadSampling, read_sampling
from infra.engines.vllm_tools import ARGUMENT, ToolCalls
from jobs.ports.engine import RequestProfile

_SOURCE_PLACE = re.compile(r"\[[\d:]+\] \S+\.cc:\d+: ")
_GRAMMARS: dict[str, Any] = {"xgrammar": XgrammarBackend, "guidance": GuidanceBackend}


class Plan:
    """A profile, made ready for its rows. `refused` says why none of them can run.

    chat, kwargs: how rows are shown to the model. choices: answers to each input. logprobs: so
    many likeliest tokens at each place, None for no log probabilities. more: a row has more to say than one
    text. extract: finds calls of tools in outputs, None where there are no tools.
    parser: the name of the model's tool parser.
    """

    def __init__(self, profile: RequestProfile, vllm_config: Any, tokenizer: Any, parser: str | None = None) -> None:
        self.profile = profile
        self.chat = profile.kind == "chat"
        self.kwargs: dict[str, Any] = {}
        self.refused: str | None = None
        self.choices = 1
        self.logprobs: int | None = None
        self.more = False
        self.extract: Extract | None = None
        self._max_model_len: int = vllm_config.model_config.max_model_len
        try:
            self._base = self._make(vllm_config, tokenizer, parser)
        except BadSampling as error:
            self.refused = str(error)
        except Exception as error:  # noqa: BLE001 - vLLM, msgspec and pydantic each have their own
            self.refused = f"vLLM refuses the parameters: {error}"

    def params(self, prompt_tokens: int, choice: int = 0) -> Any:
        """vLLM's parameters for a prompt of this length; the output is cut where the context ends."""
        if self.profile.kind == "embedding":
            return self._base
        room = self._max_model_len - prompt_tokens
        fits = self._base.max_tokens is not None and self._base.max_tokens <= room
        if fits and not choice:
            return self._base
        params = copy.copy(self._base)
        if not fits:
            params.max_tokens = room
            params.min_tokens = min(params.min_tokens, room)
        if choice and params.seed is not None:
            params.seed += choice  # as vLLM does: each of several answers is another one, and the same each time
        return params

    def _make(self, vllm_config: Any, tokenizer: Any, parser: str | None) -> Any:
        given = read_sampling(self.profile.sampling)
        if self.profile.kind == "embedding":
            own, asked = vllm_config.model_config.embedding_size, self.profile.dimensions
            params = PoolingParams(task="embed", dimensions=None if asked == own else asked)
            params.verify(vllm_config.model_config)
            return params
        self.kwargs = given.pop("chat_template_kwargs", {})
        self.choices = given.pop("n", 1)
        self.logprobs = given.get("logprobs")
        self.more = self.choices > 1 or self.logprobs is not None or self.profile.tools is not None
        self._take_tools(given, tokenizer, parser)
        defaults = vllm_config.model_config.get_diff_sampling_param()
        schema = self.profile.schema
        params = SamplingParams.from_optional(
            **{
                "max_tokens": None,
                **defaults,
                **given,
                "output_kind": RequestOutputKind.DELTA if self.profile.streams else RequestOutputKind.FINAL_ONLY,
                "structured_outputs": StructuredOutputsParams(json=schema) if schema else None,
                "skip_clone": True,  # vLLM changes only what is the same for all rows; a deep copy costs 0.1 ms a row
            }
        )
        params.verify(vllm_config.model_config, None, vllm_config.structured_outputs_config, tokenizer)
        return params

    def _take_tools(self, given: dict[str, Any], tokenizer: Any, parser: str | None) -> None:
        if self.profile.tools is None:
            return
        self.kwargs = {**self.kwargs, "tools": orjson.loads(self.profile.tools)}
        calls: ToolCalls | None = None
        if self.profile.tool_choice == "auto":
            if parser is None:
                raise BadSampling(f"tools cannot be used: the engine has no {ARGUMENT}")
            calls = ToolCalls(parser, tokenizer, self.profile.tools)
            given.setdefault("skip_special_tokens", calls.skip_special_tokens)
        self.extract = extractor(self.profile, calls)


def _refusal(schema: str, error: Exception) -> str:
    """vLLM's words, and the place in the schema where it can be found."""
    words = _SOURCE_PLACE.sub("", str(error)).strip().rstrip(".")
    if "not supported by xgrammar" not in words:
        return words
    place = deepest(orjson.loads(schema), has_xgrammar_unsupported_json_features)
    return f"xgrammar cannot follow {place}" if place else words


def deepest(schema: Any, faulty: Callable[[Any], bool], place: str = "$") -> str:
    """Where in a JSON document the smallest faulty object is, with its keys; empty if none is faulty."""
    items = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in items:
        if found := deepest(value, faulty, f"{place}.{key}"):
            return found
    return f"{place} ({', '.join(schema)})" if isinstance(schema, dict) and faulty(schema) else ""


class SchemaCheck:
    """What vLLM says about a JSON Schema, before any row carries it and before the weights are loaded."""

    def __init__(self, vllm_config: Any, tokenizer: Any) -> None:
        self._config = vllm_config
        self._tokenizer = tokenizer
        self._grammars: dict[str, Any] = {}

    def __call__(self, schema: str) -> None:
        """Raise SchemaRefused if vLLM would refuse a row with it, or would fail to compile it on the first row."""
        try:
            params = SamplingParams(max_tokens=1, structured_outputs=StructuredOutputsParams(json=schema))
            params.verify(self._config.model_config, None, self._config.structured_outputs_config, self._tokenizer)
            backend = params.structured_outputs._backend  # noqa: SLF001 - set by verify, the only place that says it
            if backend in _GRAMMARS:
                self._grammar(backend).compile_grammar(StructuredOutputOptions.JSON, schema)
        except Exception as error:  # as above, and the grammar libraries theirs
            raise SchemaRefused(_refusal(schema, error)) from error

    def _grammar(self, backend: str) -> Any:
        if backend not in self._grammars:
            self._grammars[backend] = _GRAMMARS[backend](
                vllm_config=self._config,
                tokenizer=self._tokenizer,
                vocab_size=self._config.model_config.get_vocab_size(),
            )
        return self._grammars[backend]
