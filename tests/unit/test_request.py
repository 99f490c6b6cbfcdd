"""jobs/request.py: a request's names and values, whether two are the same, and which storage an ingress may name."""

import pytest

from jobs.errors import BadInput, StorageRefused
from jobs.model import Priority
from jobs.ports.intake import SubmitRequest
from jobs.request import check_storage, differences, digest, duration_s, request_of, share

pytestmark = pytest.mark.unit

PLAIN = {"input": "s3://in/a.parquet", "model": "m", "output": "s3://out/"}


def asked(**more):
    return request_of({**PLAIN, **more}, tenant="acme", creator="it", key="k")


def test_what_is_asked_for_becomes_a_request_and_the_rest_has_its_default():
    found = asked(
        id="sku", prompt="{{ x }}", schema={"type": "object"}, keep=["a"], vary={"lang": ["de", "fr"]}, max_tokens=8,
        stop="END", priority="high", deadline="2h", pause_on="never", tags={"team": "web"}, sample=5, limit=None,
    )  # fmt: skip
    assert found == SubmitRequest(
        input="s3://in/a.parquet",
        model="m",
        output="s3://out/",
        tenant="acme",
        creator="it",
        id_column="sku",
        prompt="{{ x }}",
        schema='{"type":"object"}',
        keep=("a",),
        vary={"lang": ("de", "fr")},
        sampling={"max_tokens": 8, "stop": ["END"]},
        priority=Priority.HIGH,
        deadline_s=7200.0,
        pause_on=None,
        tags={"team": "web"},
        sample=5,
        idempotency_key="k",
    )


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), (60, 60), ("2 d", 172_800)])
def test_a_duration_has_a_unit_or_is_seconds(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize(("text", "found"), [("20%", 0.2), ("0.2", 0.2), (1, 1.0), ("never", None)])
def test_a_share_is_percent_or_a_part_of_one_or_never(text, found):
    assert share(text) == found


def test_what_cannot_be_read_is_named():
    with pytest.raises(BadInput, match="deadline: 'soon' is no duration: write 90s, 30m, 8h or 2d"):
        asked(deadline="soon")
    with pytest.raises(BadInput, match="pause_on: '200%' is not between 0% and 100%"):
        asked(pause_on="200%")


# ---- the same request again ---------------------------------------------------------------------------


def test_a_digest_names_what_was_asked_for_and_hides_it():
    found = digest(asked(prompt="a secret", max_tokens=8))
    assert sorted(found) == ["input", "max_tokens", "model", "output", "prompt"]
    assert "a secret" not in str(found)


def test_the_same_request_has_the_same_digest_whoever_sends_it_and_in_whatever_order():
    first = digest(asked(tags={"a": "1", "b": "2"}, priority="normal"))
    second = digest(asked(tags={"b": "2", "a": "1"}).evolve(creator="other", engine_args={"x": 1}, tenant="t"))
    assert (first, differences(first, second)) == (second, [])


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"prompt": "Buy {{ x }}"}, ["prompt"]),
        ({"max_tokens": 9, "limit": 3}, ["limit", "max_tokens"]),
        ({"max_tokens": None}, ["max_tokens"]),
        ({"deadline": "1h", "id": "sku"}, ["deadline", "id"]),
    ],
)
def test_another_request_is_told_by_the_fields_in_which_it_differs(change, names):
    before = {"prompt": "Sell {{ x }}", "max_tokens": 8}
    assert differences(digest(asked(**before)), digest(asked(**(before | change)))) == names


def test_a_job_that_kept_no_digest_differs_from_nothing():
    assert differences({}, digest(asked())) == []


# ---- storage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "prefixes"),
    [
        ("s3://any/where", ("s3://",)),
        ("S3://any/where", ("s3://",)),
        ("s3://acme/in/a*.parquet", ("s3://acme/in/",)),
        ("s3://acme", ("s3://acme",)),
        ("file:///data/in/a.parquet", ("s3://", "file:///data/in")),
        ("/data/in/a.parquet", ("file:///data/in",)),
        ("file://localhost/data/in/a.parquet", ("file:///data/in",)),
    ],
)
def test_storage_below_a_prefix_may_be_named(uri, prefixes):
    check_storage(uri, prefixes, setting="ingress_inputs")


@pytest.mark.parametrize(
    ("uri", "prefixes"),
    [
        ("file:///etc/passwd", ("s3://",)),
        ("/etc/passwd", ("s3://",)),
        ("in.parquet", ("s3://", "file:///")),
        ("s3://acme-other/in", ("s3://acme",)),
        ("s3://ac*/in", ("s3://acme/",)),
        ("file:///data/in-secret/a", ("file:///data/in",)),
        ("file:///data/in/../secret", ("file:///data/in",)),
        ("file:///data/in/%2e%2e/secret", ("file:///data/in",)),
        ("/data/in/../secret", ("file:///data/in",)),
        ("file://elsewhere/data/in/a", ("file:///data/in",)),
        ("gs://any/where", ("s3://",)),
        ("s3://acme/in", ()),
    ],
)
def test_any_other_storage_is_refused(uri, prefixes):
    with pytest.raises(StorageRefused) as caught:
        check_storage(uri, prefixes, setting="ingress_inputs")
    assert (caught.value.uri, caught.value.setting) == (uri, "ingress_inputs")
