"""How Kafka is reached and how topics are made there: plain values, and what kafka-python calls them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.queue.kafka_faults import BrokerRefused
from jobs.model import Value

RECONNECT_MAX_MS = 1000
"""Longest pause between two attempts to connect: a broker that is back is found within a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security(Value):
    """protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.

    ca: certificates to trust instead of the machine's own. cert, key: PEM files that show who we are. What must not be
    read in a log is left out of the repr.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = field(default="", repr=False)
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True

    @property
    def logs_in(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def encrypts(self) -> bool:
        return self.protocol.endswith("SSL")

    def client(self, where: str) -> dict[str, Any]:
        """As arguments of a client. Raises BrokerRefused for a file that is not there."""
        files = {"ca": self.ca, "cert": self.cert, "key": self.key} if self.encrypts else {}
        for name, path in files.items():
            if path is not None and not path.is_file():
                raise BrokerRefused(where=where, reason=f"the {name} file {path} is not there")
        login = {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
        }
        tls = {
            "ssl_check_hostname": self.check_hostname,
            "ssl_cafile": _text(self.ca),
            "ssl_certfile": _text(self.cert),
            "ssl_keyfile": _text(self.key),
            "ssl_password": self.key_password or None,
        }
        shown = (login if self.logs_in else {}) | (tls if self.encrypts else {})
        return {"security_protocol": self.protocol, **shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPolicy(Value):
    """bootstrap: brokers to begin with, `host:port,…`.

    partitions, replication, retention_s: how topics are made; replication 0 is 3 where there are three brokers, else 1.
    publish_s: after so long without all acknowledgements a publish is given up. answer_s: as that, for connecting and
    for questions. session_s: a member that was not heard of for so long loses its partitions. max_poll_s: so does one
    whose thread has not polled. metadata_s: how soon it is noticed that a topic was made anew.
    """

    bootstrap: str
    client_id: str = "nightmill"
    security: Security = Security()
    partitions: int = 4
    replication: int = 0
    retention_s: float = 86_400.0
    publish_s: float = 10.0
    answer_s: float = 10.0
    session_s: float = 10.0
    max_poll_s: float = 60.0
    metadata_s: float = 5.0

    def client(self) -> dict[str, Any]:
        """What every kind of client is made with."""
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": self.client_id,
            "bootstrap_timeout_ms": _ms(self.answer_s),
            "reconnect_backoff_max_ms": RECONNECT_MAX_MS,
            "metadata_max_age_ms": _ms(self.metadata_s),
            **self.security.client(self.bootstrap),
        }

    def admin(self) -> dict[str, Any]:
        return {**self.client(), "request_timeout_ms": _ms(self.answer_s)}

    def producer(self) -> dict[str, Any]:
        """Idempotent: what is sent again after a lost acknowledgement is stored once."""
        return {
            **self.client(),
            "enable_idempotence": True,
            "acks": "all",
            "linger_ms": 2,
            "delivery_timeout_ms": _ms(self.publish_s),
            "request_timeout_ms": max(500, _ms(self.publish_s) // 2),
            "max_block_ms": _ms(self.publish_s),
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }

    def consumer(self, group: str) -> dict[str, Any]:
        return {
            **self.client(),
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": _ms(self.session_s),
            "heartbeat_interval_ms": min(3000, _ms(self.session_s) // 5),
            "max_poll_interval_ms": _ms(self.max_poll_s),
            "fetch_max_wait_ms": 50,
            "max_partition_fetch_bytes": 64 << 10,
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
