"""The way to an S3 server: every request goes through `call`, which tries again, and changes credentials, in bounds.

botocore's own retries are off: they know neither an answer whose body breaks off nor credentials that are exchanged in
a file, and their shared quota gives up early when many threads meet the same outage.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from infra.objects.s3_errors import CAUGHT, Asked, code_of, is_stale, may_pass, translated
from infra.objects.s3_names import place_of
from infra.objects.s3_options import S3Options
from jobs.errors import Refused
from jobs.model import Value
from jobs.retry import Backoff

log = structlog.get_logger()

CONNECT_TIMEOUT_S = 10.0
CONNECTIONS = 32
_SILENT = frozenset({"400", "403", "301", "307"})
"""Statuses of a HEAD, whose answer has no body that would say more."""
_WARY_ATTEMPTS = 3
"""While nothing has ever been answered, a wrong setting is likelier than an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login(Value):
    """A client with the credentials that its session found. keys: (key id, secret, token), None if there are none."""

    client: Any
    keys: tuple[str, str, str | None] | None = field(repr=False)


def log_in(options: S3Options) -> Login:
    """A new session looks for credentials anew: environment, shared files, container, instance, as the AWS tools do."""
    session = boto3.session.Session()
    client = session.client(
        "s3",
        endpoint_url=options.endpoint or None,
        region_name=options.region or None,
        config=Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=options.timeout_s,
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": options.addressing},
        ),
    )
    found = session.get_credentials()
    keys = found.get_frozen_credentials() if found is not None else None
    return Login(client=client, keys=(keys.access_key, keys.secret_key, keys.token) if keys is not None else None)


class Connection:
    """Safe to call from several threads. sleep, chance, open_client: for tests."""

    def __init__(
        self,
        options: S3Options,
        *,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        open_client: Callable[[S3Options], Login] = log_in,
    ) -> None:
        self._options = options
        self._backoff = Backoff(first_s=0.2, max_s=20.0, attempts=options.attempts)
        self._sleep = sleep
        self._chance = chance
        self._open_client = open_client
        self._lock = threading.Lock()
        self._login: Login | None = None
        self._answered = False
        self._accepted = False

    def call(self, operation: str, uri: str, finish: Callable[[Any], Any] | None = None, /, **params: Any) -> Any:
        """One request. finish: takes the answer while a broken-off body still counts as a failure of the request.

        Bucket and key are the URI's unless given. Raises our errors only.
        """
        place = place_of(uri)
        params = {"Bucket": place.bucket, "Key": place.key, **params}
        params = {name: value for name, value in params.items() if value is not None}
        attempt = 0
        while True:
            attempt += 1
            login = self._logged_in()
            try:
                answer = getattr(login.client, operation)(**params)
                result = finish(answer) if finish is not None else answer
            except CAUGHT as error:
                told = _told(error, login, operation, params)
                self._answered = self._answered or isinstance(told, ClientError)
                wait_s = self._wait_s(told, login, attempt)
                if wait_s is None:
                    asked = Asked(
                        operation=operation,
                        uri=uri,
                        place=place,
                        endpoint=str(login.client.meta.endpoint_url),
                        key_id=login.keys[0] if login.keys is not None else "",
                        attempts=attempt,
                    )
                    raise translated(told, asked) from error
                log.warning("s3_again", operation=operation, uri=uri, reason=code_of(told) or repr(told), in_s=wait_s)
                self._sleep(wait_s)
            else:
                self._answered = self._accepted = True
                return result

    def link(self, uri: str, seconds: int) -> str:
        """A presigned URL to read by. It is made here: no request, and no question whether the object is there."""
        place = place_of(uri)
        try:
            url: str = self._logged_in().client.generate_presigned_url(
                "get_object", Params={"Bucket": place.bucket, "Key": place.key}, ExpiresIn=seconds
            )
        except BotoCoreError as error:
            raise Refused(reason=f"no link can be made to {uri} ({' '.join(str(error).split())})") from error
        return url

    def _wait_s(self, error: Exception, login: Login, attempt: int) -> float | None:
        """Seconds before the next attempt; None: there is none."""
        pause_s = self._backoff.wait_s(attempt)
        if pause_s is None or (attempt >= _WARY_ATTEMPTS and not self._answered):
            return None
        pause_s *= 0.5 + self._chance() / 2
        if is_stale(error):
            if self._renewed(login):
                return 0.0
            # Whoever exchanges them may be late; credentials that never were good are not waited for.
            return pause_s if self._accepted else None
        return pause_s if may_pass(error) else None

    def _logged_in(self) -> Login:
        with self._lock:
            if self._login is None:
                self._login = self._opened()
            return self._login

    def _opened(self) -> Login:
        try:
            return self._open_client(self._options)
        except (BotoCoreError, ValueError) as error:  # a profile that is not there, an endpoint that is no URL
            raise Refused(reason=f"S3 cannot be used as it is set up ({' '.join(str(error).split())})") from error

    def _renewed(self, used: Login) -> bool:
        """Whether there are other credentials now than those that were refused."""
        with self._lock:
            if self._login is not used:
                return True
            try:
                fresh = self._opened()
            except Refused:  # the file may be half written at this moment
                return False
            if fresh.keys == used.keys:
                return False
            self._login = fresh
        log.info("s3_credentials_changed", key_id=fresh.keys[0] if fresh.keys is not None else "")
        return True


def _told(error: Exception, login: Login, operation: str, params: dict[str, Any]) -> Exception:
    """A refused HEAD does not say why: the same question as a GET of one byte does."""
    if operation != "head_object" or code_of(error) not in _SILENT:
        return error
    try:
        login.client.get_object(Bucket=params["Bucket"], Key=params["Key"], Range="bytes=0-0")["Body"].close()
    except CAUGHT as said:
        reason: Exception = said
        return reason
    return error
