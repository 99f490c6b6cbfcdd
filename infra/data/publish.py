"""The finaliser's file work: parts become `part-NNNNN.parquet`, then `_manifest.json`, then `_SUCCESS`.

Every step looks at what is there and goes on, so that a crash anywhere is mended by doing it all again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from infra.data.frozen import FrozenJobs
from infra.data.manifest import NAME, PublishedPart, manifest_uri, read_manifest, write_manifests
from infra.data.order import in_order, restore_order
from infra.sql.blobs import SCHEME
from jobs.errors import NightmillError, OutputTaken, Refused
from jobs.model import Job, Part
from jobs.ports.objects import Objects
from jobs.ports.planning import Final

SUCCESS = "_SUCCESS"


class OutputUnwritable(Refused):
    """The output folder {folder} cannot be written: {reason}."""

    code = "output_unwritable"


class FolderPublisher:
    """Publishes result folders. Two at once over one job write the same bytes."""

    def __init__(self, objects: Objects, jobs: FrozenJobs) -> None:
        self._objects = objects
        self._jobs = jobs

    def publish(self, job: Job, parts: Iterable[Part], final: Final) -> str:
        """One job's."""
        return self.publish_all([(job, parts, final)])[0]

    def publish_all(self, ends: Sequence[tuple[Job, Iterable[Part], Final]]) -> list[str]:
        there = {job.id: self._names(job) for job, _, _ in ends}
        new = [end for end in ends if not self._is_published(end[0], there[end[0].id])]
        found = [(job, self._jobs.of(job).output, self._ordered(parts), final) for job, parts, final in new]
        places: list[tuple[str, str]] = []
        cut: list[tuple[Job, pa.Schema, Sequence[PublishedPart], Final]] = []
        for job, schema, ordered, final in found:
            if job.spec.order == "input" and not in_order(ordered):
                published: Sequence[PublishedPart] = list(restore_order(self._objects, job.folder, ordered, schema))
            else:
                published = [_published(number, part) for number, part in enumerate(ordered)]
                places += [(a.uri, f"{job.folder}/{b.name}") for a, b in zip(ordered, published, strict=True)]
            cut.append((job, schema, published, final))
        self._objects.publish_many(places)
        for job, _, published, _ in cut:
            self._remove_others(job, there[job.id] - {part.name for part in published})
            self._objects.sync(job.folder)  # before a manifest names them
        write_manifests(self._objects, cut)
        return [manifest_uri(job.folder) for job, _, _ in ends]

    def _names(self, job: Job) -> set[str]:
        """Of what lies in its folder itself."""
        names = (facts.uri[len(job.folder) + 1 :] for facts in self._objects.list(f"{job.folder}/"))
        return {name for name in names if "/" not in name}

    def _is_published(self, job: Job, names: set[str]) -> bool:
        """Raises OutputTaken."""
        done = read_manifest(self._objects, job.folder) if NAME in names else None
        if done is not None and done.job != job.id:
            raise OutputTaken(folder=job.folder, holder=f"the results of job {done.job}")
        return done is not None

    @staticmethod
    def _ordered(parts: Iterable[Part]) -> list[Part]:
        return sorted(parts, key=lambda part: (part.first_row, part.task))

    def _remove_others(self, job: Job, names: set[str]) -> None:
        """What a crashed attempt of another release may have cut differently; without a manifest it never counted."""
        for name in sorted(names):
            if name.startswith("part-"):
                self._objects.delete(f"{job.folder}/{name}")

    def seal(self, job: Job) -> None:
        """One job's."""
        self.seal_all([job])

    def seal_all(self, jobs: Sequence[Job]) -> None:
        """What lands in the parts' folder later belongs to a dead lease; readers ignore it."""
        self._objects.put_many([(f"{job.folder}/{SUCCESS}", b"") for job in jobs])
        folders = [folder for job in jobs for folder in (f"{job.folder}/_parts/", f"{self._jobs.folder(job).staged}/")]
        gone = [facts.uri for folder in folders for facts in self._objects.list(folder, unfinished=True)]
        self._objects.delete_many(gone)


def _published(number: int, part: Part) -> PublishedPart:
    return PublishedPart(
        name=f"part-{number:05d}.parquet",
        rows=part.rows,
        size=part.size,
        checksum=part.checksum,
        first_row=part.first_row,
        last_row=part.last_row,
        task=part.task,
    )


def check_output_folder(objects: Objects, output: str, job_id: str | None = None) -> None:
    """Several jobs may share a folder, each in its own below it; what is not theirs is not touched.

    output: the folder that jobs share. job_id: of a job that is to write there, if it is known yet.
    Raises OutputTaken.
    """
    if job_id is None and output.startswith(f"{SCHEME}:"):
        return  # the platform's own, where nobody else writes
    folder = output.rstrip("/")
    if "://" in output and "://" not in folder:
        raise Refused(reason=f"{output} names no folder")
    _refuse_finished(objects, folder)
    if job_id is not None:
        mine = f"{folder}/{job_id}"
        _refuse_finished(objects, mine)
        for facts in objects.list(f"{mine}/"):
            raise OutputTaken(folder=mine, holder=f"another file ({facts.uri})")


def check_writable(objects: Objects, output: str, job_id: str) -> None:
    """Put something small into the folder and take it away again; not into the database, which takes the job's record
    next. Raises OutputUnwritable, Unavailable.
    """
    if output.startswith(f"{SCHEME}:"):
        return
    probe = f"{output.rstrip('/')}/.{job_id}"
    try:
        objects.put_if_absent(probe, b"")
        objects.delete(probe)
    except Refused as error:
        raise OutputUnwritable(
            folder=output, reason=str(error.data.get("reason", error)).removeprefix(f"{probe}: ")
        ) from error


def _refuse_finished(objects: Objects, folder: str) -> None:
    """A job's own folder (or what looks like one) is no place for other jobs: readers would mix them."""
    if objects.facts(folder) is not None:
        raise OutputTaken(folder=folder, holder="a file of that name")
    if objects.facts(manifest_uri(folder)) is None:
        return
    try:
        found = read_manifest(objects, folder)
    except NightmillError:
        found = None
    holder = f"the results of job {found.job}" if found is not None else "a manifest that is not ours"
    raise OutputTaken(folder=folder, holder=holder)
