"""A grant opens what lies below it and nothing else, whatever way a URI is written."""

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.errors import BadInput
from jobs.tenancy import Grant, covered, grant_prefix

pytestmark = pytest.mark.property

honest = st.text("abAB01._- é%", min_size=1, max_size=4).filter(
    lambda part: part.strip(".") and "%2" not in part and "%5" not in part and "%0" not in part
)
tricky = st.sampled_from(
    [
        "",
        ".",
        "..",
        "...",
        "%2e",
        "%2E%2e",
        "..%2f",
        "%2f",
        "%5c",
        "\\",
        "\x00",
        "*",
        "**",
        "[a]",
        "t",
        "T",
        "t-evil",
        "%74",
    ]
)
stems = st.sampled_from(["s3://b", "s3://b-evil", "S3://b", "file://", "file://host", "FILE://", "/t", "b", "http://b"])
prefixes = st.sampled_from(["s3://b/", "s3://b/t/", "s3://b/t/u/", "file:///t/", "file:///t/u/"])
uris = st.builds(lambda stem, parts: "/".join([stem, *parts]), stems, st.lists(tricky | honest, max_size=6))


def place(uri):
    """Where a URI leads: (store, path). S3 takes its keys as they are; the kernel resolves a path."""
    scheme, _, path = uri.partition("://")
    if scheme != "file":
        return scheme, path
    resolved = posixpath.normpath(unquote(path).split("\0", maxsplit=1)[0])
    return scheme, resolved + ("/" if path.endswith("/") and resolved != "/" else "")


@given(uris, prefixes, st.booleans())
@example("s3://b/t/../secret", "s3://b/t/", False)
@example("file:///t/%2e%2E/etc/passwd", "file:///t/", False)
@example("file:///t/..%2fetc", "file:///t/", False)
def test_what_a_grant_covers_lies_below_it_wherever_the_uri_leads(uri, prefix, write):
    grant = Grant(tenant="acme", prefix=prefix, write=write)
    for wanted in (False, True):
        if covered(uri, [grant], write=wanted):
            assert place(uri)[0] == place(prefix)[0]
            assert place(uri)[1].startswith(place(prefix)[1])
            assert write or not wanted
            assert not {".", ".."} & set(unquote(uri).replace("\\", "/").split("/"))


@given(prefixes, st.lists(honest, min_size=1, max_size=4), st.booleans())
def test_honest_names_below_a_grant_are_covered(prefix, parts, folder):
    uri = prefix + "/".join(parts) + "/" * folder
    reads, writes = Grant(tenant="acme", prefix=prefix), Grant(tenant="acme", prefix=prefix, write=True)
    found = [covered(uri, [reads]), covered(uri, [reads], write=True), covered(uri, [reads, writes], write=True)]
    assert found == [True, False, True]


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket-evil/x", "s3://bucket", "s3://BUCKET/x", "S3://bucket/x", "s3://bucket//x", "s3://bucket/a//x",
        "s3://bucket/./x", "s3://bucket/a/../../other/x", "s3://bucket/%2e%2e/x", "s3://bucket/a%2Fb", "s3://bucke*/x",
        "s3://bucket/a\\..\\x", "s3://bucket/\x00x", "/bucket/x", "bucket/x", "file:///bucket/x", "",
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_not_covered(uri):
    assert not covered(uri, [Grant(tenant="acme", prefix="s3://bucket/", write=True)])


@pytest.mark.parametrize("prefix", ["s3://b", "s3://b*/", "s3://b/a/../", "/data/", "s3://", "file:///", ""])
def test_a_stored_prefix_that_is_unfit_opens_nothing(prefix):
    grant = Grant(tenant="acme", prefix=prefix, write=True)
    assert not [
        uri for uri in ("s3://b/x", "s3://b/a/../x", "s3://bc/x", "/data/x", "file:///x") if covered(uri, [grant])
    ]


@given(uris)
def test_every_prefix_that_can_be_granted_covers_itself(text):
    try:
        prefix = grant_prefix(text)
    except BadInput:
        return
    assert (covered(prefix, [Grant(tenant="acme", prefix=prefix)]), prefix.rstrip("/")) == (True, text.rstrip("/"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/data", "write s3://BUCKET/FOLDER/ or file:///FOLDER/"),
        ("http://b/x", "write s3://BUCKET/FOLDER/ or file:///FOLDER/"),
        ("file:///", "it is a whole store, not a bucket or a folder of it"),
        ("s3://", "it is a whole store, not a bucket or a folder of it"),
        ("s3://b/a/../c", "it climbs, has an empty part, or a character that hides where it leads"),
        ("file://host/a", "it climbs, has an empty part, or a character that hides where it leads"),
        ("s3://b/a*", "it has a wildcard"),
    ],
)
def test_a_prefix_that_is_none_is_refused_with_its_reason(text, reason):
    with pytest.raises(BadInput) as caught:
        grant_prefix(text)
    assert caught.value.sentence == f"{text}: it cannot be granted: {reason}."
