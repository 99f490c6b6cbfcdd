"""Clocks and ids: the system's, and steady ones for tests."""

from __future__ import annotations

import random
import secrets
import threading
import time

import uuid_utils

CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
"""Base 32 without i, l, o and u: nothing in it is mistaken for something else, and its order is that of the bits."""

_ID_CHARS = 26  # × 5 bits hold the 128 of a UUID
_TOKEN_BITS = 128


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """Stands still until it is told to move; sleeping moves it. For tests, from any thread."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()
        self._now = start
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let both clocks move on."""
        with self._lock:
            self._now += seconds
            self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or a laptop's lid does."""
        with self._lock:
            self._now += seconds


class SystemIds:
    """Ids are UUIDv7, so they sort by time; tokens are 128 random bits."""

    def job_id(self) -> str:
        return self.new("job-")

    def new(self, prefix: str) -> str:
        return f"{prefix}{crockford(uuid_utils.uuid7().int)}"

    def token(self) -> str:
        return secrets.token_hex(_TOKEN_BITS // 8)


class SeededIds:
    """The same names in every run. For tests."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._jobs = 0

    def job_id(self) -> str:
        return self.new("job-")

    def new(self, prefix: str) -> str:
        self._jobs += 1
        return f"{prefix}{crockford((self._jobs << 80) | self._random.getrandbits(80))}"

    def token(self) -> str:
        return f"{self._random.getrandbits(_TOKEN_BITS):032x}"


def crockford(number: int) -> str:
    """A 128-bit number as 26 characters; the order of the texts is that of the numbers."""
    return "".join(CROCKFORD[(number >> shift) & 31] for shift in range(5 * (_ID_CHARS - 1), -1, -5))


def time_of(name: str) -> float:
    """Seconds since the epoch at which an id was made: the first 48 bits of its UUIDv7, in milliseconds."""
    number = 0
    for char in name[-_ID_CHARS:]:
        number = number << 5 | CROCKFORD.index(char)
    return (number >> 80) / 1000
