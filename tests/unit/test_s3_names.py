"""What `s3://` URIs name, how an unfinished upload is named, and how a server is addressed."""

import pytest

from infra.objects.s3_names import place_of, prefix_of, upload_name, upload_of
from infra.objects.s3_options import S3Options
from jobs.errors import Refused

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("uri", "place", "prefix"),
    [
        ("s3://b/a/c.parquet", ("b", "a/c.parquet"), "a/c.parquet/"),
        ("S3://b/a/", ("b", "a/"), "a/"),
        ("s3://b//x y#%20?", ("b", "/x y#%20?"), "/x y#%20?/"),
        ("s3://b", ("b", ""), ""),
        ("s3://b/", ("b", ""), ""),
    ],
)
def test_a_uri_names_a_bucket_and_a_key_as_it_stands(uri, place, prefix):
    assert place_of(uri) == place
    assert prefix_of(place_of(uri)) == prefix


@pytest.mark.parametrize("uri", ["s3://", "s3:///key", "gs://b/k", "/b/k", "s3:/b/k"])
def test_what_names_no_bucket_is_refused(uri):
    with pytest.raises(Refused, match="names no bucket"):
        place_of(uri)


@pytest.mark.parametrize("key", ["x", "a/b.parquet", "a.b/.hidden", "a/x y", "a/b.upload"])
@pytest.mark.parametrize("upload_id", ["VXBsb2Fk", "a.b_C-d..", "2~xY/z"])
def test_an_unfinished_upload_has_a_hidden_name_beside_its_key(key, upload_id):
    name = upload_name(key, upload_id)
    assert name.rpartition("/")[0] == key.rpartition("/")[0]
    assert name.rpartition("/")[2].startswith(".")
    assert upload_of(name) == (key, upload_id)


@pytest.mark.parametrize("key", ["x", "a/b.upload", "a/.b.upload", ".b.ABC1.upload", "a/.b.A.upload", ".b.74.tmp"])
def test_other_names_are_those_of_objects(key):
    assert upload_of(key) is None


@pytest.mark.parametrize(
    ("options", "addressing"),
    [
        (S3Options(), "auto"),
        (S3Options(endpoint="http://x"), "path"),
        (S3Options(endpoint="http://x", path_style="no"), "virtual"),
        (S3Options(path_style="yes"), "path"),
    ],
)
def test_buckets_stand_in_the_path_where_there_is_an_endpoint_unless_it_is_said(options, addressing):
    assert options.addressing == addressing
