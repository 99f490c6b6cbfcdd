"""The object port: one body over every adapter and both ways to write a local name."""

import errno
import os
from urllib.parse import quote

import pytest

from infra.objects import objects_for
from infra.objects.local import path_of
from jobs.errors import Exists, NotFound, Refused, StorageFull, Unavailable
from jobs.ports.objects import ObjectFacts

pytestmark = pytest.mark.contract


def hidden(folder):
    return [name for _, _, names in os.walk(path_of(folder)) for name in names if name.endswith(".tmp")]


def test_an_object_is_put_once(objects, folder):
    uri = f"{folder}/a/b.bin"
    facts = objects.put_if_absent(uri, b"one")
    assert facts == ObjectFacts(uri=uri, size=3, stamp=facts.stamp)
    assert objects.put_if_absent(uri, b"one") == facts == objects.facts(uri)
    for other in (b"two", b"longer"):
        with pytest.raises(Exists, match=r"b\.bin"):
            objects.put_if_absent(uri, other)
    assert objects.read(uri) == b"one"
    assert hidden(folder) == []


def test_a_finished_file_is_moved_to_its_place(objects, folder):
    uri = f"{folder}/part.parquet"
    for _ in range(2):
        scratch = objects.scratch(uri)
        assert not scratch.exists()
        scratch.write_bytes(b"rows")
        assert objects.put_file_if_absent(uri, scratch).size == 4
        assert not scratch.exists()
    scratch = objects.scratch(uri)
    scratch.write_bytes(b"sows")
    with pytest.raises(Exists):
        objects.put_file_if_absent(uri, scratch)
    assert objects.read(uri) == b"rows"


def test_replace_writes_over_what_was_there_and_changes_the_stamp(objects, folder):
    uri = f"{folder}/x"
    first = objects.replace(uri, b"one")
    second = objects.replace(uri, b"three")
    assert objects.read(uri) == b"three"
    assert second.size == 5
    assert first.stamp != second.stamp or first.size != second.size
    assert hidden(folder) == []


def test_publish_gives_a_second_name_once(objects, folder):
    source, target = f"{folder}/_parts/p", f"{folder}/part-00000"
    objects.put_if_absent(source, b"rows")
    objects.publish(source, target)
    objects.publish(source, target)
    objects.delete(source)
    assert objects.read(target) == b"rows"
    objects.put_if_absent(source, b"rows")
    objects.publish(source, target)
    objects.put_if_absent(f"{folder}/other", b"sows")
    with pytest.raises(Exists, match="part-00000"):
        objects.publish(f"{folder}/other", target)
    with pytest.raises(NotFound, match="nobody"):
        objects.publish(f"{folder}/nobody", target)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_links_cannot_be_made_a_copy_does_the_same(objects, folder, monkeypatch, code):
    objects.put_if_absent(f"{folder}/a", b"rows")
    objects.put_if_absent(f"{folder}/b", b"sows")
    link = os.link

    def across(source, target):
        if code != errno.EXDEV or ".tmp" not in str(source):
            raise OSError(code, os.strerror(code))
        link(source, target)

    monkeypatch.setattr(os, "link", across)
    for _ in range(2):
        objects.publish(f"{folder}/a", f"{folder}/out/c")
    with pytest.raises(Exists):
        objects.publish(f"{folder}/b", f"{folder}/out/c")
    assert objects.read(f"{folder}/out/c") == b"rows"
    assert hidden(folder) == []


def test_a_list_is_sorted_and_hides_what_is_unfinished(objects, folder):
    names = [quote(name) if "file:" in folder else name for name in ("b", "a/z", "a.b", "a/é ?#%")]
    for name in names:
        objects.put_if_absent(f"{folder}/{name}", b"x")
    objects.scratch(f"{folder}/b").write_bytes(b"half")
    found = list(objects.list(folder))
    assert [facts.uri for facts in found] == sorted(f"{folder}/{name}" for name in names)
    assert {path_of(facts.uri).name for facts in found} == {"b", "z", "a.b", "é ?#%"}
    assert [objects.facts(facts.uri) for facts in found] == found
    assert list(objects.list(f"{folder}/a/")) == [f for f in found if "/a/" in f.uri]
    assert list(objects.list(f"{folder}/nothing")) == []


def test_what_is_not_there(objects, folder):
    uri = f"{folder}/nothing"
    assert objects.facts(uri) is None
    objects.delete(uri)
    with pytest.raises(NotFound, match="nothing"):
        objects.read(uri)
    with pytest.raises(NotFound):
        objects.open(uri)


def test_an_open_object_can_be_sought(objects, folder):
    uri = f"{folder}/x"
    objects.put_if_absent(uri, b"0123456789")
    with objects.open(uri) as file:
        file.seek(-3, os.SEEK_END)
        assert file.read() == b"789"


def test_a_deleted_object_is_gone(objects, folder):
    uri = f"{folder}/x"
    objects.put_if_absent(uri, b"1")
    objects.delete(uri)
    assert objects.facts(uri) is None


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EACCES, Refused),
        (errno.EROFS, Refused),
        (errno.EIO, Unavailable),
    ],
)
def test_errors_say_who_has_to_act_and_leave_nothing_half_written(objects, folder, monkeypatch, code, error):
    def fail(fd):
        raise OSError(code, os.strerror(code))

    path_of(folder).mkdir()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error, match=r"x\.bin"):
        objects.put_if_absent(f"{folder}/x.bin", b"1")
    assert os.listdir(path_of(folder)) == []


def test_everything_is_synced_file_and_folder(objects, folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    objects.put_if_absent(f"{folder}/new/x", b"1")
    root = str(path_of(folder))
    assert synced[:2] == [os.path.dirname(root), root]
    assert ".x." in synced[2]
    assert synced[3] == f"{root}/new"


@pytest.mark.parametrize("uri", ["s3://bucket/key", "gs://b/k"])
def test_an_unknown_scheme_is_refused_by_name(uri):
    with pytest.raises(Refused, match=uri.partition("/")[0]):
        objects_for(uri)


@pytest.mark.parametrize("uri", ["s3://bucket/key", "file://host/x", "file://x"])
def test_a_name_that_is_not_local_is_refused(objects, uri):
    with pytest.raises(Refused, match="not a local file"):
        objects.read(uri)


@pytest.mark.parametrize("uri", ["relative/x", "/abs/x", "file:///abs/x", "FILE://localhost/abs/x"])
def test_local_names_of_every_form_have_the_adapter(uri):
    assert type(objects_for(uri)).__name__ == "LocalObjects"
    assert path_of(uri).as_posix() in {"relative/x", "/abs/x"}
