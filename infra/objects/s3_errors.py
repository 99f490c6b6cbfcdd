"""What an S3 server or the way to it says, in our words: whether to try again, and else who has to act.

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, and those of its imitators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's, of names that cannot be resolved and ports that do not listen
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
)
from urllib3.exceptions import HTTPError

from infra.objects.s3_names import Place
from jobs.errors import Exists, InputChanged, NightmillError, NotFound, Refused, StorageFull, Unavailable
from jobs.model import Value

GONE = frozenset({"NoSuchKey", "NotFound", "404"})
NO_UPLOAD = "NoSuchUpload"
NOT_IMPLEMENTED = "NotImplemented"
_TAKEN = frozenset({"PreconditionFailed", "412"})
_STALE = frozenset(
    "ExpiredToken ExpiredTokenException InvalidAccessKeyId InvalidClientTokenId InvalidToken SignatureDoesNotMatch "
    "TokenRefreshRequired".split()
)
_AGAIN = frozenset(
    "BadDigest BandwidthLimitExceeded ConditionalRequestConflict IncompleteBody InternalError OperationAborted "
    "RequestLimitExceeded RequestTimeout RequestTimeoutException ServiceUnavailable SlowDown Throttling "
    "ThrottlingException TooManyRequests TransientError XAmzContentChecksumMismatch".split()
)
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "403"})
_ELSEWHERE = frozenset(
    "AuthorizationHeaderMalformed IllegalLocationConstraintException IncorrectEndpoint PermanentRedirect "
    "TemporaryRedirect 301 307".split()
)
_FULL = frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "507"})
_NETWORK = (
    ConnectionError, HTTPClientError, HTTPError, ResponseStreamingError, IncompleteReadError, FlexibleChecksumError,
)  # fmt: skip
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError)
_LIST_TOO = "s3:GetObject, or s3:ListBucket, without which S3 says the same of objects that are not there,"
_NEEDS = {
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "copy_object": "s3:PutObject, or s3:GetObject on what is copied,",
    "delete_object": "s3:DeleteObject",
    "delete_objects": "s3:DeleteObject",
    "get_object": _LIST_TOO,
    "head_object": _LIST_TOO,
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
    "list_objects_v2": "s3:ListBucket",
    "upload_part_copy": "s3:PutObject, or s3:GetObject on what is copied,",
}
"""By operation; every other one writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Value):
    """What was asked for when it went wrong, for the sentence. key_id: the credentials' public half, "" if none."""

    operation: str
    uri: str
    place: Place
    endpoint: str
    key_id: str = ""
    attempts: int = 1


def code_of(error: BaseException | None) -> str:
    """S3's code; for an answer without a body the HTTP status as text; "" if nothing was answered."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def status_of(error: Exception) -> int:
    """The HTTP status, 0 if nothing was answered."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_stale(error: Exception) -> bool:
    """Other credentials may be needed: they expire, and are exchanged while a job runs."""
    return code_of(error) in _STALE or isinstance(error, _NO_CREDENTIALS)


def may_pass(error: Exception) -> bool:
    """The same again may succeed."""
    if isinstance(error, ClientError):
        status = status_of(error)
        return code_of(error) in _AGAIN or status in {408, 429} or (status >= 500 and status not in {501, 507})
    return isinstance(error, (*_NETWORK, CredentialRetrievalError))


def translated(error: Exception, asked: Asked) -> NightmillError:
    """The error of ours; the caller raises it from the original."""
    if is_stale(error):
        return _bad_credentials(error, asked)
    if may_pass(error):
        words = _said(error) if code_of(error) else _words(error)
        where = f"the S3 endpoint {asked.endpoint}"
        return Unavailable(reason=f"{asked.uri}: {where} failed {asked.attempts} times, at last with {words}")
    if isinstance(error, ClientError):
        return _by_code(error, asked)
    return Refused(reason=f"{asked.uri}: {_words(error)}")


def _by_code(error: ClientError, asked: Asked) -> NightmillError:
    code, uri, bucket = code_of(error), asked.uri, asked.place.bucket
    if code in GONE:
        return NotFound(kind="object", name=uri, hint="It may have been deleted or moved.")
    if code == NO_UPLOAD:
        return NotFound(kind="upload", name=uri, hint="It may have been completed or aborted.")
    if code in _TAKEN:
        if asked.operation == "get_object":
            return InputChanged(file=uri, reason="it was overwritten while it was read")
        return Exists(uri=uri)
    if code in _FULL or status_of(error) == 507:
        return StorageFull(where=uri)
    return Refused(reason=f"{uri}: {_refusal(error, code, bucket, asked)}")


def _refusal(error: ClientError, code: str, bucket: str, asked: Asked) -> str:
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket} at {asked.endpoint}"
    if code in _DENIED:
        needed = _NEEDS.get(asked.operation, "s3:PutObject")
        return f"the bucket {bucket} denies {needed} to {_who(asked)}; allow it, or use others ({_said(error)})"
    if code in _ELSEWHERE:
        region = _headers(error).get("x-amz-bucket-region", "")
        lies = f"lies in the region {region}" if region else "lies in another region or behind another endpoint"
        return f"the bucket {bucket} {lies}; set s3_region or s3_endpoint accordingly ({_said(error)})"
    if code == NOT_IMPLEMENTED:
        return f"the S3 endpoint {asked.endpoint} cannot do what is needed; it must know If-None-Match ({_said(error)})"
    if code == "InvalidObjectState":
        return f"it is archived; restore it first ({_said(error)})"
    if code == "RequestTimeTooSkewed":
        return f"this machine's clock and that of {asked.endpoint} differ too much ({_said(error)})"
    return f"the S3 endpoint {asked.endpoint} refuses {asked.operation} ({_said(error)})"


def _bad_credentials(error: Exception, asked: Asked) -> Refused:
    if isinstance(error, NoCredentialsError):
        mend = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or what else the AWS tools read"
        return Refused(reason=f"{asked.uri}: there are no credentials for S3; {mend}")
    words = _said(error) if code_of(error) else _words(error)
    return Refused(reason=f"{asked.uri}: the S3 endpoint {asked.endpoint} does not take {_who(asked)} ({words})")


def _who(asked: Asked) -> str:
    return f"the credentials with the key id {asked.key_id}" if asked.key_id else "these credentials"


def _said(error: Exception) -> str:
    message = ""
    if isinstance(error, ClientError):
        message = str(error.response.get("Error", {}).get("Message", ""))
    return ", ".join(filter(None, [code_of(error), " ".join(message.split()).rstrip(".")]))


def _words(error: Exception) -> str:
    kind = type(error).__name__
    return f"{kind}, {' '.join(str(error).split()).rstrip('.')}"


def _headers(error: ClientError) -> dict[str, Any]:
    return dict(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}))


CAUGHT = (ClientError, BotoCoreError, HTTPError)
"""All that the client raises; the last while a body is read."""
