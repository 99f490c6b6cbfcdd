"""Makes the child job of a retry: exactly the rows of the parent that had the asked outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.bootstrap import Home
from infra.hints import nearest
from jobs.errors import BadInput, Refused, WrongState
from jobs.model import Job, Outcome
from jobs.submit import retry


class NothingToRetry(Refused):
    """Job {job} has no row of outcome {outcomes}; nothing to retry."""

    code = "nothing_to_retry"


def make_retry(
    home: Home, parent: Job, outcomes: str, output: str | None, sampling: Mapping[str, Any], child_id: str | None = None
) -> Job:
    """Write the row numbers and the child's record. Raises Refused."""
    if not parent.state.terminal:
        raise WrongState(job=parent.id, state=parent.state, action="retry", needed="finished")
    wanted = outcomes_of(outcomes)
    child_id = child_id or home.ids.job_id()
    select, rows = home.results.select_rows(parent, wanted, child_id)
    if not rows:
        raise NothingToRetry(job=parent.id, outcomes=outcomes)
    merged = {**json.loads(parent.spec.sampling), **sampling}
    child = retry(
        parent,
        select=select,
        rows=rows,
        sampling=json.dumps(merged, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        output=output or parent.spec.output,
        job_id=child_id,
        now=home.store.now(),
        outcomes=outcomes,
    )
    return home.store.create_job(child, home.store.files(parent.id))


def outcomes_of(text: str) -> frozenset[Outcome]:
    """ "error,truncated" as outcomes. Raises BadInput naming the nearest known one."""
    found = set()
    for name in (part.strip() for part in text.split(",")):
        try:
            found.add(Outcome(name))
        except ValueError:
            near = nearest(name, [str(o) for o in Outcome])
            hint = f"; did you mean {near}?" if near else ""
            known = ", ".join(Outcome)
            raise BadInput(source="--outcome", reason=f"{name!r} is none of {known}{hint}") from None
    return frozenset(found)
