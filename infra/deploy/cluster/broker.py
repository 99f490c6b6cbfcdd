"""One Apache Kafka node (KRaft: broker and controller in one process) as a service."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.deploy.cluster.kafka_home import KafkaHome
from infra.deploy.cluster.service import Failed, Service, listens

CLUSTER_ID = "nightmillAAAAAAAAAAAAA"
_JVM = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC"]
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    "log.segment.bytes": str(64 << 20),
    # A killed broker may register again only when its old session has ended: 2 s here, 9 s by default.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2000",
}
_LOG4J = """\
rootLogger.level=WARN
rootLogger.appenderRef.stdout.ref=stdout
appender.stdout.type=Console
appender.stdout.name=stdout
appender.stdout.layout.type=PatternLayout
appender.stdout.layout.pattern=%d %p %c{1} %m%n
logger.server.name=kafka.server
logger.server.level=INFO
logger.client.name=org.apache.kafka.clients
logger.client.level=ERROR
"""


def kafka_service(
    home: KafkaHome,
    folder: Path,
    *,
    port: int,
    controller: int,
    settings: Mapping[str, str] | None = None,
    format_arguments: tuple[str, ...] = (),
) -> Service:
    """settings: server.properties to add or override. format_arguments: of the first formatting (SCRAM users)."""
    lines = {
        **_SETTINGS,
        "log.dirs": str(folder / "data"),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        **(settings or {}),
    }
    properties, log4j = folder / "server.properties", folder / "log4j2.properties"
    java, *rest = home.command("kafka.Kafka", str(properties))

    def before() -> None:
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        log4j.write_text(_LOG4J)
        if not (folder / "data" / "meta.properties").exists():
            _format(home, properties, format_arguments)

    return Service(
        name="Kafka",
        folder=folder,
        command=[java, *_JVM, f"-Dlog4j2.configurationFile={log4j}", *rest],
        ready=lambda: listens(port),
        before=before,
    )


def _format(home: KafkaHome, properties: Path, arguments: tuple[str, ...]) -> None:
    command = home.command(
        "kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties), *arguments
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")
