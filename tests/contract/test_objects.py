"""The object port: one body over every adapter and both ways to write a local name."""

import errno
import os
import sys
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

from infra.objects import RoutedObjects, S3Options, open_objects
from infra.objects.local import path_of, scheme_of
from jobs.errors import Exists, NotFound, Refused, StorageFull, Unavailable
from jobs.ports.objects import ObjectFacts
from tests.support.statements import said

pytestmark = pytest.mark.contract
local = pytest.mark.parametrize("folder", ["file-uri", "path"], indirect=True)
"""What only a file system has: links, folders to sync, errno."""


def hidden(folder):
    """What a write has left behind, if anything."""
    if not folder.startswith(("file:", "/")):
        return []
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


def test_objects_are_put_in_lists(objects, folder):
    names = [f"{folder}/a/{n}" for n in range(3)]
    objects.put_if_absent(names[1], b"1")
    facts = objects.put_many([(uri, str(n).encode()) for n, uri in enumerate(names)])
    assert (facts, objects.put_many([])) == ([objects.facts(uri) for uri in names], [])
    with pytest.raises(Exists, match="a/1"):
        objects.put_many([(f"{folder}/b", b"b"), (names[1], b"other")])


def test_what_was_deleted_is_gone_and_may_be_put_anew(objects, folder):
    names = [f"{folder}/a", f"{folder}/b"]
    objects.put_many([(uri, b"one") for uri in names])
    objects.delete_many(names)
    objects.put_if_absent(names[1], b"two")
    with pytest.raises(NotFound):
        objects.read(names[0])
    assert objects.read(names[1]) == b"two"


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


@local
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
    if scheme_of(folder) == "file":
        assert {path_of(facts.uri).name for facts in found} == {"b", "z", "a.b", "é ?#%"}
    assert [objects.facts(facts.uri) for facts in found] == found
    assert list(objects.list(f"{folder}/a/")) == [f for f in found if "/a/" in f.uri]
    assert list(objects.list(f"{folder}/nothing")) == []


@local
def test_a_sweeper_sees_what_died_unfinished_too(objects, folder):
    objects.put_if_absent(f"{folder}/a", b"1")
    objects.scratch(f"{folder}/a").write_bytes(b"half")
    for facts in list(objects.list(folder, unfinished=True)):
        objects.delete(facts.uri)
    assert list(path_of(folder).iterdir()) == []


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


def test_many_are_published_and_deleted_as_one_by_one(objects, folder):
    names = [str(number) for number in range(20)]
    for name in names:
        objects.put_if_absent(f"{folder}/_parts/{name}", name.encode())
    pairs = [(f"{folder}/_parts/{name}", f"{folder}/{name}") for name in names]
    for _ in range(2):
        objects.publish_many(pairs)
    objects.delete_many([source for source, _ in pairs] + [f"{folder}/nothing"])
    assert {facts.uri: objects.read(facts.uri) for facts in objects.list(folder)} == {
        f"{folder}/{name}": name.encode() for name in names
    }
    with pytest.raises(NotFound, match="nobody"):
        objects.publish_many([(f"{folder}/0", f"{folder}/x"), (f"{folder}/nobody", f"{folder}/y")])
    objects.publish_many([])
    objects.delete_many([])


def test_a_database_copies_what_is_published_in_one_go(objects, folder):
    if "+db:" not in folder:
        pytest.skip("elsewhere each name is a call of its own")
    pairs = [(f"{folder}/_parts/{number}", f"{folder}/{number}") for number in range(20)]
    objects.put_many([(source, b"rows") for source, _ in pairs])
    with said(objects) as statements:
        objects.publish_many(pairs)
    assert [text.split()[0] for text, _ in statements if "blobs" in text] in (["INSERT"], ["INSERT"] * 20)
    assert all(b"rows" not in repr(parameters).encode() for _, parameters in statements)


def test_a_deleted_object_is_gone(objects, folder):
    uri = f"{folder}/x"
    objects.put_if_absent(uri, b"1")
    objects.delete(uri)
    assert objects.facts(uri) is None


@local
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
    assert list(path_of(folder).iterdir()) == []


@local
def test_everything_is_synced_file_and_folder(objects, folder, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    objects.put_if_absent(f"{folder}/new/x", b"1")
    root = path_of(folder)
    assert synced[:2] == [str(root.parent), str(root)]
    assert ".x." in synced[2]
    assert synced[3] == f"{root}/new"


@local
def test_names_that_were_published_or_deleted_are_synced_folder_by_folder_when_asked(objects, folder, monkeypatch):
    objects.put_if_absent(f"{folder}/_parts/a", b"1")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(str(Path(f"/proc/self/fd/{fd}").readlink())))
    objects.publish(f"{folder}/_parts/a", f"{folder}/b")
    objects.delete(f"{folder}/_parts/a")
    assert synced == []
    objects.sync(folder)
    assert synced == [str(path_of(folder))]
    with pytest.raises(NotFound, match="nobody"):
        objects.sync(f"{folder}/nobody")


def test_an_unknown_scheme_is_refused_by_name(tmp_path):
    routed = open_objects(scratch=tmp_path, s3=S3Options())
    with pytest.raises(Refused, match="gs://b/k has the scheme gs://, and only file://, s3:// and plain paths"):
        routed.read("gs://b/k")


@local
@pytest.mark.parametrize("uri", ["s3://bucket/key", "file://host/x", "file://x"])
def test_a_name_that_is_not_local_is_refused(objects, uri):
    with pytest.raises(Refused, match="not a local file"):
        objects.read(uri)


@pytest.mark.parametrize("uri", ["relative/x", "/abs/x", "file:///abs/x", "FILE://localhost/abs/x"])
def test_local_names_of_every_form_have_the_adapter(uri):
    assert type(RoutedObjects().of(uri)).__name__ == "LocalObjects"
    assert path_of(uri).as_posix() in {"relative/x", "/abs/x"}


def test_the_adapter_of_s3_is_made_when_its_first_uri_comes(s3, s3_keys, tmp_path):
    routed = open_objects(scratch=tmp_path / "scratch", s3=s3.options())
    assert routed._opened == {}
    assert routed.put_if_absent(f"s3://nightmill/{tmp_path.name}/x", b"1").size == 1
    assert list(routed._opened) == ["s3"]


def test_without_boto3_s3_is_refused_naming_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "infra.objects.s3", None)
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Refused, match=r"pip install 'nightmill\[s3\]'"):
        open_objects(scratch=tmp_path, s3=S3Options()).read("s3://bucket/x")


def test_each_uri_goes_to_its_store_and_none_is_published_into_another(objects, folder, tmp_path):
    routed = RoutedObjects(openers=dict.fromkeys(["file", "s3", scheme_of(folder)], lambda: objects))
    uri = f"{folder}/x"
    scratch = routed.scratch(uri)
    scratch.write_bytes(b"1")
    assert routed.put_file_if_absent(uri, scratch) == routed.put_if_absent(uri, b"1") == routed.facts(uri)
    routed.publish(uri, f"{folder}/y")
    routed.sync(folder)
    assert routed.replace(f"{folder}/y", b"2").size == 1
    assert [routed.read(facts.uri) for facts in routed.list(folder)] == [b"1", b"2"]
    with routed.open(uri) as file:
        assert file.read() == b"1"
    routed.delete(uri)
    assert routed.facts(uri) is None
    other = "s3://b/z" if scheme_of(folder) == "file" else "/tmp/z"
    with pytest.raises(Refused, match="different stores"):
        routed.publish(f"{folder}/y", other)


def test_an_object_in_a_bucket_has_a_link_that_needs_no_key_and_others_have_none(objects, folder):
    uri = f"{folder}/linked name.bin"
    objects.put_if_absent(uri, b"bytes")
    url = objects.link(uri, 60)
    if scheme_of(folder) != "s3":
        assert url is None
        return
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"bytes"
