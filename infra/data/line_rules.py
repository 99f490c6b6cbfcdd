"""What the lines of a JSONL input may ask of their model, and what a request for them cannot say besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from infra.data.bodies import Rules
from infra.data.endpoints import ENDPOINTS
from infra.data.inputs import Inputs
from infra.data.schema import output_schema
from jobs.errors import BadInput
from jobs.model import JobSpec, Model
from jobs.ports.intake import SubmitRequest

PARSER = "tool_call_parser"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a model's files say.

    embedding_size: floats of its vectors, None for one that generates text. sizes: what `dimensions` may be, None for
    any. shows_tools: whether its chat template tells it of tools.
    """

    embedding_size: Callable[[Model], int | None]
    sizes: Callable[[Model], Sequence[int] | None]
    shows_tools: Callable[[Model], bool]


def rules_of(request: SubmitRequest, model: Model, facts: ModelFacts) -> Rules:
    """For the lines of a request, whatever its input turns out to be."""
    return Rules(
        model=request.asked_model or request.model,
        endpoint=request.endpoint,
        no_tools=no_tools(model, request.engine_args, facts),
        sizes=facts.sizes(model) if model.kind == "embedding" else None,
    )


def no_tools(model: Model, engine_args: Mapping[str, Any], facts: ModelFacts) -> str:
    """Why requests cannot bring tools, "" where they can. engine_args: beside the model's own."""
    if model.kind != "chat":
        return ""
    if not {**model.engine_args, **engine_args}.get(PARSER):
        return (
            f"nothing says how {model.name} writes its calls; an operator can, with the engine argument {PARSER} of "
            "the model or its pool (as vLLM names it, such as hermes)"
        )
    return "" if facts.shows_tools(model) else f"the chat template of {model.name} does not show them to the model"


def check_lines_fit(request: SubmitRequest, model: Model, inputs: Inputs) -> None:
    """What a JSONL request says itself cannot be said again, and its endpoint needs a model of its kind."""
    given: dict[str, Any] = {
        "--prompt": request.prompt,
        "--system": request.system,
        "--template": request.template,
        "--id": request.id_column,
        "--schema": request.schema,
        "--vary": request.vary or None,
        "--keep": request.keep,
    }
    for option, value in given.items():
        if value is not None:
            raise BadInput(source=option, reason="the lines of a JSONL input bring their own; leave it out")
    kinds = ENDPOINTS[inputs.endpoint].models
    if model.kind not in kinds:
        raise BadInput(
            source=request.input,
            reason=f"its lines are for {inputs.endpoint}, which takes a model of kind {' or '.join(sorted(kinds))}; "
            f"{model.name} is of kind {model.kind}",
        )


def results_of(spec: JobSpec, model: Model, inputs: Inputs, facts: ModelFacts) -> pa.Schema:
    """The columns of the result."""
    size = facts.embedding_size(model) if model.kind == "embedding" else None
    sizes = {asked or size for asked in inputs.dimensions} or {size}
    return output_schema(
        inputs.schema,
        kept=spec.kept,
        schema_text=spec.schema,
        embedding_size=sizes.pop() if len(sizes) == 1 else -1,
        more=inputs.more,
    )
