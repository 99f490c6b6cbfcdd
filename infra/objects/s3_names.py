"""What an `s3://` URI names. Keys stand in it as they are (no percent-encoding), as in every other S3 tool."""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from typing import NamedTuple

from jobs.errors import Refused

_UPLOAD = re.compile(r"(?P<folder>.*/)?\.(?P<name>[^/]*)\.(?P<id>[A-Z2-7]+)\.upload", re.DOTALL)


class Place(NamedTuple):
    """A bucket and a key; the key is "" for the bucket itself."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def place_of(uri: str) -> Place:
    """Raises Refused where there is no bucket."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme.lower() != "s3" or not bucket:
        raise Refused(reason=f"{uri} names no bucket; write s3://BUCKET/KEY")
    return Place(bucket, key)


def prefix_of(place: Place) -> str:
    """What the keys below a folder begin with."""
    return f"{place.key.rstrip('/')}/" if place.key else ""


def upload_name(key: str, upload_id: str) -> str:
    """An upload that was begun and not completed, as a hidden name beside its key: so a sweeper sees and deletes it."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.{name}.{b32encode(upload_id.encode()).decode().rstrip('=')}.upload"


def upload_of(key: str) -> tuple[str, str] | None:
    """(key, upload id) behind a name of `upload_name`; None for any other."""
    found = _UPLOAD.fullmatch(key)
    if found is None:
        return None
    try:
        upload_id = b32decode(found["id"] + "=" * (-len(found["id"]) % 8)).decode()
    except ValueError:
        return None
    return f"{found['folder'] or ''}{found['name']}", upload_id
