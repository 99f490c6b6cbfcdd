"""What the tests of the data side share: a home in a temporary folder, and a job's whole life without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from infra.data.bodies import Rules
from infra.data.frozen import JobFolder, freeze, is_plain
from infra.data.inputs import Inputs, resolve
from infra.data.publish import FolderPublisher
from infra.data.results import Results
from infra.data.schema import kept_columns, output_schema
from infra.data.universe import total_rows
from infra.data.wiring import DataSide, data_side
from infra.objects.local import LocalObjects
from jobs.model import Job, JobSpec, JobState, Part, Price, Priority, Task, Usage
from jobs.plan import PlanPolicy
from jobs.ports.engine import EngineResult
from jobs.ports.planning import Final
from jobs.ports.rows import OpenRows, Settled

PRICE = Price(
    version="p1", model="fake", currency="USD", input_micro=150_000, cached_micro=75_000, output_micro=600_000
)
Answer = Callable[[int, Any], EngineResult | None]


def text(place: int, prompt: Any) -> EngineResult:
    """An engine that repeats the end of its prompt."""
    shown = prompt if isinstance(prompt, str) else prompt[-1][1]
    return EngineResult(place, "stop", f"echo {shown}", None, 40, 32, 7)


@dataclass
class Kit:
    root: Path
    policy: PlanPolicy | None = None
    objects: LocalObjects = field(default_factory=LocalObjects)
    files: dict[str, Sequence[Any]] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)
    sides: list[DataSide] = field(default_factory=list)

    @property
    def home(self) -> str:
        return str(self.root / "home")

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def side(self) -> DataSide:
        """A fresh process's data side."""
        files = self.files.__getitem__
        side = data_side(self.objects, home=self.home, secret=b"s" * 32, files=files, policy=self.policy)
        self.sides.append(side)
        return side

    def close(self) -> None:
        for side in self.sides:
            side.reader.close()

    def parquet(self, name: str, table: pa.Table | dict[str, Any], **options: Any) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
        return str(path)

    def write(self, name: str, data: bytes) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    def jsonl(self, name: str, bodies: Sequence[dict[str, Any]]) -> str:
        lines = [orjson.dumps(request(f"r{n}", **body)) for n, body in enumerate(bodies)]
        return self.write(name, b"\n".join(lines) + b"\n")

    def resolve(self, path: str, model: str | None = "fake", **rules: Any) -> Inputs:
        return resolve(self.objects, path, rules=Rules(model=model, **rules), scratch=self.scratch)

    def submit(self, path: str, job_id: str = "job1", *, keep: Sequence[str] | None = None, **spec: Any) -> Job:
        """A frozen job over an input, without a database. embedding_size is no part of the spec."""
        inputs = self.resolve(path)
        size = spec.pop("embedding_size", None)
        jsonl = inputs.format == "jsonl"
        kept = () if jsonl else kept_columns(inputs.schema, spec.get("vary", {}), keep)
        if not jsonl and "text" not in spec:
            spec.setdefault("messages", (("system", "Be short."), ("user", "Say {{ " + inputs.schema.names[0] + " }}")))
        made = JobSpec(
            model="fake",
            model_checksum="c0ffee",
            input=path,
            input_format=inputs.format,
            input_rows=inputs.rows,
            kept=kept,
            endpoint=inputs.endpoint,
            output=str(self.root / "out"),
            **{"model_kind": "chat", "sampling": '{"max_tokens":16}', **spec},
        )
        output = output_schema(inputs.schema, kept=kept, schema_text=made.schema, embedding_size=size, more=inputs.more)
        made = made.evolve(plain=is_plain(inputs.schema, output))
        job = Job(
            id=job_id,
            tenant="t",
            project="",
            tags={},
            creator="",
            spec=made,
            price=PRICE,
            pool="batch",
            priority=Priority.NORMAL,
            state=JobState.RUNNING,
            total_rows=total_rows(self.objects, made, inputs.files),
        )
        folder = JobFolder(home=self.home, tenant="t", job=job_id)
        freeze(self.objects, folder, inputs=inputs.schema, output=output, plain=made.plain)
        self.files[job_id] = inputs.files
        return job

    def plan(self, job: Job, *, side: DataSide | None = None, **options: Any) -> list[Task]:
        side = side or self.side()
        tasks: list[Task] = []
        segment = 0
        while True:
            planned = side.planner.plan(job, self.files[job.id], segment, **options)
            tasks += planned.tasks
            segment += 1
            if planned.last:
                return tasks

    def open(self, job: Job, task: Task) -> OpenRows:
        return self.side().source.open(job, task)

    def do(
        self, job: Job, task: Task, answer: Answer = text, *, side: DataSide | None = None, **options: Any
    ) -> Settled:
        """One lease of a task."""
        side = side or self.side()
        rows = side.source.open(job, task)
        results = [answer(n, p) if p is not None else None for n, p in enumerate(rows.prompts)]
        return side.sink.write(job, task.evolve(token="tok"), rows, results, **{"unfinished": None, **options})

    def run(self, job: Job, answer: Answer = text) -> list[Settled]:
        """Plan and do every task."""
        side = self.side()
        settled = [self.do(job, task, answer, side=side) for task in self.plan(job, side=side)]
        self.parts[job.id] = [s.part for s in settled if s.part is not None]
        return settled

    def results(self) -> Results:
        return Results(self.objects, self.side().jobs, parts=lambda job: self.parts.get(job, []))

    def publish(self, job: Job, settled: Sequence[Settled]) -> str:
        usage = Usage()
        for one in settled:
            usage = usage.plus(one.usage)
        parts = [one.part for one in settled if one.part is not None]
        publisher = FolderPublisher(self.objects, self.side().jobs)
        final = Final(state=JobState.COMPLETED, reason="", usage=usage, amount_pico=usage.rows)
        manifest = publisher.publish(job, parts, final)
        publisher.seal(job)
        return manifest

    def finish(self, job: Job, answer: Answer = text) -> pa.Table:
        """The whole life; what a reader of the folder sees."""
        self.publish(job, self.run(job, answer))
        return pq.read_table(job.folder)


def request(custom_id: str, /, **body: Any) -> dict[str, Any]:
    """An OpenAI batch line."""
    messages = body.pop("messages", [{"role": "user", "content": "hi"}])
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "fake", "messages": messages, **body},
    }
