"""Tenants, keys, files and batches for tests: complete, small, and each field open to an override."""

from __future__ import annotations

from jobs.filing import Batch, FileKind, StoredFile
from jobs.tenancy import ApiKey, digest_of


def a_key(key_id="key_a", **changes):
    """Its text would be `nm_` and its id."""
    key = ApiKey(id=key_id, tenant="default", digest=digest_of(f"nm_{key_id}"), shown="nm_abcdefg", created_at=5.0)
    return key.evolve(**changes)


def a_file(file_id="file-a", **changes):
    file = StoredFile(
        id=file_id,
        tenant="default",
        purpose=FileKind.BATCH,
        filename="requests.jsonl",
        uri=f"file:///srv/objects/tenants/default/files/{file_id}",
        size=12,
        checksum="c0ffee",
        created_at=5.0,
    )
    return file.evolve(**changes)


def a_batch(batch_id="batch_a", **changes):
    batch = Batch(
        id=batch_id,
        tenant="default",
        input_file="file-a",
        endpoint="/v1/chat/completions",
        window="24h",
        created_at=5.0,
    )
    return batch.evolve(**changes)


def twice(store):
    """Let the store carry out every change twice, as it does when the commit of the first was not answered."""

    def again(write):
        def carry_out(*args, **options):
            write(*args, **options)
            return write(*args, **options)

        return carry_out

    store._db.write, store._db.write_list = again(store._db.write), again(store._db.write_list)
    return store
