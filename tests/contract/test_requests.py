"""Charges of interactive requests: one body over every adapter."""

from threading import Thread

import pytest
import sqlalchemy as sa

from infra.sql import tables_live
from infra.sql.requeststore import posting_of
from jobs import ledger
from jobs.errors import NightmillError
from jobs.model import Usage
from jobs.moves import Answer
from jobs.ports.book import Fold, StatementLine
from tests.factories import PRICE, USAGE, Planned
from tests.support.postings import USED, a_posting

pytestmark = pytest.mark.contract

AMOUNT = 10 * 150_000 + 4 * 75_000 + 6 * 600_000


def recorded(store):
    """All usage records, by id."""
    query = sa.select(tables_live.requests).order_by(tables_live.requests.c.id)
    return store._db.ask(lambda c: [posting_of(row) for row in c.execute(query)])


def test_a_request_is_recorded_as_it_was_posted_and_charged_at_its_price(store):
    posting = a_posting()
    assert store.post_requests([posting]) == [Answer.MADE]
    assert recorded(store) == [posting]
    entries = list(store.entries())
    assert entries == list(ledger.charge_request(posting))
    assert [(e.txn, e.job, e.task, e.account, e.amount_pico) for e in entries] == [
        ("use:req-a", "", "req-a", "tenant:default:usage", 1_500_000),
        ("use:req-a", "", "req-a", "tenant:default:usage", 300_000),
        ("use:req-a", "", "req-a", "tenant:default:usage", 3_600_000),
        ("use:req-a", "", "req-a", "platform:revenue:fake", -AMOUNT),
    ]


def test_a_request_that_is_posted_again_is_charged_once(store):
    a, b, c = a_posting("req-a"), a_posting("req-b"), a_posting("req-c", first_token_s=None)
    assert store.post_requests([b, a, a.evolve(usage=USAGE), b]) == [
        Answer.MADE, Answer.MADE, Answer.ALREADY, Answer.ALREADY,
    ]  # fmt: skip
    assert store.post_requests([c, a.evolve(usage=USAGE)]) == [Answer.MADE, Answer.ALREADY]
    assert recorded(store) == [a, b, c]
    store.fold()
    assert store.balances() == {
        ("tenant:default:usage", "USD"): 3 * AMOUNT, ("platform:revenue:fake", "USD"): -3 * AMOUNT,
    }  # fmt: skip
    assert store.verify().faults == ()


def test_many_who_post_the_same_requests_at_once_charge_each_once(open_again):
    stores = [open_again(), open_again()]
    postings = [a_posting(f"req-{number}") for number in range(40)]
    answers = []

    def post(store, mine):
        answers.extend(store.post_requests(mine))

    turns = [(store, postings[::step]) for store in stores for step in (1, -1)]
    threads = [Thread(target=post, args=turn) for turn in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (answers.count(Answer.MADE), answers.count(Answer.ALREADY)) == (40, 120)
    assert stores[0].fold() == Fold(transactions=40, entries=160)
    assert stores[0].balances()["tenant:default:usage", "USD"] == 40 * AMOUNT
    assert stores[0].verify().faults == ()


def test_one_that_cannot_be_posted_takes_no_other_with_it(store):
    unfit = a_posting("req-b", usage=USED.evolve(output_tokens=2**63))
    with pytest.raises((NightmillError, OverflowError)):
        store.post_requests([a_posting("req-a"), unfit, a_posting("req-c")])
    assert [posting.id for posting in recorded(store)] == ["req-a", "req-c"]
    store.fold()
    assert store.verify().faults == ()


def test_what_used_nothing_is_recorded_and_owes_nothing(store):
    store.post_requests([a_posting(usage=Usage(), outcome="error")])
    store.fold()
    assert (store.balances()["tenant:default:usage", "USD"], store.verify().faults) == (0, ())
    assert store.post_requests([]) == []


def test_requests_are_folded_beside_jobs_and_into_no_job_s_totals(store):
    p = Planned(store, tasks=1)
    store.post_requests([a_posting("req-a"), a_posting("req-b")])
    p.done(0)
    assert store.fold() == Fold(transactions=3, entries=12)
    owed = ledger.balances(store.entries())
    assert (store.balances(), store.job(p.job.id).usage) == (owed, USAGE)
    store.post_requests([a_posting("req-c")])
    report = store.verify()
    assert (report.transactions, report.blocks, report.unsealed, report.faults) == (4, 1, 4, ())


def test_a_statement_has_a_line_a_model_and_key_not_one_a_request(store):
    example = PRICE.evolve(version="v0", example=True)
    for price in (example, PRICE, PRICE.evolve(version="v2")):
        store.set_price(price)
    postings = [
        a_posting("req-a", at=10.0),
        a_posting("req-b", at=20.0, price=PRICE.evolve(version="v2")),
        a_posting("req-c", at=30.0, creator="key_b"),
        a_posting("req-d", at=40.0, price=example),
        a_posting("req-e", at=40.0, tenant="acme"),
    ]
    store.post_requests(postings)
    line = StatementLine(
        job="", project="web", model="fake", kind="usage", token_class="input", tokens=20,
        amount_pico=20 * 150_000, currency="USD", example_price=False, creator="key_a", tags={"team": "red"},
    )  # fmt: skip
    lines = [found for found in store.statement("default") if found.token_class == "input"]
    assert sorted(lines, key=lambda found: (found.creator, found.example_price)) == [
        line,
        line.evolve(tokens=10, amount_pico=10 * 150_000, example_price=True),
        line.evolve(tokens=10, amount_pico=10 * 150_000, creator="key_b"),
    ]
    assert [found.tokens for found in store.statement("default", since=20.0, until=30.0)] == [10, 4, 6]


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM requests", "transaction use:req-a is for a request that was not served: req-a"),
        ("UPDATE requests SET usage = replace(usage, '10', '9')", "use:req-a is not the usage of req-a at its price"),
        ("UPDATE requests SET price = replace(price, '150000', '1')", "use:req-a is not the usage of req-a"),
        ("UPDATE requests SET id = 'req-x'", "request req-x was served and has no charge"),
    ],
)
def test_verify_finds_a_record_and_a_charge_that_differ(store, statement, fault):
    store.post_requests([a_posting()])
    store._db.write(lambda c: c.exec_driver_sql(statement))
    for _ in range(2):
        assert [found for found in store.verify().faults if fault in found]
        store.fold()
