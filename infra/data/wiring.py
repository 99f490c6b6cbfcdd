"""The data side of one process, put together: composition roots take it from here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.data.frozen import FrozenJobs
from infra.data.read import RowReader
from infra.data.segments import Planner
from infra.data.sink import ParquetPartSink
from infra.data.source import ParquetRowSource
from jobs.model import InputFile
from jobs.plan import PlanPolicy
from jobs.ports.objects import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSide:
    """planner, source, sink over one reader, so that they share its cursors."""

    planner: Planner
    source: ParquetRowSource
    sink: ParquetPartSink
    jobs: FrozenJobs
    reader: RowReader


def data_side(
    objects: Objects,
    *,
    home: str,
    secret: bytes,
    files: Callable[[str], Sequence[InputFile]],
    policy: PlanPolicy | None = None,
) -> DataSide:
    """home: URI of the home folder; secret: 32 random bytes kept with it; files: `store.files`."""
    jobs = FrozenJobs(objects, home=home, files=files)
    reader = RowReader(objects)
    source = ParquetRowSource(objects, jobs, reader, secret=secret)
    return DataSide(
        planner=Planner(objects, jobs, reader, policy),
        source=source,
        sink=ParquetPartSink(objects, source),
        jobs=jobs,
        reader=reader,
    )
