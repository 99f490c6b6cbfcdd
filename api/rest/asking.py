"""From the body of a request for a job to the request that the domain knows; what it names is inside the tenant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from api.rest.auth import Caller
from api.rest.errors import missing
from api.rest.job_schemas import JobRequest
from api.rest.parts import Parts
from jobs.access import check_places
from jobs.errors import BadInput, Conflict, NotFound, Refused
from jobs.model import Job
from jobs.naming import pool_behind
from jobs.ports.intake import SubmitRequest
from jobs.request import request_of

_LONGEST_S = 10 * 366 * 86_400
_OURS = ("input", "input_file_id", "rows")


def asked(parts: Parts, caller: Caller, body: JobRequest, name: str) -> SubmitRequest:
    """name: of what is made for this request alone, an id. Raises Refused."""
    pool = pool_behind(body.model, parts.store.aliases(caller.name), parts.pools())
    output = _output(parts, caller, body.output)
    uri = _input(parts, caller, body, name)
    given = body.model_dump(by_alias=True, exclude_none=True, exclude={*_OURS, "model", "output", "webhook"})
    request = request_of(
        {**given, "input": uri, "model": pool.model, "output": output},
        tenant=caller.name,
        creator=caller.key.id,
        key=_key_of(name),
    )
    if request.deadline_s is not None and not 0 < request.deadline_s <= _LONGEST_S:
        raise BadInput(source="deadline", reason="it must lie in the future, and within ten years")
    return request.evolve(
        pool=pool.name,
        asked_model="" if body.model == pool.model else body.model,
        project=caller.key.project,
        foreign=body.rows is None,
    )


def _input(parts: Parts, caller: Caller, body: JobRequest, name: str) -> str:
    given = [field for field in _OURS if getattr(body, field) is not None]
    if len(given) != 1:
        raise BadInput(source="input", reason=f"give exactly one of {', '.join(_OURS)}")
    if body.input is not None:
        _check_granted(parts, caller, body.input, "input", write=False)
        return body.input
    if body.input_file_id is not None:
        try:
            return parts.store.file(body.input_file_id, caller.name).uri
        except NotFound:
            raise missing("file", body.input_file_id, param="input_file_id") from None
    uri = rows_uri(parts, caller, name)
    parts.objects.put_if_absent(uri, parts.table(body.rows or ()))
    return uri


def rows_uri(parts: Parts, caller: Caller, name: str) -> str:
    """Where rows lie that came in the request itself."""
    return f"{parts.folder(caller.name, None)}/rows/{name}.parquet"


@contextmanager
def with_rows(parts: Parts, caller: Caller, body: JobRequest, name: str) -> Iterator[None]:
    """Rows that came in a request which is refused are read by nobody: they do not stay."""
    try:
        yield
    except (Refused, Conflict):
        if body.rows is not None and parts.store.job_of_key(caller.name, _key_of(name)) is None:
            parts.objects.delete(rows_uri(parts, caller, name))
        raise


def _key_of(name: str) -> str:
    return f"rest:{name}"


def _output(parts: Parts, caller: Caller, asked_for: str | None) -> str:
    if asked_for is None:
        return f"{parts.folder(caller.name, None)}/results"
    _check_granted(parts, caller, asked_for, "output", write=True)
    return asked_for


def check_output(parts: Parts, caller: Caller, asked_for: str | None) -> str | None:
    """A folder that is asked for, which the tenant may write."""
    return None if asked_for is None else _output(parts, caller, asked_for)


def check_again(parts: Parts, caller: Caller, job: Job, output: str | None) -> None:
    """A job that is done again reads its input anew, and writes beside its results unless `output` says otherwise:
    what was not granted, or is no more, it may not.
    """
    places = {"input": job.spec.input} | ({} if output else {"output": job.spec.output})
    own = [f"{parts.folder(caller.name, size)}/" for size in (0, None)]
    for field, uri in places.items():
        if not any(uri.startswith(folder) for folder in own):
            _check_granted(parts, caller, uri, field, write=field == "output")


def _check_granted(parts: Parts, caller: Caller, uri: str, field: str, *, write: bool) -> None:
    reads, writes = ((), (uri,)) if write else ((uri,), ())
    check_places(caller.name, reads=reads, writes=writes, store=parts.store, never=parts.hidden, param=field)
