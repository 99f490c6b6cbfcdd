"""The filing port: one body over every adapter."""

import pytest

from jobs.errors import Conflict, NotFound, QuotaExceeded
from jobs.filing import BatchStatus, FileKind, LineError
from jobs.ports.filing import Replay
from jobs.tenancy import Tenant
from tests.support.filing import a_batch, a_file, twice
from tests.support.statements import said
from tests.support.together import together

pytestmark = pytest.mark.contract

ENDS = [status for status in BatchStatus if status.terminal]
GONE = "There is no file named file-a. It may have been deleted or have expired."


@pytest.fixture
def filed(store):
    """A store with one file."""
    store.add_file(a_file())
    return store


def limit(store, tokens, name="default"):
    store.put_tenant(store.tenant(name).evolve(enqueued_tokens_limit=tokens), "cli:ann")


def ids(found):
    return [one.id for one in found]


# ---- files ------------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_was_added_and_again_is_the_same_one(store, clock):
    file = a_file(project="web", creator="key_a", batch="batch_a", expires_at=clock.now() + 9, purpose=FileKind.OUTPUT)
    assert store.add_file(file) == file == store.file(file.id, "default")
    assert store.add_file(file.evolve(filename="other.jsonl", size=1)) == file
    assert store.add_file(a_file("file-b", created_at=0.0)).created_at == clock.now()


def test_a_name_that_is_no_text_is_kept_as_far_as_it_is(store):
    assert (
        store.add_file(a_file(filename="a\0b\ud800.jsonl")).filename
        == "a b?.jsonl"
        == store.file("file-a", "default").filename
    )


@pytest.mark.parametrize("act", [lambda s, t: s.file("file-a", t), lambda s, t: s.delete_file("file-a", t)])
def test_another_tenant_s_file_is_told_in_the_same_words_as_one_that_never_was(store, act):
    with pytest.raises(NotFound) as never:
        act(store, "acme")
    store.add_file(a_file())
    with pytest.raises(NotFound) as other:
        act(store, "acme")
    with pytest.raises(NotFound):
        store.add_file(a_file(tenant="acme"))
    assert (never.value.sentence, other.value.sentence, store.file("file-a", "default").id) == (GONE, GONE, "file-a")


def test_files_are_listed_in_pages_in_either_order_by_tenant_and_purpose(store):
    for number, created_at in enumerate([1.0, 2.0, 2.0, 3.0]):
        kind = FileKind.OUTPUT if number == 1 else FileKind.BATCH
        store.add_file(a_file(f"file-{number}", created_at=created_at, purpose=kind))
    store.add_file(a_file("file-x", tenant="acme"))
    newest = store.stored_files("default", limit=2)
    oldest = store.stored_files("default", limit=2, newest=False)
    assert [ids(newest), ids(store.stored_files("default", after=newest[-1].id))] == [
        ["file-3", "file-2"],
        ["file-1", "file-0"],
    ]
    assert [ids(oldest), ids(store.stored_files("default", after=oldest[-1].id, newest=False))] == [
        ["file-0", "file-1"], ["file-2", "file-3"],
    ]  # fmt: skip
    assert ids(store.stored_files("default", purpose="batch", after="file-3")) == ["file-2", "file-0"]
    for after in ("file-x", "file-y"):
        with pytest.raises(NotFound):
            store.stored_files("default", after=after)


def test_a_deleted_file_is_gone_for_its_tenant_and_waits_for_the_sweeper(filed, clock):
    filed.delete_file("file-a", "default")
    deleted = a_file(deleted_at=clock.now())
    for act in (filed.file, filed.delete_file):
        with pytest.raises(NotFound) as caught:
            act("file-a", "default")
        assert caught.value.sentence == GONE
    assert (filed.stored_files("default"), list(filed.dead_files()), list(filed.dead_files(1.0))) == ([], [deleted], [])
    clock.advance(1)
    assert list(filed.dead_files(1.0)) == [deleted]
    assert filed.stored_files("default", after="file-a") == []  # a list goes on where it was


def test_a_file_expires_by_the_database_s_clock(store, clock):
    store.add_file(a_file(expires_at=clock.now() + 10))
    store.add_file(a_file("file-b", expires_at=clock.now() + 5))
    assert (len(store.stored_files("default")), list(store.dead_files())) == (2, [])
    clock.advance(10)
    with pytest.raises(NotFound):
        store.file("file-a", "default")
    assert (store.stored_files("default"), ids(store.dead_files())) == ([], ["file-b", "file-a"])
    clock.advance(5)
    assert ids(store.dead_files(10.0)) == ["file-b"]


def test_only_dead_files_are_forgotten(store, clock):
    for name in "abc":
        store.add_file(a_file(f"file-{name}", expires_at=clock.now() if name == "c" else None))
    store.delete_file("file-a", "default")
    store.forget_files(["file-a", "file-b", "file-c", "file-x"])
    store.forget_files([])
    assert (list(store.dead_files()), ids(store.stored_files("default"))) == ([], ["file-b"])


def test_dead_files_come_in_more_than_one_page(store, clock, monkeypatch):
    monkeypatch.setattr("infra.sql.filestore._PAGE", 2)
    for number in range(5):
        store.add_file(a_file(f"file-{number}", expires_at=clock.now() - number // 2))
    assert ids(store.dead_files()) == ["file-4", "file-2", "file-3", "file-0", "file-1"]


def test_a_file_that_an_open_batch_reads_is_not_deleted_and_not_swept(store, clock):
    store.add_file(a_file(expires_at=clock.now() + 10))
    batch = store.add_batch(a_batch())
    with pytest.raises(Conflict, match="a batch that is not at its end reads file-a"):
        store.delete_file("file-a", "default")
    clock.advance(10)
    assert list(store.dead_files()) == []
    store.change_batch(batch.evolve(status=BatchStatus.CANCELLED))
    assert ids(store.dead_files()) == ["file-a"]


# ---- batches ----------------------------------------------------------------------------------------


def test_a_batch_comes_back_as_it_was_added_and_again_is_the_same_one(filed, clock):
    batch = a_batch(
        metadata={"näme": "x\0y"}, order="input", errors=(LineError(code="c", message="m", line=3, param="p"),),
        times={"validating": 5.0}, enqueued_tokens=7, output_expires_s=60, expires_at=99.0, creator="key_a",
    )  # fmt: skip
    assert filed.add_batch(batch) == batch == filed.batch(batch.id, "default")
    assert filed.add_batch(batch.evolve(metadata={}, enqueued_tokens=9)) == batch
    assert filed.add_batch(a_batch("batch_b", created_at=0.0)).created_at == clock.now()
    assert filed.enqueued_tokens("default") == 7


@pytest.mark.parametrize("spoil", [lambda s: s.delete_file("file-a", "default"), lambda s: limit(s, 3)])
def test_a_batch_that_is_there_comes_back_whatever_holds_now(filed, spoil):
    batch = filed.add_batch(a_batch(enqueued_tokens=5))
    ended = filed.change_batch(batch.evolve(status=BatchStatus.FAILED))
    spoil(filed)
    assert filed.add_batch(batch) == ended


@pytest.mark.parametrize("input_file", ["file-never", "file-deleted", "file-expired", "file-of-another"])
def test_a_batch_needs_its_input_file(store, clock, input_file):
    store.add_file(a_file("file-deleted"))
    store.delete_file("file-deleted", "default")
    store.add_file(a_file("file-expired", expires_at=clock.now()))
    store.add_file(a_file("file-of-another", tenant="acme"))
    with pytest.raises(NotFound) as caught:
        store.add_batch(a_batch(input_file=input_file, enqueued_tokens=5))
    assert caught.value.sentence == GONE.replace("file-a", input_file)
    assert (store.batches("default"), store.enqueued_tokens("default")) == ([], 0)


def test_another_tenant_s_batch_is_told_in_the_same_words_as_one_that_never_was(filed):
    filed.add_batch(a_batch())
    filed.add_file(a_file("file-b", tenant="acme"))
    words = "There is no batch named {}. List the batches there are: GET /v1/batches"
    for name in ("batch_a", "batch_never"):
        for act in (lambda n=name: filed.batch(n, "acme"), lambda n=name: filed.batches("acme", after=n)):
            with pytest.raises(NotFound) as caught:
                act()
            assert caught.value.sentence == words.format(name)
    with pytest.raises(NotFound) as caught:
        filed.add_batch(a_batch(tenant="acme", input_file="file-b"))
    assert caught.value.sentence == words.format("batch_a")


def test_batches_are_listed_newest_first_in_pages(filed):
    for number, created_at in enumerate([1.0, 2.0, 2.0, 3.0]):
        filed.add_batch(a_batch(f"batch_{number}", created_at=created_at))
    first = filed.batches("default", limit=2)
    assert [ids(first), ids(filed.batches("default", after=first[-1].id)), filed.batches("acme")] == [
        ["batch_3", "batch_2"], ["batch_1", "batch_0"], [],
    ]  # fmt: skip


def test_open_batches_of_all_tenants_are_paged_oldest_first_also_past_one_that_ended(filed):
    filed.add_file(a_file("file-b", tenant="acme"))
    made = [filed.add_batch(a_batch(f"batch_{n}", created_at=1.0 + n // 2)) for n in range(4)]
    filed.add_batch(a_batch("batch_x", tenant="acme", input_file="file-b", created_at=9.0))
    assert ids(filed.open_batches(limit=2)) == ["batch_0", "batch_1"]
    filed.change_batch(made[1].evolve(status=BatchStatus.FAILED))
    assert ids(filed.open_batches(after="batch_1")) == ["batch_2", "batch_3", "batch_x"]
    assert ids(filed.open_batches()) == ["batch_0", "batch_2", "batch_3", "batch_x"]


def test_a_change_wins_only_at_the_version_it_saw(filed):
    batch = filed.add_batch(a_batch(enqueued_tokens=5))
    first = filed.change_batch(batch.evolve(job="job-a", status=BatchStatus.IN_PROGRESS))
    assert (
        first
        == batch.evolve(job="job-a", status=BatchStatus.IN_PROGRESS, version=1)
        == filed.batch(batch.id, "default")
    )
    assert filed.change_batch(batch.evolve(job="job-b", enqueued_tokens=9)) is None
    assert filed.change_batch(a_batch("batch_never")) is None
    assert (filed.batch(batch.id, "default"), filed.enqueued_tokens("default")) == (first, 5)


def test_files_and_changes_come_in_lists_each_with_its_own_answer(filed):
    files = filed.add_files([a_file("file-c"), a_file("file-a", filename="late.jsonl"), a_file("file-b")])
    made = [filed.add_batch(a_batch(f"batch_{n}")) for n in "ab"]
    ended = [batch.evolve(status=BatchStatus.FAILED) for batch in (made[1], a_batch("batch_never"), made[0], made[1])]
    changed = filed.change_batches(ended)
    assert [(file.id, file.filename) for file in files] == [
        (name, a_file().filename) for name in ("file-c", "file-a", "file-b")
    ]
    assert [new and (new.id, new.version) for new in changed] == [("batch_b", 1), None, ("batch_a", 1), None]
    assert filed.open_batches() == []


def test_a_list_of_changes_locks_quotas_in_the_order_of_their_tenants(filed):
    """Else two lists with batches of the same tenants wait for each other."""
    tenants = {"batch_a": "zoe", "batch_b": "ann", "batch_c": "max"}
    made = []
    for name, tenant in tenants.items():
        filed.put_tenant(Tenant(name=tenant), "cli:ann")
        filed.add_file(a_file(f"file-{tenant}", tenant=tenant))
        made.append(filed.add_batch(a_batch(name, tenant=tenant, input_file=f"file-{tenant}", enqueued_tokens=5)))
    with said(filed) as statements:
        filed.change_batches([batch.evolve(status=BatchStatus.FAILED) for batch in made])
    held = [str(given) for text, given in statements if text.startswith("UPDATE quotas")]
    assert [name for given in held for name in tenants.values() if name in given] == ["ann", "max", "zoe"]


@pytest.mark.parametrize("status", ENDS)
def test_every_end_returns_what_was_held_once_and_is_final(filed, status):
    batch = filed.add_batch(a_batch(enqueued_tokens=5))
    ended = filed.change_batch(batch.evolve(status=status))
    assert ended == batch.evolve(status=status, version=1, enqueued_tokens=0) == filed.batch(batch.id, "default")
    assert filed.change_batch(ended.evolve(status=BatchStatus.IN_PROGRESS, enqueued_tokens=5)) is None
    assert (filed.enqueued_tokens("default"), filed.open_batches()) == (0, [])


# ---- the quota --------------------------------------------------------------------------------------


def test_a_batch_past_the_limit_is_refused_with_its_figures_and_holds_nothing(filed):
    limit(filed, 100)
    filed.add_batch(a_batch(enqueued_tokens=60))
    with pytest.raises(QuotaExceeded) as caught:
        filed.add_batch(a_batch("batch_b", enqueued_tokens=41))
    assert caught.value.data == {"tenant": "default", "limit": 100, "enqueued": 60, "asked": 41}
    filed.add_batch(a_batch("batch_c", enqueued_tokens=40))
    assert (filed.enqueued_tokens("default"), ids(filed.batches("default"))) == (100, ["batch_c", "batch_a"])


def test_a_change_holds_more_where_there_is_room_and_returns_what_it_no_longer_needs(filed):
    limit(filed, 100)
    batch = filed.change_batch(filed.add_batch(a_batch(enqueued_tokens=60)).evolve(enqueued_tokens=90))
    assert filed.enqueued_tokens("default") == 90
    with pytest.raises(QuotaExceeded) as caught:
        filed.change_batch(batch.evolve(enqueued_tokens=101, job="job-a"))
    assert (caught.value.data["asked"], filed.batch(batch.id, "default")) == (11, batch)
    filed.change_batch(batch.evolve(enqueued_tokens=30))
    assert filed.enqueued_tokens("default") == 30


def test_batches_that_come_together_each_have_their_own_answer(filed):
    filed.put_tenant(Tenant(name="default", enqueued_tokens_limit=100), "cli:ann")
    filed.add_file(a_file("file-b", tenant="acme"))
    new = [
        a_batch("batch_a", enqueued_tokens=60),
        a_batch("batch_b", enqueued_tokens=60),
        a_batch("batch_a", enqueued_tokens=60, metadata={"again": "1"}),
        a_batch("batch_c", input_file="file-b", enqueued_tokens=1),
        a_batch("batch_d", input_file="file-b", tenant="acme", enqueued_tokens=500),
        a_batch("batch_e", enqueued_tokens=40),
    ]
    answers = filed._db.write_list(filed._add_batches, new)
    assert [getattr(one, "id", getattr(one, "code", None)) for one in answers] == [
        "batch_a", "token_limit_exceeded", "batch_a", "not_found", "batch_d", "batch_e"
    ]  # fmt: skip
    assert answers[2] == answers[0]
    assert (filed.enqueued_tokens("default"), filed.enqueued_tokens("acme")) == (100, 500)
    assert ids(filed.open_batches()) == ["batch_a", "batch_d", "batch_e"]


def test_of_one_id_in_a_list_the_first_counts_and_another_tenant_has_none(filed):
    assert filed.add_files([a_file("file-b"), a_file("file-b", size=1)]) == [a_file("file-b")] * 2
    with pytest.raises(NotFound):
        filed.add_files([a_file("file-c"), a_file("file-c", tenant="acme")])


def test_files_are_asked_for_in_lists_by_their_tenants(filed, clock):
    filed.add_file(a_file("file-b", tenant="acme"))
    filed.add_file(a_file("file-c", expires_at=clock.now() + 1))
    clock.advance(2)
    asked = [("file-a", "default"), ("file-b", "default"), ("file-b", "acme"), ("file-c", "default"), ("x", "acme")]
    assert filed.files_named(asked) == {
        ("file-a", "default"): filed.file("file-a", "default"),
        ("file-b", "acme"): filed.file("file-b", "acme"),
    }
    assert filed.files_named([]) == {}


def test_each_tenant_has_a_quota_of_its_own_and_one_without_a_limit_none(filed):
    filed.put_tenant(Tenant(name="acme", enqueued_tokens_limit=10), "cli:ann")
    filed.add_file(a_file("file-b", tenant="acme"))
    filed.add_batch(a_batch(enqueued_tokens=10**15))
    with pytest.raises(QuotaExceeded):
        filed.add_batch(a_batch("batch_b", tenant="acme", input_file="file-b", enqueued_tokens=11))
    assert (filed.enqueued_tokens("default"), filed.enqueued_tokens("acme")) == (10**15, 0)


def test_a_limit_that_was_lowered_refuses_what_is_new_and_leaves_what_is_there(filed):
    batch = filed.add_batch(a_batch(enqueued_tokens=50))
    limit(filed, 10)
    with pytest.raises(QuotaExceeded):
        filed.add_batch(a_batch("batch_b", enqueued_tokens=1))
    filed.change_batch(batch.evolve(enqueued_tokens=5))
    filed.add_batch(a_batch("batch_c", enqueued_tokens=5))
    assert filed.enqueued_tokens("default") == 10


def test_sixteen_writers_at_once_never_pass_the_limit(filed):
    limit(filed, 100)

    def write(number):
        made = 0
        for n in range(4):
            try:
                filed.add_batch(a_batch(f"batch_{number}_{n}", enqueued_tokens=7))
                made += 1
            except QuotaExceeded:
                pass
        return made

    assert sum(together([lambda n=n: write(n) for n in range(16)])) == 14
    found = filed.batches("default", limit=100)
    assert (len(found), filed.enqueued_tokens("default")) == (14, 98)


def test_the_first_batches_of_a_tenant_at_the_same_time_all_find_room(filed):
    limit(filed, 160)
    works = [lambda n=n: filed.add_batch(a_batch(f"batch_{n}", enqueued_tokens=10)) for n in range(16)]
    assert [batch.enqueued_tokens for batch in together(works)] == [10] * 16
    assert filed.enqueued_tokens("default") == 160


@pytest.mark.parametrize("most", [10, None])
def test_one_batch_added_and_ended_by_many_at_once_is_held_and_returned_once(filed, most):
    limit(filed, most)
    made = together([lambda: filed.add_batch(a_batch(enqueued_tokens=10))] * 16)
    assert (made, filed.enqueued_tokens("default")) == ([a_batch(enqueued_tokens=10)] * 16, 10)
    ended = together([lambda: filed.change_batch(made[0].evolve(status=BatchStatus.COMPLETED))] * 16)
    assert (len([batch for batch in ended if batch]), filed.enqueued_tokens("default")) == (1, 0)


# ---- answers to replay ------------------------------------------------------------------------------


def begin(store, **changes):
    asked = {"tenant": "default", "key": "k", "digest": "d", "resource": "batch_a", "stale_s": 60.0, **changes}
    return store.begin(**asked)


def test_the_first_use_of_a_key_may_act_and_a_later_one_is_told_what_is_known(store):
    first = begin(store)
    assert first == Replay(digest="d", resource="batch_a", mine=True, claim=first.claim)
    known = Replay(digest="d", resource="batch_a")
    assert [begin(store, resource="batch_b"), begin(store, digest="other")] == [known, known]
    store.answered("default", "k", 201, b"\x00made")
    store.answered("default", "k", 500, b"late")
    assert begin(store, stale_s=0.0) == known.evolve(answer=(201, b"\x00made"))


def test_a_key_belongs_to_its_tenant(store):
    begin(store)
    assert begin(store, tenant="acme", resource="batch_b").resource == "batch_b"


def test_a_use_that_died_is_inherited_with_its_resource_but_not_by_another_request(store, clock):
    dead = begin(store)
    clock.advance(60)
    assert not begin(store, digest="other").mine
    heir = begin(store, resource="batch_b")
    assert heir == dead.evolve(claim=heir.claim)
    assert heir.claim != dead.claim
    assert not begin(store).mine


def test_only_who_has_the_key_now_and_has_not_answered_may_forget_it(store, clock):
    dead = begin(store)
    clock.advance(60)
    heir = begin(store)
    store.forget("default", "k", dead.claim)
    assert begin(store).mine is False
    store.forget("default", "k", heir.claim)
    other = begin(store, digest="other", resource="batch_b")
    assert (other.mine, other.resource) == (True, "batch_b")
    store.answered("default", "k", 200, b"")
    store.forget("default", "k", other.claim)
    assert begin(store).answer == (200, b"")


def test_a_use_that_was_given_up_is_inherited_at_once_with_its_resource_but_not_by_another_request(store):
    failed = begin(store)
    store.give_up("default", "k", failed.claim)
    assert not begin(store, digest="other").mine
    heir = begin(store, resource="batch_b")
    assert heir == failed.evolve(claim=heir.claim)
    assert not begin(store).mine


def test_only_who_has_the_key_now_and_has_not_answered_may_give_it_up(store, clock):
    dead = begin(store)
    clock.advance(60)
    heir = begin(store)
    store.give_up("default", "k", dead.claim)
    assert not begin(store).mine
    store.answered("default", "k", 200, b"")
    store.give_up("default", "k", heir.claim)
    assert begin(store) == heir.evolve(answer=(200, b""), mine=False, claim="")


def test_a_hundred_first_uses_at_once_make_one(store):
    found = together([lambda n=n: begin(store, resource=f"batch_{n}") for n in range(100)])
    mine = [replay for replay in found if replay.mine]
    assert (len(mine), {replay.resource for replay in found}) == (1, {mine[0].resource})


def test_a_hundred_heirs_at_once_are_one(store, clock):
    begin(store)
    clock.advance(60)
    assert [replay.mine for replay in together([lambda: begin(store)] * 100)].count(True) == 1


def test_what_was_begun_long_ago_is_forgotten_answered_or_not(store, clock, monkeypatch):
    monkeypatch.setattr("infra.sql.replaystore._CHUNK", 2)
    for number in range(5):
        begin(store, key=f"k{number}")
    store.answered("default", "k0", 200, b"")
    clock.advance(30)
    begin(store, key="young")
    assert [store.forget_replays(31.0), store.forget_replays(30.0), store.forget_replays(30.0)] == [0, 5, 0]
    assert [begin(store, key=key).mine for key in ("k0", "young")] == [True, False]


# ---- answers of the database that got lost ----------------------------------------------------------


def test_a_change_whose_commit_was_not_answered_is_made_once(store, clock):
    twice(store)
    limit(store, 100)
    store.add_file(a_file())
    batch = store.add_batch(a_batch(enqueued_tokens=30))
    more = store.change_batch(batch.evolve(enqueued_tokens=50))
    assert (more.version, store.enqueued_tokens("default")) == (1, 50)
    assert store.change_batch(batch) is None
    assert store.change_batch(more.evolve(status=BatchStatus.COMPLETED)).version == 2
    store.delete_file("file-a", "default")
    first = begin(store)
    clock.advance(60)
    heir = begin(store)
    assert (first.mine, heir.mine, begin(store).mine) == (True, True, False)
    assert (store.enqueued_tokens("default"), ids(store.dead_files())) == (0, ["file-a"])


NAMED = {
    "file": lambda store, name: store.file(name, "default"),
    "delete_file": lambda store, name: store.delete_file(name, "default"),
    "stored_files": lambda store, name: store.stored_files("default", after=name),
    "batch": lambda store, name: store.batch(name, "default"),
    "batches": lambda store, name: store.batches("default", after=name),
    "add_batch": lambda store, name: store.add_batch(a_batch(input_file=name)),
    "webhook": lambda store, name: store.webhook(name, "default"),
    "job": lambda store, name: store.job(name),
    "jobs": lambda store, name: store.jobs(tenant="default", after=name),
    "key": lambda store, name: store.key(name, "default"),
}


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800", "é" * 5000], ids=ascii)
@pytest.mark.parametrize("ask", NAMED.values(), ids=NAMED)
def test_a_name_that_no_database_can_hold_is_one_that_never_was(store, ask, name):
    with pytest.raises(NotFound):
        ask(store, name)
