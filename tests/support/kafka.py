"""A real Apache Kafka for tests: one node in a folder of its own, on free ports; it can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.deploy.cluster.broker import kafka_service
from infra.deploy.cluster.kafka_home import find_kafka
from infra.deploy.cluster.service import Failed, Service, free_ports
from tests.support.prepared import missing

if TYPE_CHECKING:
    from infra.queue.kafka import KafkaQueue
    from infra.queue.kafka_policy import KafkaPolicy

LIMIT_S = 30.0
"""How long a test waits for what must come."""
USER, PASSWORD = "mill", "opensesame"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'


@dataclass(frozen=True, kw_only=True)
class Broker:
    """One broker with three doors: open, for those who log in, and for those who log in behind TLS (its certificate is
    for `localhost` alone, and `ca` vouches for it).
    """

    service: Service
    address: str
    login: str
    tls: str
    ca: Path

    def policy(self, **changes: Any) -> KafkaPolicy:
        """Short times, so that a test of a dead broker does not wait long."""
        from infra.queue.kafka_policy import KafkaPolicy  # noqa: PLC0415 - every test imports this module

        short = {"partitions": 1, "metadata_s": 1.0, "session_s": 6.0}
        return KafkaPolicy(**{"bootstrap": self.address, **short, **changes})

    def open(self, **changes: Any) -> KafkaQueue:
        from infra.queue.kafka import open_kafka  # noqa: PLC0415 - as above

        return open_kafka(self.policy(**changes))

    def clear(self) -> None:
        """Delete every topic but the broker's own, and with them all committed offsets."""
        queue = self.open()
        for topic in queue._topics._ask(lambda client: client.list_topics()):
            if not topic.startswith("__"):
                queue.delete_topic(topic)
        queue.close()


@contextmanager
def kafka_broker(folder: Path) -> Iterator[Broker]:
    """Start one; skips without KAFKA_HOME, and fails there in CI."""
    if not os.environ.get("KAFKA_HOME"):
        missing("no Apache Kafka: set KAFKA_HOME to one (a folder with libs/)")
    if find_spec("kafka") is None:
        missing("kafka-python is not installed: pip install -e '.[dev]'")
    try:
        home = find_kafka(folder)
    except Failed as why:
        missing(str(why))
    port, controller, login, tls = free_ports(4)
    service = kafka_service(
        home,
        folder / "kafka",
        port=port,
        controller=controller,
        settings=_doors(port, controller, login, tls, _certificate(folder)),
        format_arguments=("--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"),
    )
    try:
        service.start()
        yield Broker(
            service=service,
            address=f"127.0.0.1:{port}",
            login=f"127.0.0.1:{login}",
            tls=f"localhost:{tls}",
            ca=folder / "ca.pem",
        )
    finally:
        service.kill()


def _doors(port: int, controller: int, login: int, tls: int, key: Path) -> dict[str, str]:
    """And what the broker is in a hurry with, so that a test of retention does not wait for minutes."""
    doors = (
        f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{login},SASL_SSL://localhost:{tls},"
        f"CONTROLLER://127.0.0.1:{controller}"
    )
    logins = {
        f"listener.name.{door}.{mechanism}.sasl.jaas.config": module
        for door in ("sasl_plaintext", "sasl_ssl")
        for mechanism, module in (("plain", _PLAIN), ("scram-sha-256", _SCRAM), ("scram-sha-512", _SCRAM))
    }
    return {
        "listeners": doors,
        "advertised.listeners": doors,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
        "CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        **logins,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "200",
    }


def _certificate(folder: Path) -> Path:
    """Write ca.pem, and key and certificate in one file; that one's path."""
    key, ca, both = folder / "key.pem", folder / "ca.pem", folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(ca)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        missing("openssl is not installed")
    both.write_text(key.read_text() + ca.read_text())
    return both


def eventually(found: Callable[[], Any], within_s: float = LIMIT_S) -> Any:
    """Ask until the answer is true; the last answer."""
    until = time.monotonic() + within_s
    while not (answer := found()) and time.monotonic() < until:
        time.sleep(0.02)
    return answer
