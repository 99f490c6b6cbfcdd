"""Writing to S3: conditional, checked by the server, in parts where it is large, and never half there.

Each object carries the SHA-256 that the server computed itself; of one that was written in parts it is the SHA-256 of
the parts' ones (https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html).
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from infra.objects.s3_client import Connection
from jobs.errors import Exists, NightmillError, NotFound, Unavailable
from jobs.model import Value
from jobs.ports.objects import ObjectFacts

log = structlog.get_logger()

WHOLE_BYTES = 32 << 20
"""Up to here an object is one request, and in memory."""
PART_BYTES = 8 << 20
MOST_PARTS = 10_000
PARTS_AT_ONCE = 4
_READ_BYTES = 1 << 20
_TRIES = 3  # of a whole upload that met another one


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Value):
    """An object as S3 describes it. checksum: its SHA-256 in base 64, "" if S3 has none."""

    facts: ObjectFacts
    etag: str
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content(Value):
    """Bytes to be written, readable as often as needed. cut: the bytes start ≤ n < stop."""

    size: int
    cut: Callable[[int, int], bytes]

    @property
    def part_bytes(self) -> int:
        return max(PART_BYTES, -(-self.size // MOST_PARTS))

    @property
    def starts(self) -> range:
        return range(0, self.size, self.part_bytes)

    def part(self, start: int) -> bytes:
        return self.cut(start, min(self.size, start + self.part_bytes))

    def sha256(self) -> bytes:
        return _digest(self.cut(at, min(self.size, at + _READ_BYTES)) for at in range(0, self.size, _READ_BYTES))

    def checksum(self) -> str:
        """What S3 would call it, written the way that `put` writes it."""
        if self.size <= WHOLE_BYTES:
            return _text(self.sha256())
        digests = (hashlib.sha256(self.part(start)).digest() for start in self.starts)
        return f"{_text(_digest(digests))}-{len(self.starts)}"


def of_bytes(data: bytes) -> Content:
    """Content in memory."""
    return Content(size=len(data), cut=lambda start, stop: data[start:stop])


def of_file(path: Path) -> Content:
    """Content of a local file."""

    def cut(start: int, stop: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    return Content(size=path.stat().st_size, cut=cut)


def put(to: Connection, uri: str, content: Content) -> ObjectFacts:
    """Write it, unless there is other content already, which raises Exists; the same again is fine.

    An answer that was lost is no failure: what lies there is looked at before one is raised.
    """
    write = put_whole if content.size <= WHOLE_BYTES else _put_parts
    for _ in range(_TRIES):
        try:
            return write(to, uri, content)
        except (Exists, NotFound):  # NotFound: of the upload, which an attempt whose answer was lost has completed
            if (there := _same(to, look(to, uri), content)) is not None:
                return there
        except Unavailable:
            if (there := _same(to, _glance(to, uri), content)) is not None:
                return there
            raise
    raise Unavailable(reason=f"{uri}: others write and delete it at the same time")


def look(at: Connection, uri: str) -> Found | None:
    """None if there is no such object."""
    try:
        answer = at.call("head_object", uri, ChecksumMode="ENABLED")
    except NotFound:
        return None
    etag = str(answer["ETag"])
    facts = ObjectFacts(uri=uri, size=int(answer["ContentLength"]), stamp=stamp_of(etag))
    return Found(facts=facts, etag=etag, checksum=str(answer.get("ChecksumSHA256", "")))


def equal(at: Connection, one: Found, other: Found) -> bool:
    """Whether two objects hold the same bytes: by S3's checksums, else by reading both."""
    if one.facts.size != other.facts.size:
        return False
    return (one.checksum == other.checksum != "") or _read_sha256(at, one) == _read_sha256(at, other)


def stamp_of(etag: str) -> str:
    """As in `ObjectFacts`."""
    return "etag:" + etag.strip('"')


@contextmanager
def begun(to: Connection, uri: str) -> Iterator[str]:
    """The id of a new upload in parts; whatever ends the block but its completion aborts it."""
    upload_id = str(to.call("create_multipart_upload", uri, ChecksumAlgorithm="SHA256")["UploadId"])
    try:
        yield upload_id
    except BaseException:  # Ctrl-C too: the parts would lie there, unseen and paid for
        abort(to, uri, upload_id)
        raise


def abort(to: Connection, uri: str, upload_id: str) -> None:
    """Drop the parts of an upload. What cannot be dropped now is left to the sweeper."""
    try:
        to.call("abort_multipart_upload", uri, UploadId=upload_id)
    except NotFound:
        pass
    except NightmillError as error:
        log.warning("s3_upload_left", uri=uri, upload=upload_id, reason=error.sentence)


def complete(to: Connection, uri: str, upload_id: str, parts: list[dict[str, Any]], *, size: int) -> str:
    """Make the parts one object, if there is none yet; its ETag."""
    answer = to.call(
        "complete_multipart_upload",
        uri,
        UploadId=upload_id,
        MultipartUpload={"Parts": parts},
        MpuObjectSize=size,
        IfNoneMatch="*",
    )
    return str(answer["ETag"])


def together(work: Callable[[Any], Any], items: Iterable[Any], *, at_once: int = PARTS_AT_ONCE) -> list[Any]:
    """A few at a time. After a failure nothing of it goes on when this returns."""
    with ThreadPoolExecutor(at_once, thread_name_prefix="s3") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def put_whole(to: Connection, uri: str, content: Content, *, only_new: bool = True) -> ObjectFacts:
    """Write it by one request, over whatever was there unless `only_new`."""
    data = content.cut(0, content.size)
    condition = "*" if only_new else None
    answer = to.call("put_object", uri, Body=data, IfNoneMatch=condition, **_checked(data))
    return ObjectFacts(uri=uri, size=content.size, stamp=stamp_of(answer["ETag"]))


def _put_parts(to: Connection, uri: str, content: Content) -> ObjectFacts:
    if look(to, uri) is not None:  # before gigabytes are sent for nothing
        raise Exists(uri=uri)
    with begun(to, uri) as upload_id:

        def send(start: int) -> dict[str, Any]:
            number, data = start // content.part_bytes + 1, content.part(start)
            checked = _checked(data)
            answer = to.call("upload_part", uri, UploadId=upload_id, PartNumber=number, Body=data, **checked)
            return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checked["ChecksumSHA256"]}

        parts = together(send, content.starts)
        etag = complete(to, uri, upload_id, parts, size=content.size)
    return ObjectFacts(uri=uri, size=content.size, stamp=stamp_of(etag))


def _checked(data: bytes) -> dict[str, str]:
    """What makes the server refuse other bytes than these."""
    return {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": _text(hashlib.sha256(data).digest())}


def _glance(at: Connection, uri: str) -> Found | None:
    """As `look`; None too where the server is still away: then the first error is the one to tell."""
    try:
        return look(at, uri)
    except Unavailable:
        return None


def _same(at: Connection, found: Found | None, content: Content) -> ObjectFacts | None:
    """The facts of an object that holds this content, None if there is none. Raises Exists if it holds another.

    A checksum that agrees is proof. One that does not may have been made of other parts: then the bytes decide.
    """
    if found is None:
        return None
    if found.facts.size == content.size and (
        found.checksum == content.checksum() or _read_sha256(at, found) == content.sha256()
    ):
        return found.facts
    raise Exists(uri=found.facts.uri)


def _read_sha256(at: Connection, found: Found) -> bytes:
    def digest(answer: Any) -> bytes:
        return _digest(answer["Body"].iter_chunks(_READ_BYTES))

    read: bytes = at.call("get_object", found.facts.uri, digest, IfMatch=found.etag)
    return read


def _digest(chunks: Iterable[bytes]) -> bytes:
    whole = hashlib.sha256()
    for chunk in chunks:
        whole.update(chunk)
    return whole.digest()


def _text(digest: bytes) -> str:
    return b64encode(digest).decode()
