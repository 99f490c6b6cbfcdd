"""Objects in S3 and in what speaks its protocol, with If-None-Match."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from botocore.exceptions import IncompleteReadError

from infra.objects import s3_upload as upload
from infra.objects.s3_client import Connection
from infra.objects.s3_errors import NOT_IMPLEMENTED, code_of
from infra.objects.s3_names import place_of, prefix_of, upload_name, upload_of
from infra.objects.s3_reader import RangeFile, RangeReader
from jobs.errors import Exists, NotFound, Refused
from jobs.ports.objects import ObjectFacts

LARGEST_COPY_BYTES = 5 << 30
"""Above, an object is copied in parts."""
COPY_PART_BYTES = 512 << 20
REQUESTS_AT_ONCE = 16
"""Of small ones; each takes tens of milliseconds, nearly all of them waiting."""


class S3Objects:
    """Safe to call from several threads. scratch: a local folder for files on their way up.

    S3 has no folders to sync: what was answered is durable.
    """

    def __init__(self, connection: Connection, scratch: Path) -> None:
        self._s3 = connection
        self._scratch = scratch
        self._plain_copies = False

    def put_if_absent(self, uri: str, data: bytes) -> ObjectFacts:
        return upload.put(self._s3, uri, upload.of_bytes(data))

    def put_many(self, items: Sequence[tuple[str, bytes]]) -> list[ObjectFacts]:
        return upload.together(lambda item: self.put_if_absent(*item), items, at_once=REQUESTS_AT_ONCE)

    def put_file_if_absent(self, uri: str, local: Path) -> ObjectFacts:
        facts = upload.put(self._s3, uri, upload.of_file(local))
        local.unlink(missing_ok=True)
        return facts

    def replace(self, uri: str, data: bytes) -> ObjectFacts:
        return upload.put_whole(self._s3, uri, upload.of_bytes(data), only_new=False)

    def publish(self, source: str, target: str) -> None:
        """By a copy inside S3; looked at first, since not every server knows If-None-Match for copies."""
        there = upload.look(self._s3, target)
        if there is None:
            try:
                self._copy(source, target)
            except Exists:
                there = upload.look(self._s3, target)
        if there is not None and not upload.equal(self._s3, self._must_find(source), there):
            raise Exists(uri=target)

    def publish_many(self, pairs: Sequence[tuple[str, str]]) -> None:
        upload.together(lambda pair: self.publish(*pair), pairs, at_once=REQUESTS_AT_ONCE)

    def _copy(self, source: str, target: str) -> None:
        try:
            self._s3.call("copy_object", target, IfNoneMatch=None if self._plain_copies else "*", **_copied(source))
        except NotFound as error:
            raise NotFound(kind="object", name=source, hint="It may have been deleted or moved.") from error
        except Refused as error:
            if code_of(error.__cause__) == NOT_IMPLEMENTED and not self._plain_copies:
                self._plain_copies = True
                self._copy(source, target)
                return
            found = self._must_find(source)
            if found.facts.size <= LARGEST_COPY_BYTES:
                raise
            self._copy_parts(found, target)

    def _copy_parts(self, source: upload.Found, target: str) -> None:
        size = source.facts.size
        with upload.begun(self._s3, target) as upload_id:

            def send(start: int) -> dict[str, Any]:
                number = start // COPY_PART_BYTES + 1
                answer = self._s3.call(
                    "upload_part_copy",
                    target,
                    UploadId=upload_id,
                    PartNumber=number,
                    CopySourceRange=f"bytes={start}-{min(size, start + COPY_PART_BYTES) - 1}",
                    CopySourceIfMatch=source.etag,
                    CopySource=_copied(source.facts.uri)["CopySource"],
                )["CopyPartResult"]
                part = {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": answer.get("ChecksumSHA256")}
                return {name: value for name, value in part.items() if value is not None}

            parts = upload.together(send, range(0, size, COPY_PART_BYTES))
            upload.complete(self._s3, target, upload_id, parts, size=size)

    def read(self, uri: str) -> bytes:
        data: bytes = self._s3.call("get_object", uri, _body)
        return data

    def open(self, uri: str) -> BinaryIO:
        found = self._must_find(uri)

        def fetch(start: int, stop: int) -> bytes:
            span = f"bytes={start}-{stop - 1}"
            data: bytes = self._s3.call("get_object", uri, _all_of(stop - start), Range=span, IfMatch=found.etag)
            return data

        return cast("BinaryIO", RangeFile(RangeReader(fetch, found.facts.size)))

    def facts(self, uri: str) -> ObjectFacts | None:
        if _is_folder(place_of(uri).key):
            return None
        found = upload.look(self._s3, uri)
        return None if found is None else found.facts

    def _must_find(self, uri: str) -> upload.Found:
        found = upload.look(self._s3, uri)
        if found is None:
            raise NotFound(kind="object", name=uri, hint="It may have been deleted or moved.")
        return found

    def list(self, prefix: str, *, unfinished: bool = False) -> Iterator[ObjectFacts]:
        found = self._objects(prefix)
        yield from sorted([*found, *self._uploads(prefix)], key=lambda facts: facts.uri) if unfinished else found

    def _objects(self, prefix: str) -> Iterator[ObjectFacts]:
        below = prefix_of(place_of(prefix))
        for page in self._pages("list_objects_v2", prefix, ContinuationToken="NextContinuationToken"):
            for entry in page.get("Contents", ()):
                if not _is_folder(entry["Key"]):
                    uri = f"{prefix.rstrip('/')}/{entry['Key'][len(below) :]}"
                    yield ObjectFacts(uri=uri, size=int(entry["Size"]), stamp=upload.stamp_of(entry["ETag"]))

    def _uploads(self, prefix: str) -> Iterator[ObjectFacts]:
        """Uploads that were begun and neither completed nor aborted; none where we may not ask."""
        below = prefix_of(place_of(prefix))
        try:
            pages = list(
                self._pages(
                    "list_multipart_uploads", prefix, KeyMarker="NextKeyMarker", UploadIdMarker="NextUploadIdMarker"
                )
            )
        except Refused:
            return
        for entry in (entry for page in pages for entry in page.get("Uploads", ())):
            name = upload_name(entry["Key"], entry["UploadId"])[len(below) :]
            yield ObjectFacts(uri=f"{prefix.rstrip('/')}/{name}", size=0, stamp=f"etag:{entry['UploadId']}")

    def _pages(self, operation: str, prefix: str, **cursor: str) -> Iterator[dict[str, Any]]:
        """cursor: the request's parameter for each of the answer's fields that say where to go on."""
        below = prefix_of(place_of(prefix))
        after: dict[str, str] = {}
        while True:
            page = self._s3.call(operation, prefix, Key=None, Prefix=below, **after)
            yield page
            if not page.get("IsTruncated"):
                return
            after = {name: page[field] for name, field in cursor.items()}

    def delete(self, uri: str) -> None:
        place = place_of(uri)
        begun = upload_of(place.key)
        if begun is None:
            self._s3.call("delete_object", uri)
        else:
            upload.abort(self._s3, place._replace(key=begun[0]).uri, begun[1])

    def delete_many(self, uris: Sequence[str]) -> None:
        upload.together(self.delete, uris, at_once=REQUESTS_AT_ONCE)

    def link(self, uri: str, seconds: int) -> str | None:
        return self._s3.link(uri, seconds)

    def sync(self, folder: str) -> None:
        """Nothing is left to do."""

    def scratch(self, near: str) -> Path:
        self._scratch.mkdir(parents=True, exist_ok=True)
        name = place_of(near).key.rpartition("/")[2][:40]
        return self._scratch / f".{name}.{secrets.token_hex(8)}.tmp"


def _is_folder(key: str) -> bool:
    """The bucket itself, and the empty objects that consoles make to show a folder."""
    return not key or key.endswith("/")


def _copied(source: str) -> dict[str, Any]:
    place = place_of(source)
    return {"CopySource": {"Bucket": place.bucket, "Key": place.key}, "ChecksumAlgorithm": "SHA256"}


def _body(answer: Any) -> Any:
    return answer["Body"].read()


def _all_of(size: int) -> Callable[[Any], bytes]:
    def read(answer: Any) -> bytes:
        data: bytes = answer["Body"].read()
        if len(data) != size:  # a server that does not know ranges
            raise IncompleteReadError(actual_bytes=len(data), expected_bytes=size)
        return data

    return read
