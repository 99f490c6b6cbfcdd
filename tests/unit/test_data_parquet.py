"""infra/data/parquet: what a writer says of a full disk."""

from pathlib import Path

import pyarrow as pa
import pytest

from infra.data.parquet import writer
from jobs.errors import StorageFull

pytestmark = pytest.mark.unit

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
def test_a_writer_on_a_full_disk_says_so():
    table = pa.table({"n": list(range(1000))})
    with pytest.raises(StorageFull) as raised, writer(str(FULL), table.schema) as out:
        out.write_table(table)
    assert raised.value.data == {"where": str(FULL)}
