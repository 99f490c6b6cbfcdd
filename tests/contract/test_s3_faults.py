"""What only S3 has: uploads in parts, lost answers, storms of errors, credentials that change, reasons of refusals."""

import os
import random
import threading
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.data import parquet
from infra.objects import s3, s3_upload
from infra.objects.s3 import S3Objects
from infra.objects.s3_client import Connection, log_in
from jobs.errors import Exists, InputChanged, NotFound, Refused, StorageFull, Unavailable
from tests.support.s3 import BREAK, BUCKET, DROP, LOSE, Answer, shared_login

pytestmark = pytest.mark.contract

SLOW_DOWN = Answer(status=503, code="SlowDown")
ERROR = Answer(status=500, code="InternalError")
DENIED = Answer(status=403, code="AccessDenied", message="User: arn:aws:iam::1:user/x is not authorized.")
EXPIRED = Answer(status=400, code="ExpiredToken")


@pytest.fixture
def waits():
    """Every pause between attempts; none of them is really made."""
    return []


@pytest.fixture
def objects(faulty, s3_keys, tmp_path, waits, request):
    options = faulty.server.options(attempts=5, timeout_s=10)
    login = log_in if "credentials" in request.fixturenames else shared_login
    made = Connection(options, sleep=waits.append, chance=lambda: 1.0, open_client=login)
    return S3Objects(made, tmp_path / "scratch")


@pytest.fixture
def folder(tmp_path):
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of 5 MiB, the least that S3 allows, for everything larger than 5 MiB."""
    for name in ("WHOLE_BYTES", "PART_BYTES"):
        monkeypatch.setattr(s3_upload, name, 5 << 20)


def a_file(tmp_path, *, size=11 << 20, seed=b"x"):
    path = tmp_path / "big"
    path.write_bytes((seed * 7)[:7] + os.urandom(16) * (size // 16))
    return path


def unfinished(objects, folder):
    return [facts.uri for facts in objects.list(folder, unfinished=True) if facts.uri.endswith(".upload")]


# ---- puts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [LOSE, DROP, ERROR, SLOW_DOWN, Answer(status=429, code="Throttling")])
def test_a_put_whose_answer_is_lost_or_an_error_is_made_again(objects, faulty, folder, waits, fault):
    faulty.fail(fault, fault, operation="PutObject")
    facts = objects.put_if_absent(f"{folder}/x", b"rows")
    assert objects.facts(f"{folder}/x") == facts
    assert waits == [0.2, 0.4]


def test_a_put_that_is_never_answered_but_landed_is_recognised(objects, faulty, folder):
    faulty.rule = lambda request: LOSE if request.operation == "PutObject" else None
    assert objects.put_if_absent(f"{folder}/x", b"rows") == objects.facts(f"{folder}/x")
    with pytest.raises(Exists):
        objects.put_if_absent(f"{folder}/x", b"sows")
    assert objects.read(f"{folder}/x") == b"rows"


def test_a_put_that_fails_each_time_is_looked_for_before_it_counts_as_failed(objects, faulty, folder):
    objects.put_if_absent(f"{folder}/x", b"rows")
    faulty.rule = lambda request: ERROR if request.operation == "PutObject" else None
    assert objects.put_if_absent(f"{folder}/x", b"rows").size == 4
    with pytest.raises(Exists):
        objects.put_if_absent(f"{folder}/x", b"sows")
    with pytest.raises(Unavailable, match="failed 5 times, at last with InternalError"):
        objects.put_if_absent(f"{folder}/y", b"rows")
    faulty.rule = lambda _: ERROR
    with pytest.raises(Unavailable, match="InternalError"):
        objects.put_if_absent(f"{folder}/x", b"rows")


def test_every_put_sends_a_checksum_that_the_server_verifies_and_a_condition(objects, faulty, folder):
    objects.put_if_absent(f"{folder}/x", b"rows")
    objects.replace(f"{folder}/x", b"rows")
    puts = [request.headers for request in faulty.asked if request.operation == "PutObject"]
    checksum = b64encode(sha256(b"rows").digest()).decode()
    assert [put["x-amz-checksum-sha256"] for put in puts] == [checksum, checksum]
    assert [put.get("if-none-match") for put in puts] == ["*", None]


@pytest.mark.parametrize("code", ["BadDigest", "XAmzContentChecksumMismatch"])
def test_bytes_damaged_on_the_way_are_sent_again(objects, faulty, folder, code):
    faulty.fail(Answer(status=400, code=code), operation="PutObject")
    objects.put_if_absent(f"{folder}/x", b"rows")
    assert objects.read(f"{folder}/x") == b"rows"


def test_a_put_that_meets_another_one_is_made_again(objects, faulty, folder):
    faulty.fail(Answer(status=409, code="ConditionalRequestConflict"), operation="PutObject")
    assert objects.put_if_absent(f"{folder}/x", b"rows").size == 4


def test_of_many_writers_of_one_name_one_wins_and_all_know(objects, folder):
    told = []

    def put(number):
        try:
            objects.put_if_absent(f"{folder}/x", b"%d" % (number % 2))
            told.append((number % 2, "written"))
        except Exists:
            told.append((number % 2, "exists"))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winner = int(objects.read(f"{folder}/x"))
    assert sorted(told) == sorted([(winner, "written")] * 4 + [(1 - winner, "exists")] * 4)


# ---- in parts -----------------------------------------------------------------------------------


def test_a_large_file_goes_up_in_parts_each_with_its_checksum(objects, faulty, folder, tmp_path, small_parts):
    path = a_file(tmp_path)
    data = path.read_bytes()
    facts = objects.put_file_if_absent(f"{folder}/x", path)
    assert (facts, objects.read(f"{folder}/x")) == (objects.facts(f"{folder}/x"), data)
    assert not path.exists()
    parts = [request for request in faulty.asked if request.operation == "UploadPart"]
    assert sorted(len(part.body) for part in parts) == [len(data) - (10 << 20), 5 << 20, 5 << 20]
    assert all("x-amz-checksum-sha256" in part.headers for part in parts)
    [done] = [request for request in faulty.asked if request.operation == "CompleteMultipartUpload"]
    assert done.headers["if-none-match"] == "*"
    path.write_bytes(data)
    assert objects.put_file_if_absent(f"{folder}/x", path) == facts
    path.write_bytes(b"y" + data[1:])
    with pytest.raises(Exists):
        objects.put_file_if_absent(f"{folder}/x", path)
    assert (path.exists(), unfinished(objects, folder)) == (True, [])


@pytest.mark.parametrize("operation", ["UploadPart", "CompleteMultipartUpload"])
def test_an_upload_that_fails_leaves_nothing(objects, faulty, folder, tmp_path, small_parts, operation):
    path = a_file(tmp_path)
    faulty.rule = lambda request: DENIED if request.operation == operation else None
    with pytest.raises(Refused, match="denies s3:PutObject"):
        objects.put_file_if_absent(f"{folder}/x", path)
    assert (unfinished(objects, folder), objects.facts(f"{folder}/x"), path.exists()) == ([], None, True)


def test_ctrl_c_aborts_an_upload(objects, faulty, folder, tmp_path, small_parts, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(s3_upload, "together", interrupted)
    with pytest.raises(KeyboardInterrupt):
        objects.put_file_if_absent(f"{folder}/x", a_file(tmp_path))
    assert "CreateMultipartUpload" in faulty.operations()
    assert unfinished(objects, folder) == []


def test_a_completion_whose_answer_is_lost_is_recognised(objects, faulty, folder, tmp_path, small_parts):
    faulty.fail(LOSE, operation="CompleteMultipartUpload")
    facts = objects.put_file_if_absent(f"{folder}/x", a_file(tmp_path))
    assert objects.facts(f"{folder}/x") == facts


def test_an_upload_loses_to_one_that_was_completed_meanwhile(objects, faulty, folder, tmp_path, small_parts):
    taken = Answer(status=412, code="PreconditionFailed")
    path = a_file(tmp_path)

    def rule(request):
        if request.operation != "CompleteMultipartUpload":
            return None
        faulty.rule = lambda _: None
        objects.put_if_absent(f"{folder}/x", b"theirs")
        return taken

    faulty.rule = rule
    with pytest.raises(Exists):
        objects.put_file_if_absent(f"{folder}/x", path)
    assert (objects.read(f"{folder}/x"), unfinished(objects, folder)) == (b"theirs", [])


def test_what_a_dead_process_left_half_uploaded_is_seen_and_swept(objects, faulty, folder, tmp_path, small_parts):
    faulty.rule = lambda request: DENIED if request.operation in {"UploadPart", "AbortMultipartUpload"} else None
    with pytest.raises(Refused):
        objects.put_file_if_absent(f"{folder}/a/x.parquet", a_file(tmp_path))
    faulty.rule = lambda _: None
    objects.put_if_absent(f"{folder}/a/y", b"1")
    left, kept = [facts.uri for facts in objects.list(f"{folder}/a/", unfinished=True)]
    assert left.startswith(f"{folder}/a/.x.parquet.")
    assert [facts.uri for facts in objects.list(f"{folder}/a/")] == [kept] == [f"{folder}/a/y"]
    objects.delete(left)
    objects.delete(left)
    assert unfinished(objects, folder) == []


# ---- copies -------------------------------------------------------------------------------------


def test_publishing_moves_no_bytes_through_us_and_may_be_repeated(objects, faulty, folder):
    objects.put_if_absent(f"{folder}/a", b"rows")
    faulty.asked.clear()
    objects.publish(f"{folder}/a", f"{folder}/b")
    assert faulty.operations() == ["HeadObject", "CopyObject"]
    faulty.asked.clear()
    objects.publish(f"{folder}/a", f"{folder}/b")
    assert faulty.operations() == ["HeadObject", "HeadObject"]


def test_a_copy_whose_answer_is_lost_or_refused_for_its_condition_is_made_again(objects, faulty, folder):
    objects.put_if_absent(f"{folder}/a", b"rows")
    faulty.fail(LOSE, operation="CopyObject")
    objects.publish(f"{folder}/a", f"{folder}/b")
    faulty.fail(Answer(status=501, code="NotImplemented"), operation="CopyObject")
    objects.publish(f"{folder}/a", f"{folder}/c")
    assert objects.read(f"{folder}/b") == objects.read(f"{folder}/c") == b"rows"


def test_an_object_too_large_for_one_copy_is_copied_in_parts(
    objects, faulty, folder, tmp_path, small_parts, monkeypatch
):
    monkeypatch.setattr(s3, "COPY_PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "LARGEST_COPY_BYTES", 10 << 20)
    path = a_file(tmp_path)
    data = path.read_bytes()
    objects.put_file_if_absent(f"{folder}/a", path)
    too_large = Answer(status=400, code="InvalidRequest")
    faulty.rule = lambda request: too_large if request.operation == "CopyObject" else None
    for _ in range(2):
        objects.publish(f"{folder}/a", f"{folder}/b")
    assert faulty.operations().count("UploadPartCopy") == 3
    assert objects.read(f"{folder}/b") == data


# ---- reads --------------------------------------------------------------------------------------


def a_table(objects, uri):
    noise = random.Random(1)
    columns = {f"c{number}": pa.array([noise.randbytes(8) for _ in range(40_000)]) for number in range(20)}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, row_group_size=10_000, compression="none", use_dictionary=False)
    data = sink.getvalue().to_pybytes()
    assert len(data) > 9_000_000
    objects.put_if_absent(uri, data)
    return pa.table(columns)


def spans(faulty):
    """Of all ranges that were read: how many, and how many bytes."""
    found = [request.span for request in faulty.asked if request.operation == "GetObject"]
    faulty.asked.clear()
    return len(found), sum(stop - start for start, stop in found)


@pytest.mark.parametrize("held", [32 << 20, 1])
def test_parquet_is_read_by_range_and_only_where_it_is_needed(objects, faulty, folder, monkeypatch, held):
    monkeypatch.setattr(parquet, "_BUFFERS_BYTES", held)
    table = a_table(objects, f"{folder}/x.parquet")
    faulty.asked.clear()
    with parquet.open_parquet(objects, f"{folder}/x.parquet") as file:
        assert file.read_row_group(2, columns=["c7"]).equals(table.select(["c7"]).slice(20_000, 10_000))
        requests, size = spans(faulty)
        assert requests <= 4
        assert size < 400_000
        assert pa.Table.from_batches(file.iter_batches(4096, columns=["c3", "c4"])).equals(table.select(["c3", "c4"]))
        requests, size = spans(faulty)
        assert requests <= 8
        assert size < 1_400_000


@pytest.mark.parametrize("held", [32 << 20, 1])
def test_a_server_that_goes_away_under_a_parquet_reader_is_unavailable(objects, faulty, folder, monkeypatch, held):
    monkeypatch.setattr(parquet, "_BUFFERS_BYTES", held)
    a_table(objects, f"{folder}/x.parquet")
    with parquet.open_parquet(objects, f"{folder}/x.parquet") as file:
        faulty.rule = lambda _: ERROR
        with pytest.raises(Unavailable, match="InternalError"):
            list(file.iter_batches(use_threads=False))


def test_reads_that_break_off_go_on(objects, faulty, folder):
    data = os.urandom(3 << 20)
    objects.put_if_absent(f"{folder}/x", data)
    faulty.fail(BREAK, ERROR, DROP, operation="GetObject")
    assert objects.read(f"{folder}/x") == data
    faulty.fail(BREAK, SLOW_DOWN, operation="GetObject")
    with objects.open(f"{folder}/x") as file:
        assert file.read() == data


def test_an_object_that_is_overwritten_while_it_is_read_is_not_mixed(objects, folder):
    objects.put_if_absent(f"{folder}/x", bytes(2 << 20))
    with objects.open(f"{folder}/x") as file:
        assert file.read(10) == bytes(10)
        objects.replace(f"{folder}/x", b"1" * (2 << 20))
        file.seek(1 << 20)
        with pytest.raises(InputChanged, match="overwritten while it was read"):
            file.read(10)


def test_long_lists_come_by_pages(objects, faulty, folder, monkeypatch):
    call = objects._s3.call

    def by_twos(operation, *args, **params):
        return call(operation, *args, **params, **({"MaxKeys": 2} if operation == "list_objects_v2" else {}))

    monkeypatch.setattr(objects._s3, "call", by_twos)
    names = ["a", "a.b", "a/", "a/1", "a/2", "b", "é"]
    for name in names:
        objects._s3.call("put_object", f"{folder}/{name}", Body=b"")
    assert [facts.uri for facts in objects.list(folder)] == [f"{folder}/{name}" for name in names if name != "a/"]
    assert faulty.operations().count("ListObjectsV2") == 4


def test_folders_that_a_console_made_are_no_objects(objects, folder):
    objects._s3.call("put_object", f"{folder}/a/", Body=b"")
    assert objects.facts(f"{folder}/a/") is None
    assert objects.facts(f"s3://{BUCKET}") is None
    assert list(objects.list(folder)) == []


# ---- credentials --------------------------------------------------------------------------------


@pytest.fixture
def credentials(monkeypatch, tmp_path):
    """A shared credentials file, and how to exchange what is in it."""
    path = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def write(key_id):
        path.write_text(f"[default]\naws_access_key_id = {key_id}\naws_secret_access_key = s\n")

    return write


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId"])
def test_credentials_exchanged_in_their_file_are_picked_up(objects, faulty, folder, credentials, waits, code):
    credentials("OLD")
    objects.put_if_absent(f"{folder}/x", b"rows")
    refused = Answer(status=400, code=code)
    faulty.rule = lambda request: refused if request.key_id == "OLD" else None
    credentials("NEW")
    assert objects.facts(f"{folder}/x").size == 4
    assert objects.read(f"{folder}/x") == b"rows"
    assert waits == [0.0]


def test_credentials_that_are_exchanged_late_are_waited_for(objects, faulty, folder, credentials):
    credentials("OLD")
    objects.put_if_absent(f"{folder}/x", b"rows")
    faulty.rule = lambda request: EXPIRED if request.key_id == "OLD" else None
    objects._s3._sleep = lambda seconds: credentials("NEW") if seconds > 0.5 else None
    assert objects.read(f"{folder}/x") == b"rows"


def test_credentials_that_stay_expired_are_named(objects, faulty, folder, credentials, waits):
    credentials("OLD")
    faulty.rule = lambda request: EXPIRED
    with pytest.raises(Refused, match=r"does not take the credentials with the key id OLD \(ExpiredToken, made up"):
        objects.facts(f"{folder}/x")
    assert waits == []  # they never worked


def test_a_profile_or_endpoint_that_cannot_be_used_is_refused(s3, s3_keys, tmp_path, monkeypatch):
    def facts(options):
        S3Objects(Connection(options), tmp_path).facts(f"s3://{BUCKET}/x")

    with pytest.raises(Refused, match=r"S3 cannot be used as it is set up \(Invalid endpoint"):
        facts(s3.options().evolve(endpoint="localhost 9"))
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Refused, match=r"\(The config profile \(nobody\) could not be found\)"):
        facts(s3.options())


def test_no_credentials_at_all(objects, folder, credentials):
    with pytest.raises(Refused, match="there are no credentials for S3; set AWS_ACCESS_KEY_ID"):
        objects.read(f"{folder}/x")


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "permission"),
    [
        (lambda o, uri: o.put_if_absent(uri, b"1"), "s3:PutObject"),
        (lambda o, uri: o.read(uri), "s3:GetObject"),
        (lambda o, uri: o.facts(uri), "s3:GetObject"),
        (lambda o, uri: list(o.list(uri)), "s3:ListBucket"),
        (lambda o, uri: o.delete(uri), "s3:DeleteObject"),
    ],
)
def test_a_refusal_names_bucket_permission_and_key(objects, faulty, folder, work, permission):
    faulty.rule = lambda _: DENIED
    with pytest.raises(Refused) as refused:
        work(objects, f"{folder}/x")
    assert f"{folder}/x: the bucket {BUCKET} denies {permission}" in refused.value.sentence
    assert "the credentials with the key id AKIATEST" in refused.value.sentence
    assert "User: arn:aws:iam::1:user/x is not authorized" in refused.value.sentence


def test_a_copy_that_is_denied_names_both_sides(objects, faulty, folder):
    objects.put_if_absent(f"{folder}/a", b"1")
    faulty.fail(DENIED, operation="CopyObject")
    with pytest.raises(Refused, match="denies s3:PutObject, or s3:GetObject on what is copied"):
        objects.publish(f"{folder}/a", f"{folder}/b")


def test_a_bucket_that_is_not_there(objects):
    for work in (lambda: objects.put_if_absent("s3://nobody/x", b"1"), lambda: list(objects.list("s3://nobody/"))):
        with pytest.raises(Refused, match=r"there is no bucket nobody at http://127\.0\.0\.1"):
            work()
    with pytest.raises(Refused, match="names no bucket"):
        objects.facts("s3://")


def test_a_bucket_in_another_region(objects, faulty, folder):
    headers = {"x-amz-bucket-region": "eu-west-3"}
    faulty.rule = lambda _: Answer(status=301, code="PermanentRedirect", headers=headers)
    with pytest.raises(Refused, match="lies in the region eu-west-3; set s3_region"):
        objects.put_if_absent(f"{folder}/x", b"1")


def test_a_full_store_is_no_refusal(objects, faulty, folder):
    faulty.fail(Answer(status=507, code="XMinioStorageFull"), operation="PutObject")
    with pytest.raises(StorageFull):
        objects.put_if_absent(f"{folder}/x", b"1")


def test_a_server_without_conditional_writes_is_refused(objects, faulty, folder):
    faulty.fail(Answer(status=501, code="NotImplemented"), operation="PutObject")
    with pytest.raises(Refused, match="must know If-None-Match"):
        objects.put_if_absent(f"{folder}/x", b"1")


def test_a_server_that_is_not_there_is_not_waited_for_long(s3, s3_keys, tmp_path, waits):
    options = s3.options(attempts=8).evolve(endpoint="http://127.0.0.1:9")
    objects = S3Objects(Connection(options, sleep=waits.append), tmp_path)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 failed 3 times, at last with EndpointConnectionError"):
        objects.facts("s3://bucket/x")
    assert len(waits) == 2


def test_an_object_that_is_gone(objects, folder):
    with pytest.raises(NotFound):
        objects.read(f"{folder}/x")
    assert Path(objects.scratch(f"{folder}/x")).parent.is_dir()
