"""The intake: a request against its real input and model; whatever cannot work is refused here, before any engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa

from infra.data.bodies import SORTED
from infra.data.frozen import FrozenJob, JobFolder, freeze, is_plain
from infra.data.guided import check_output_schema
from infra.data.index import InputIndex
from infra.data.inputs import Inputs, check_ids, resolve, verify_unchanged
from infra.data.line_rules import ModelFacts, check_lines_fit, results_of, rules_of
from infra.data.lines import first_model
from infra.data.look import Looker, LookPolicy
from infra.data.publish import check_output_folder, check_writable
from infra.data.read import RowReader
from infra.data.render import PromptTemplate, compile_prompt
from infra.data.sampled import sampled_prompts
from infra.data.schema import kept_columns
from infra.data.template_file import read_template
from infra.data.universe import total_rows
from infra.data.vary import check_vary
from infra.engines.sampling import BadSampling, read_sampling
from jobs.errors import BadInput, BadTemplate, ModelChanged
from jobs.model import InputFile, Job, JobSpec, JobState, Model, Price, Priority
from jobs.ports.intake import Examined, SampledPrompts, SubmitRequest
from jobs.ports.objects import Objects
from jobs.ranges import Range, Ranges, between

_SAMPLE_PLACES = 8
_SAMPLE_BYTES = 256 << 20
"""What a sample may decode to, at most."""


class DataIntake:
    """`jobs.ports.intake.Intake`. home: URI of the platform's own objects; scratch: a local folder; look: at tenants'
    own inputs.
    """

    def __init__(
        self,
        objects: Objects,
        reader: RowReader,
        *,
        home: str,
        scratch: Path,
        facts: ModelFacts,
        look: LookPolicy | None = None,
    ) -> None:
        self._objects = objects
        self._reader = reader
        self._home = home
        self._scratch = scratch
        self._facts = facts
        self._looker = Looker(objects=objects, scratch=scratch, policy=look or LookPolicy())

    def examine(self, request: SubmitRequest, model: Model) -> Examined:
        """Cheap checks first, then the input, then the pass over its ids."""
        sampling = _sampling(request, model)
        if request.schema is not None:
            _check_schema(request.schema, model)
        check_output_folder(self._objects, request.output)
        rules = rules_of(request, model, self._facts)
        look = partial(self._looker.look, id_column=request.id_column) if request.foreign else None
        inputs = resolve(self._objects, request.input, rules=rules, scratch=self._scratch, tables=look)
        spec = _spec(request, model, inputs, sampling)
        output = results_of(spec, model, inputs, self._facts)
        spec = spec.evolve(plain=is_plain(inputs.schema, output))
        if request.id_column is not None and (look is None or inputs.format == "jsonl"):
            check_ids(self._objects, inputs, request.id_column, scratch=self._scratch)
        return Examined(
            files=inputs.files,
            spec=spec,
            total_rows=total_rows(self._objects, spec, inputs.files),
            schemas=(inputs.schema, output),
        )

    def asked_model(self, uri: str) -> str:
        return first_model(self._objects, uri)

    def freeze(self, job: Job, examined: Examined) -> None:
        """Write what is frozen beside the record; before the record, so that a record always finds it.

        Raises OutputUnwritable where the results could not be written: better now than after the first rows.
        """
        check_writable(self._objects, job.spec.output, job.id)
        inputs, output = examined.schemas
        freeze(self._objects, self._folder(job), inputs=inputs, output=output, plain=job.spec.plain)

    def sample(self, examined: Examined, model: Model, rows: int, seed: int) -> SampledPrompts:
        frozen = self._unborn(examined, model)
        input_rows = (Range(0, frozen.index.rows),)
        rows = min(rows, max(1, _SAMPLE_BYTES // max(1, frozen.index.row_bytes(input_rows))))
        found = self._reader.rows(
            frozen.index,
            frozen.schema,
            _places(examined.total_rows, rows, seed),
            frozen.mentioned,
            copies=examined.spec.copies,
        )
        return sampled_prompts(frozen, found)

    def check_unchanged(self, job: Job, files: Sequence[InputFile], model: Model) -> None:
        """Raises InputChanged naming the file, or ModelChanged."""
        if model.checksum != job.spec.model_checksum:
            raise ModelChanged(name=model.name, reason=f"the job {job.id} began with other weights")
        for file in files:
            verify_unchanged(self._objects, file)

    def _folder(self, job: Job) -> JobFolder:
        return JobFolder(home=self._home, tenant=job.tenant, job=job.id)

    def _unborn(self, examined: Examined, model: Model) -> FrozenJob:
        """The frozen side of a job that is not submitted (yet)."""
        spec = examined.spec
        inputs, output = examined.schemas
        template = _compiled(spec, inputs)
        job = _nobody(spec, model)
        mentioned = ("body",) if template is None else template.columns
        return FrozenJob(
            job=job,
            folder=self._folder(job),
            index=InputIndex(examined.files),
            schema=inputs,
            output=output,
            template=template,
            needed=tuple(name for name in mentioned if name not in spec.vary),
        )


def _spec(request: SubmitRequest, model: Model, inputs: Inputs, sampling: str) -> JobSpec:
    messages, text = _prompt_of(request, model, inputs)
    check_vary(request.vary)
    kept = kept_columns(inputs.schema, request.vary, request.keep) if inputs.format == "parquet" else ()
    spec = JobSpec(
        model=model.name,
        asked_model=request.asked_model,
        endpoint=inputs.endpoint,
        model_kind=model.kind,
        model_checksum=model.checksum,
        engine_args=request.engine_args,
        input=inputs.source,
        input_format=inputs.format,
        input_rows=inputs.rows,
        id_column=request.id_column,
        vary=request.vary,
        messages=messages,
        text=text,
        schema=request.schema,
        sampling=sampling,
        kept=kept,
        limit=request.limit,
        order=request.order,
        rows_per_task=request.rows_per_task,
        output=request.output,
        sample=request.sample,
        seed=request.sample_seed,
        pause_on=request.pause_on,
        deadline_s=request.deadline_s,
        webhook=request.webhook,
    )
    _compiled(spec, inputs.schema)
    return spec


def _compiled(spec: JobSpec, schema: pa.Schema) -> PromptTemplate | None:
    """Raises BadTemplate naming an unknown column. None for JSONL."""
    if spec.input_format == "jsonl":
        return None
    return compile_prompt(messages=spec.messages, text=spec.text, columns=[*schema.names, *spec.vary])


def _prompt_of(request: SubmitRequest, model: Model, inputs: Inputs) -> tuple[tuple[tuple[str, str], ...], str | None]:
    """(messages, None) for a chat model, ((), text) for the others, ((), None) for JSONL."""
    if inputs.format == "jsonl":
        check_lines_fit(request, model, inputs)
        return (), None
    if request.template is not None:
        if request.prompt is not None or request.system is not None:
            raise BadTemplate(reason="give --template, or --prompt and --system, not both")
        messages, text = read_template(request.template)
    elif request.prompt is None:
        raise BadTemplate(reason="give --prompt or --template; columns are mentioned as {{ column }}")
    else:
        system = (("system", request.system),) if request.system is not None else ()
        messages, text = (*system, ("user", request.prompt)), None
    return _for_kind(model, messages, text)


def _for_kind(
    model: Model, messages: tuple[tuple[str, str], ...], text: str | None
) -> tuple[tuple[tuple[str, str], ...], str | None]:
    if model.kind == "chat":
        return (messages, None) if text is None else ((("user", text),), None)
    if text is not None:
        return (), text
    if len(messages) != 1 or messages[0][0] != "user":
        raise BadTemplate(reason=f"{model.name} is a {model.kind} model: it takes one text and no system message")
    return (), messages[0][1]


def _sampling(request: SubmitRequest, model: Model) -> str:
    """Canonical JSON. Raises BadInput naming the parameter."""
    if model.kind == "embedding":
        for name in request.sampling:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(source=option, reason=f"{model.name} is an embedding model; it generates no text")
    text = orjson.dumps(dict(request.sampling), option=SORTED).decode()
    try:
        read_sampling(text)
    except BadSampling as error:
        raise BadInput(source="sampling parameters", reason=str(error)) from error
    return text


def _check_schema(schema: str, model: Model) -> None:
    if model.kind == "embedding":
        raise BadInput(source="--schema", reason=f"{model.name} is an embedding model; it generates no text")
    check_output_schema(schema)


def _places(total: int, rows: int, seed: int) -> Ranges:
    """Some stretches of neighbouring rows at seeded random places: a row group is not decoded for every row."""
    if total <= rows:
        return (Range(0, total),)
    each = -(-rows // _SAMPLE_PLACES)
    block = total // _SAMPLE_PLACES
    chance = random.Random(seed)
    starts = [block * n + chance.randrange(max(1, block - each)) for n in range(_SAMPLE_PLACES)]
    return between([Range(start, start + min(each, block)) for start in starts], 0, total)


def _nobody(spec: JobSpec, model: Model) -> Job:
    """A job that is never written down."""
    price = Price(version="", model=model.name, currency="", input_micro=0, cached_micro=0, output_micro=0)
    return Job(
        id="unborn",
        tenant="",
        project="",
        tags={},
        creator="",
        spec=spec,
        price=price,
        pool="",
        priority=Priority.NORMAL,
        state=JobState.RUNNING,
    )
