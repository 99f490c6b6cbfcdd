"""What is frozen at submit beside the job's record, and what of it a process keeps ready for the jobs it works on."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa

from infra.data.index import InputIndex
from infra.data.inputs import LINE_SCHEMA
from infra.data.render import PromptTemplate, compile_prompt
from infra.data.schema import dump_schema, load_schema, output_schema
from jobs.model import InputFile, Job
from jobs.ports.objects import Objects

_KEPT_JOBS, _KEPT_FILES = 1024, 1 << 14
"""Small jobs come by the hundred; of one with many files the list is what takes memory."""
_PLAIN_RESULTS = output_schema(LINE_SCHEMA, kept=())
"""Of lines that ask for nothing but a text each. `JobSpec.plain` says of which jobs."""
_PLAIN_NAME = re.compile(r"(?!x-)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFolder:
    """Where a job's own files lie, below the home folder (not in the output folder)."""

    home: str
    tenant: str
    job: str

    @property
    def uri(self) -> str:
        return f"{tenant_folder(self.home, self.tenant)}/jobs/{self.job}"

    @property
    def input_schema(self) -> str:
        return f"{self.uri}/input.arrow"

    @property
    def output_schema(self) -> str:
        return f"{self.uri}/output.arrow"

    @property
    def select(self) -> str:
        """The row numbers of a retry."""
        return f"{self.uri}/select.parquet"

    @property
    def layout(self) -> str:
        """Where the segments end."""
        return f"{self.uri}/layout.json"

    @property
    def staged(self) -> str:
        return f"{self.uri}/staged"


def tenant_folder(home: str, tenant: str) -> str:
    """URI of the folder below which all of the platform's own objects of a tenant lie."""
    return f"{home.rstrip('/')}/tenants/{_folder_name(tenant)}"


def _folder_name(tenant: str) -> str:
    """A tenant's name as one folder that no other tenant has, whatever is in the name (".." or a slash)."""
    if _PLAIN_NAME.fullmatch(tenant):
        return tenant
    return "x-" + hashlib.blake2b(tenant.encode(), digest_size=16).hexdigest()


def freeze(objects: Objects, folder: JobFolder, *, inputs: pa.Schema, output: pa.Schema, plain: bool = False) -> None:
    """Write both schemas, before the job's record. Safe to repeat. Those of lines, and of plain results, are known."""
    if not inputs.equals(LINE_SCHEMA, check_metadata=True):
        objects.put_if_absent(folder.input_schema, dump_schema(inputs))
    if not plain:
        objects.put_if_absent(folder.output_schema, dump_schema(output))


def is_plain(inputs: pa.Schema, output: pa.Schema) -> bool:
    """See `JobSpec.plain`."""
    pairs = ((inputs, LINE_SCHEMA), (output, _PLAIN_RESULTS))
    return all(one.equals(other, check_metadata=True) for one, other in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenJob:
    """A job ready to be worked on. template: None for JSONL, whose prompts are ready made.

    needed: the input columns that a row's life takes: id, prompt, kept ones.
    """

    job: Job
    folder: JobFolder
    index: InputIndex
    schema: pa.Schema
    output: pa.Schema
    template: PromptTemplate | None
    needed: tuple[str, ...]

    @property
    def mentioned(self) -> tuple[str, ...]:
        """The input columns that the prompt is made of, varied ones left out."""
        if self.template is None:
            return ("body",)
        return tuple(name for name in self.template.columns if name not in self.job.spec.vary)


class FrozenJobs:
    """Makes and keeps FrozenJob values. Safe to call from several threads.

    files: a job's frozen input list by the job's id.
    """

    def __init__(self, objects: Objects, *, home: str, files: Callable[[str], Sequence[InputFile]]) -> None:
        self.objects = objects
        self.home = home
        self._files = files
        self._lock = threading.Lock()
        self._ready: OrderedDict[str, FrozenJob] = OrderedDict()
        self._held = 0  # files of those

    def folder(self, job: Job) -> JobFolder:
        """Where a job's own files lie."""
        return JobFolder(home=self.home, tenant=job.tenant, job=job.id)

    def of(self, job: Job, files: Sequence[InputFile] | None = None) -> FrozenJob:
        """The job's frozen side; made at its first use here."""
        with self._lock:
            found = self._ready.get(job.id)
            if found is not None:
                self._ready.move_to_end(job.id)
                return found
        made = self._make(job, self._files(job.id) if files is None else files)
        with self._lock:
            if job.id in self._ready:  # another thread made it meanwhile
                return self._ready[job.id]
            self._ready[job.id] = made
            self._held += len(made.index.files)
            while len(self._ready) > _KEPT_JOBS or (self._held > _KEPT_FILES and len(self._ready) > 1):
                self._held -= len(self._ready.popitem(last=False)[1].index.files)
        return made

    def _make(self, job: Job, files: Sequence[InputFile]) -> FrozenJob:
        folder = self.folder(job)
        spec = job.spec
        if spec.input_format == "jsonl":
            schema = LINE_SCHEMA
            template, wanted = None, list(LINE_SCHEMA.names)
        else:
            schema = load_schema(self.objects.read(folder.input_schema))
            columns = [*schema.names, *spec.vary]
            template = compile_prompt(messages=spec.messages, text=spec.text, columns=columns)
            wanted = [spec.id_column] if spec.id_column is not None else []
            wanted += [*template.columns, *(name for name, _ in spec.kept)]
        needed = tuple(dict.fromkeys(name for name in wanted if name not in spec.vary))
        return FrozenJob(
            job=job,
            folder=folder,
            index=InputIndex(files),
            schema=schema,
            output=_PLAIN_RESULTS if spec.plain else load_schema(self.objects.read(folder.output_schema)),
            template=template,
            needed=needed,
        )


def salt(tenant: str, secret: bytes) -> str:
    """The tenant's prefix-cache salt: stable, and not to be guessed without the home's secret."""
    return hashlib.blake2b(tenant.encode(), key=secret[:64], digest_size=16, person=b"cache-salt").hexdigest()


def max_tokens(sampling: str, default: int) -> int:
    """The output limit that sampling parameters set, or the default."""
    given = orjson.loads(sampling)
    found = given.get("max_completion_tokens") or given.get("max_tokens")
    return found if isinstance(found, int) and found > 0 else default
