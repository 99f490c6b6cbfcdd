"""`verify` finds each kind of tampering, by whoever may write past the triggers."""

import sqlite3

import pytest

from tests.factories import Planned

pytestmark = pytest.mark.contract


@pytest.fixture
def tamper(request):
    """Runs a statement that no trigger sees; how many rows it changed."""
    if "postgres" in request.node.callspec.id:
        clock = request.getfixturevalue("clock")
        return clock.followers[0].tamper
    path = request.getfixturevalue("sqlite_home") / "nightmill.db"

    def run(statement):
        connection = sqlite3.connect(path, isolation_level=None)
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        changed = connection.execute(statement).rowcount
        for _, sql in triggers:
            connection.execute(sql)
        connection.close()
        return changed

    return run


# fmt: off
TAMPERING = [
    ("an amount", "UPDATE entries SET amount_pico = amount_pico + 1 WHERE id = 1", "is off by 1 pico-USD"),
    (
        "an amount, sealed",
        "UPDATE entries SET amount_pico = amount_pico + 1 WHERE id = 1",
        "block 0 is not what was sealed",
    ),
    (
        "a balanced amount",
        (
            "UPDATE entries SET amount_pico = amount_pico + CASE line WHEN 0 THEN 5 ELSE -5 END "
            "WHERE line IN (0, 3) AND task LIKE '%0'"
        ),
        "is not the usage of",
    ),
    ("a tenant", "UPDATE entries SET tenant = 'other' WHERE id = 2", "block 0 is not what was sealed"),
    ("a time", "UPDATE entries SET at = at + 1", "block 1 is not what was sealed"),
    ("an entry gone", "DELETE FROM entries WHERE id = 3", "its 3 entries give another root"),
    (
        "a charge gone",
        "DELETE FROM entries WHERE txn LIKE 'use:%00002'",
        "job-a-s00000.00002 has results and no charge",
    ),
    (
        "an entry of nothing",
        (
            "INSERT INTO entries SELECT 99, 'ghost', line, kind, account, 0, currency, tenant, project, "
            "tags, creator, job, task, model, price_version, token_class, tokens, at FROM entries WHERE id = "
            "1"
        ),
        "transaction ghost is in no block",
    ),
    ("a place gone", "DELETE FROM sealed WHERE block = 0", "says 1 transactions and has 0"),
    ("a block gone", "DELETE FROM blocks WHERE block = 0", "block 0 is missing"),
    ("a root", "UPDATE blocks SET root = 'f' WHERE block = 0", "block 1 does not follow"),
    (
        "a balance",
        "UPDATE balances SET amount_pico = '7' WHERE account LIKE 'tenant%'",
        "the balance of tenant:default:usage is 7",
    ),
    (
        "a balance of nobody",
        "INSERT INTO balances VALUES ('thief', 'USD', '7')",
        "the balance of thief is 7 pico-USD, its entries give 0",
    ),
    ("totals", "UPDATE job_totals SET amount_pico = '1'", "the totals of job-a"),
    ("a usage", "UPDATE tasks SET usage = replace(usage, '100', '99') WHERE usage IS NOT NULL", "is not the usage of"),
    ("a price", "UPDATE jobs SET price = replace(price, '150000', '1')", "at the price of job-a"),
    (
        "a task undone",
        "UPDATE tasks SET state = 'queued' WHERE id LIKE '%00000'",
        "is charged or has results, and is not done",
    ),
    (
        "a reservation left",
        "UPDATE reservations SET state = 'open' WHERE task LIKE '%00000'",
        "00000 is done and still holds a reservation",
    ),
    (
        "a reservation of nobody",
        "INSERT INTO reservations VALUES ('ghost', 1, 'job-a', 1, 'open', 0, NULL)",
        "task ghost is unknown and still holds a reservation",
    ),
    (
        "a reservation gone",
        "UPDATE reservations SET state = 'voided' WHERE task LIKE '%00003'",
        "00003 is released or leased without a reservation",
    ),
]
# fmt: on


@pytest.mark.parametrize(("statement", "fault"), [t[1:] for t in TAMPERING], ids=[t[0] for t in TAMPERING])
def test_verify_finds(store, tamper, statement, fault):
    p = Planned(store, tasks=5)
    for number in range(3):
        p.done(number)
        if number < 2:
            store.fold()
    p.leased(3)
    assert store.verify().faults == ()
    assert tamper(statement) > 0
    faults = store.verify().faults
    assert [f for f in faults if fault in f], faults


def test_verify_names_at_most_a_thousand_faults(store, tamper, monkeypatch):
    monkeypatch.setattr("infra.sql.audit.MAX_FAULTS", 2)
    for number in range(4):
        tamper(f"INSERT INTO balances VALUES ('thief-{number}', 'USD', '7')")
    assert len(store.verify().faults) == 3
    assert store.verify().faults[-1] == "and 2 more"
