"""What is up deletes dead files by itself."""

import pytest

from tests.support.api import some_lines, town, until
from workers import wiring

pytestmark = pytest.mark.acceptance


def test_the_bytes_of_a_deleted_file_go_without_anybody_asking(tmp_path, monkeypatch):
    monkeypatch.setattr(wiring, "_DEAD_S", 0.0)
    with town(tmp_path, sweep_every_s=0.1) as api:
        client, store = api.openai(api.key("acme")), api.home.store
        files = [client.files.create(file=("in.jsonl", some_lines(n)), purpose="batch").id for n in (1, 2)]
        places = [store.file(file, "acme").uri for file in files]
        client.files.delete(files[0])
        until(lambda: store.have_records(files) == {files[1]}, "the sweep")
        assert [api.home.objects.facts(place) is not None for place in places] == [False, True]
