"""What is tried again of a transaction, and for how long; without a server."""

import os

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from infra.clocks import ManualClock
from infra.sql import AT_ONCE, PostgresPolicy
from infra.sql.postgres import PostgresDatabase
from jobs.errors import Broken, DatabaseUnavailable

pytestmark = pytest.mark.unit


class Told(Exception):
    """What a driver raises. sqlstate: None where it has no answer from the server."""

    def __init__(self, sqlstate):
        super().__init__("the server's words")
        self.sqlstate = sqlstate


class Patient:
    """A database whose attempts fail as told and then succeed."""

    def __init__(self, *causes, retry_s=10.0):
        self.clock = ManualClock()
        self.causes = list(causes)
        self.attempts_s = []
        policy = PostgresPolicy(retry_s=retry_s)
        engine = sa.create_engine("sqlite://")
        self.db = PostgresDatabase(engine, where="here", clock=self.clock, pace=AT_ONCE, policy=policy)

    def run(self):
        return self.db._patiently(self._attempt)

    def _attempt(self):
        self.attempts_s.append(self.clock.monotonic())
        if self.causes:
            raise DatabaseUnavailable(where="here", reason="") from self.causes.pop(0)
        return "made"


def failed(sqlstate, statement="SELECT 1", *, lost=False):
    return exc.OperationalError(statement, {}, Told(sqlstate), connection_invalidated=lost)


AGAIN = {
    "serialization": failed("40001"),
    "deadlock": failed("40P01"),
    "shut down": failed("57P01", lost=True),
    "starting up": failed("57P03"),
    "connection broke": failed(None, lost=True),
    "no connection": failed(None, statement=None),
    "too many connections": failed("53300"),
    "idle in transaction": failed("25P03"),
    "standby now": failed("25006"),
}
AT_LAST = {
    "lock timeout": failed("55P03"),
    "statement timeout": failed("57014"),
    "no privilege": failed("42501"),
    "pool empty": exc.TimeoutError("no connection is free"),
    "something else": failed(None),
}


@pytest.mark.parametrize("cause", AGAIN.values(), ids=AGAIN)
def test_what_passes_is_tried_again(cause):
    patient = Patient(cause, cause)
    assert patient.run() == "made"
    assert len(patient.attempts_s) == 3


@pytest.mark.parametrize("cause", AT_LAST.values(), ids=AT_LAST)
def test_what_has_waited_already_or_will_not_pass_is_told_at_once(cause):
    patient = Patient(cause)
    with pytest.raises(DatabaseUnavailable):
        patient.run()
    assert patient.attempts_s == [0.0]


def test_attempts_lie_farther_and_farther_apart_and_end_in_time():
    patient = Patient(*AGAIN.values(), *AGAIN.values(), *AGAIN.values(), retry_s=5.0)
    with pytest.raises(DatabaseUnavailable):
        patient.run()
    waits = [b - a for a, b in zip(patient.attempts_s, patient.attempts_s[1:], strict=False)]
    assert 4.0 <= patient.attempts_s[-1] <= 5.0
    assert waits[0] <= 0.02
    assert 0.5 <= max(waits) <= 1.0
    assert 8 <= len(waits) <= 16


def test_the_time_to_try_again_begins_with_the_first_failure():
    patient = Patient(AGAIN["idle in transaction"], retry_s=1.0)
    first = patient._attempt

    def slow():
        patient.clock.advance(60.0)
        return first()

    assert patient.db._patiently(slow) == "made"


def test_no_patience_means_one_attempt():
    patient = Patient(AGAIN["deadlock"], retry_s=0.0)
    with pytest.raises(DatabaseUnavailable):
        patient.run()
    assert patient.attempts_s == [0.0]


def test_a_database_is_not_used_after_a_fork(monkeypatch):
    patient = Patient()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(Broken, match="fork"):
        patient.run()
