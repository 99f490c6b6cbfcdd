"""Whatever is asked of tenants, keys, files, batches and replays goes by an index, on both databases."""

import re

import pytest
import sqlalchemy as sa

from infra.sql import batchstore, filestore, keystore, tables_filing, tenantstore
from jobs.filing import BatchStatus, FileKind
from jobs.tenancy import Tenant
from tests.support.filing import a_batch, a_file, a_key

pytestmark = pytest.mark.contract


ROWS = 400
"""Enough for a planner to tell one index from another."""


@pytest.fixture
def filed(store):
    store.tenant("default")
    tenants = [tenantstore._row(Tenant(name=f"t{n}"), 9.0) for n in range(ROWS)]
    keys = [a_key(), *(a_key(f"key_{n}", tenant=f"t{n}") for n in range(ROWS))]
    kinds = [FileKind.BATCH, FileKind.OUTPUT]
    files = [
        a_file(f"file-{n}", purpose=kinds[n % 2], created_at=1.0 + n, expires_at=9.0 if n % 2 else None)
        for n in range(ROWS)
    ]
    states = [BatchStatus.COMPLETED, BatchStatus.VALIDATING]
    batches = [
        a_batch(f"batch_{n}", input_file=f"file-{n}", created_at=1.0 + n, status=states[n % 4 == 0])
        for n in range(ROWS)
    ]

    def fill(connection):
        connection.execute(tables_filing.tenants.insert(), tenants)
        connection.execute(tables_filing.api_keys.insert(), [keystore._row(key) for key in keys])
        connection.execute(tables_filing.stored_files.insert(), [filestore._row(file, 9.0) for file in files])
        connection.execute(tables_filing.batches.insert(), [batchstore._row(batch, 9.0) for batch in batches])
        connection.exec_driver_sql("ANALYZE")

    store._db.write(fill)
    return store


CASES = [
    (lambda s: s.key_by_digest(a_key().digest), r"api_keys_digest_key|sqlite_autoindex_api_keys_\d \(digest=\?"),
    (lambda s: s.key_by_digest(a_key().digest), r"tenants_pkey|sqlite_autoindex_tenants_1 \(name=\?"),
    (lambda s: s.keys(), r"api_keys_newest"),
    (lambda s: s.keys("default"), r"api_keys_of_tenant"),
    (lambda s: s.keys("default", after="key_a", limit=10), r"api_keys_(of_tenant|newest)"),
    (lambda s: s.end_key("key_a", tenant=None, at=None, actor="me"), r"api_keys_pkey|sqlite_autoindex_api_keys_1"),
    (lambda s: s.grants("default"), r"grants_pkey|sqlite_autoindex_grants_1 \(tenant=\?"),
    (lambda s: s.aliases("default"), r"aliases_pkey|sqlite_autoindex_aliases_1 \(tenant=\?"),
    (lambda s: s.audit(), r"audit_events_pkey|SCAN audit_events$"),
    (lambda s: s.audit(tenant="default"), r"audit_events_of_tenant"),
    (lambda s: s.file("file-2", "default"), r"stored_files_pkey|sqlite_autoindex_stored_files_1"),
    (lambda s: s.stored_files("default", limit=10), r"stored_files_of_tenant"),
    (lambda s: s.stored_files("default", after="file-2", limit=10), r"stored_files_of_tenant"),
    (lambda s: s.stored_files("default", purpose="batch", newest=False, limit=10), r"stored_files_of_purpose"),
    (lambda s: list(s.dead_files()), r"stored_files_dead"),
    (lambda s: list(s.dead_files()), r"batches_reading"),
    (lambda s: s.delete_file("file-2", "default"), r"batches_reading"),
    (lambda s: s.batch("batch_200", "default"), r"batches_pkey|sqlite_autoindex_batches_1"),
    (lambda s: s.batches("default"), r"batches_of_tenant"),
    (lambda s: s.batches("default", after="batch_200"), r"batches_of_tenant"),
    (lambda s: s.open_batches(limit=10), r"batches_open"),
    (lambda s: s.open_batches(after="batch_200", limit=10), r"batches_open"),
    (
        lambda s: s.add_batch(a_batch("batch_x", input_file="file-2", enqueued_tokens=1)),
        r"quotas_pkey|_quotas_1 \(tenant",
    ),
    (lambda s: s.change_batch(a_batch("batch_200", status=BatchStatus.FAILED)), r"batches_pkey|_batches_1 \(id=\?"),
    (
        lambda s: [s.begin("default", "k", "d", "r", stale_s=1.0) for _ in "ab"],
        r"replays_pkey|_replays_1 \(tenant=\? AND idem",
    ),
    (lambda s: s.answered("default", "k", 200, b""), r"replays_pkey|_replays_1 \(tenant=\? AND idem"),
    (lambda s: s.forget_replays(1.0), r"replays_oldest"),
]


@pytest.mark.parametrize(("act", "index"), CASES)
def test_each_lookup_uses_its_index_and_sorts_nothing(filed, act, index):
    plans = []

    def explain(connection, cursor, statement, parameters, context, many):
        if statement.startswith(("SELECT", "UPDATE", "DELETE")) and not many:
            word = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
            cursor.execute(f"{word} {statement}", parameters)
            plans.extend(row[-1] for row in cursor.fetchall())

    engines = {filed._db._engine, filed._db._reader.engine}
    for engine in engines:
        sa.event.listen(engine, "before_cursor_execute", explain)
    act(filed)
    for engine in engines:
        sa.event.remove(engine, "before_cursor_execute", explain)
    assert [plan for plan in plans if re.search(index, plan)], plans
    through = r"Seq Scan|SCAN (stored_files|batches|replays)$"
    sorting = r"|Sort|TEMP B-TREE" if re.search("of_|open|newest|oldest", index) else ""
    assert not [plan for plan in plans if re.search(through + sorting, plan)], plans
