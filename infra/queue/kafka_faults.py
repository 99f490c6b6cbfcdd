"""What goes wrong at Kafka, said once in our words. Nothing above the adapter sees an exception of kafka-python.

Its clients retry a refused login until they time out, and only their log says why; so that log is listened to.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from kafka import errors
from kafka.net.compat import KafkaNetClient

from jobs.errors import NightmillError, Refused, Unavailable

log = structlog.get_logger()

_TROUBLE_EVERY_S = 30.0
"""A connection that is lost is told once in so long; the client itself says it several times a second."""

T = TypeVar("T")


class BrokerUnavailable(Unavailable):
    """Kafka at {where} does not answer: {reason}. Work waits until it does."""

    code = "broker_unavailable"


class BrokerRefused(Refused):
    """Kafka at {where} refuses: {reason}."""

    code = "broker_refused"


class MessageTooLarge(Refused):
    """A message for topic {topic} is larger than Kafka takes: {reason}."""

    code = "message_too_large"


_REFUSALS = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
    errors.SecurityDisabledError,
    errors.UnsupportedVersionError,
    errors.IncompatibleBrokerVersion,
    errors.KafkaConfigurationError,
    errors.InvalidTopicError,
    errors.InvalidPartitionsError,
    errors.InvalidReplicationFactorError,
    errors.InvalidConfigurationError,
    errors.PolicyViolationError,
)
_TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)


def is_refusal(error: BaseException) -> bool:
    """Whether asking again cannot help: somebody has to change something."""
    return isinstance(error, _REFUSALS)


def translate(error: Exception, where: str, topic: str = "") -> NightmillError:
    """Ours for theirs. topic: what a message was sent to."""
    if isinstance(error, _TOO_LARGE):
        return MessageTooLarge(topic=topic, reason=said(error))
    if is_refusal(error):
        return BrokerRefused(where=where, reason=said(error))
    return BrokerUnavailable(where=where, reason=said(error))


def said(error: BaseException) -> str:
    """The error's own words, without its number and class name in front of them."""
    if isinstance(error, errors.IllegalSaslStateError):
        return "it asks for no login at this address"
    name = type(error).__name__
    text = re.sub(rf"^(\[Error \d+\]\s*)?(({name}|KafkaError):?\s*)*", "", " ".join(str(error).split()))
    return text.removesuffix(".") or name


# ---- the client's own log -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Heard:
    """Words, not the exception: that one's traceback would keep its sockets open."""

    at: float
    words: str
    refusal: bool
    timeout: bool


class _Ear(logging.Handler):
    """On the client's log: remembers why connections failed lately, and passes on what a person should know."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._heard: deque[_Heard] = deque(maxlen=256)
        self._told_at = -_TROUBLE_EVERY_S
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        causes = [a for a in record.args if isinstance(a, BaseException)] if isinstance(record.args, tuple) else []
        self._heard.extend(_heard(now, cause) for cause in causes)
        if record.msg == "%s: Connection lost: %s" and self._may_tell(now):
            log.warning("kafka_connection_lost", reason=said(causes[-1]) if causes else "")
        else:
            log.debug("kafka_client", said=record.getMessage())

    def heard_since(self, since: float) -> list[_Heard]:
        return [heard for heard in list(self._heard) if heard.at >= since]

    def _may_tell(self, now: float) -> bool:
        with self._guard:
            if now - self._told_at < _TROUBLE_EVERY_S:
                return False
            self._told_at = now
            return True


def _heard(at: float, cause: BaseException) -> _Heard:
    refusal = is_refusal(cause) or "Handshake failed" in str(cause)
    return _Heard(at, said(cause), refusal, isinstance(cause, errors.KafkaTimeoutError))


_EAR = _Ear()


def _listen() -> None:
    """At warnings and above: below, the client writes its configuration into its log, passwords and all."""
    library = logging.getLogger("kafka")
    if _EAR not in library.handlers:
        library.addHandler(_EAR)
        library.setLevel(logging.WARNING)
        library.propagate = False


def connected(make: Callable[..., T], where: str, hint: str, config: dict[str, Any]) -> T:
    """Make a client, which connects. hint: what else may be wrong when nobody says. Raises BrokerRefused when a broker
    refuses the login or the encryption, BrokerUnavailable when none answers in time.
    """
    _listen()
    began = time.monotonic()
    nets: list[KafkaNetClient] = []

    def net_client(**config: Any) -> KafkaNetClient:
        nets.append(KafkaNetClient(**config))
        return nets[-1]

    try:
        return make(kafka_client=net_client, **config)
    except (errors.KafkaError, OSError, ValueError) as error:
        for net in nets:  # a client that was not made leaves its thread and sockets behind
            net.close()
        if isinstance(error, errors.KafkaTimeoutError):
            raise _unanswered(_EAR.heard_since(began), where, hint) from error
        if isinstance(error, errors.KafkaError):
            raise translate(error, where) from error
        raise BrokerRefused(where=where, reason=said(error)) from error  # a certificate or an address that is none


def _unanswered(heard: list[_Heard], where: str, hint: str) -> NightmillError:
    """What a client heard before its time ran out, of which it says nothing itself."""
    refusals = [one.words for one in heard if one.refusal]
    if refusals:
        return BrokerRefused(where=where, reason=refusals[-1])
    others = [one.words for one in heard if not one.timeout]
    return BrokerUnavailable(where=where, reason=(others[-1] if others else "no answer in time") + hint)
