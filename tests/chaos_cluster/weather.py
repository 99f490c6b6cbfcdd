"""Bad weather between Nightmill and its S3 server: a proxy that fails for a while in one of several ways."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from tests.support.s3 import HALF, LOSE, Answer, Fault, FaultyS3, Request, S3Server

ANSWERS_WITHIN_S = 2.0
"""As `s3_timeout_s` of the cluster's settings."""
_ERROR = Answer(status=500, code="InternalError")
_WRITES = frozenset({"PutObject", "UploadPart", "CompleteMultipartUpload", "CopyObject", "UploadPartCopy"})


def _says_500(chance: random.Random, _: Request) -> Fault:
    return _ERROR if chance.random() < 0.7 else None


def _slow(chance: random.Random, _: Request) -> Fault:
    """Some answers come later than anyone waits for them."""
    time.sleep(chance.uniform(0.1, 1.2 * ANSWERS_WITHIN_S))
    return None


def _half_written(chance: random.Random, request: Request) -> Fault:
    return HALF if request.operation in _WRITES and chance.random() < 0.7 else None


def _silent_after_it_stored(chance: random.Random, request: Request) -> Fault:
    return LOSE if request.operation in _WRITES and chance.random() < 0.7 else None


KINDS: Mapping[str, Callable[[random.Random, Request], Fault]] = {
    "s3 says 500": _says_500,
    "s3 slow": _slow,
    "s3 half-written": _half_written,
    "s3 silent after it stored": _silent_after_it_stored,
}


class Weather:
    """Fair until told otherwise. spoilt: requests that went wrong since then."""

    def __init__(self, server: S3Server) -> None:
        self._proxy = FaultyS3(server, remember=False)
        self._proxy.lost_after_s = 1.5 * ANSWERS_WITHIN_S
        self.endpoint = self._proxy.server.endpoint
        self.spoilt = 0

    def turn(self, kind: str, seed: int) -> None:
        chance = random.Random(seed)
        how = KINDS[kind]

        def rule(request: Request) -> Fault:
            fault = how(chance, request)
            self.spoilt += fault is not None or kind == "s3 slow"
            return fault

        self.spoilt = 0
        self._proxy.rule = rule

    def clear(self) -> None:
        self._proxy.rule = lambda _: None

    def close(self) -> None:
        self._proxy.close()
