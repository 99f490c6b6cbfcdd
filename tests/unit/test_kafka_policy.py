"""How Kafka's clients are set up, and how their faults are told; no broker is needed for it."""

import logging

import pytest
import structlog.testing

from infra.bootstrap import Home
from infra.settings import load
from jobs.errors import BadSetting, Refused, Unavailable

pytest.importorskip("kafka")
from kafka import errors

from infra.queue import kafka_faults
from infra.queue.kafka_faults import BrokerRefused, BrokerUnavailable, MessageTooLarge, said, translate
from infra.queue.kafka_policy import KafkaPolicy, Security

pytestmark = pytest.mark.unit

SECRET = {"password": "opensesame", "key_password": "opensesame"}
WHERE = "k:9092"


def test_no_secret_is_shown():
    policy = KafkaPolicy(bootstrap=WHERE, security=Security(protocol="SASL_SSL", **SECRET))
    settings = load(environ={"NIGHTMILL_KAFKA_PASSWORD": "opensesame", "NIGHTMILL_KAFKA_KEY_PASSWORD": "opensesame"})
    assert "opensesame" not in repr(policy) + repr(settings)


@pytest.mark.parametrize(
    ("protocol", "sasl", "ssl"),
    [("PLAINTEXT", False, False), ("SSL", False, True), ("SASL_PLAINTEXT", True, False), ("SASL_SSL", True, True)],
)
def test_a_client_is_told_what_its_protocol_needs_and_no_more(protocol, sasl, ssl):
    config = Security(protocol=protocol, username="mill", **SECRET).client(WHERE)
    assert config["security_protocol"] == protocol
    assert (any(name.startswith("sasl_") for name in config), any(name.startswith("ssl_") for name in config)) == (
        sasl, ssl,
    )  # fmt: skip


def test_nothing_is_committed_or_created_behind_our_back():
    policy = KafkaPolicy(bootstrap=WHERE)
    consumer, producer = policy.consumer("g"), policy.producer()
    assert (consumer["enable_auto_commit"], consumer["auto_offset_reset"]) == (False, "earliest")
    assert (producer["enable_idempotence"], producer["acks"], producer["linger_ms"]) == (True, "all", 2)
    assert {consumer["allow_auto_create_topics"], producer["allow_auto_create_topics"]} == {False}


def test_the_settings_become_a_policy(tmp_path):
    settings = load(
        environ={
            "NIGHTMILL_HOME": str(tmp_path),
            "NIGHTMILL_KAFKA_BOOTSTRAP": "a:1,b:2",
            "NIGHTMILL_KAFKA_SECURITY": "SASL_SSL",
            "NIGHTMILL_KAFKA_USERNAME": "mill",
            "NIGHTMILL_KAFKA_PASSWORD": "opensesame",
            "NIGHTMILL_KAFKA_CA": "ca.pem",
            "NIGHTMILL_KAFKA_CHECK_HOSTNAME": "no",
            "NIGHTMILL_KAFKA_PARTITIONS": "7",
        }
    )
    security = Security(
        protocol="SASL_SSL", username="mill", password="opensesame", ca=tmp_path / "ca.pem", check_hostname=False
    )
    home = Home(settings)
    assert home._kafka_policy() == KafkaPolicy(bootstrap="a:1,b:2", security=security, partitions=7)
    assert type(home.broker).__name__ == "KafkaQueue"  # which connects when it is first used
    home.close()


def test_a_login_without_a_name_or_a_password_is_refused():
    with pytest.raises(BadSetting) as refused:
        load(environ={"NIGHTMILL_KAFKA_SECURITY": "SASL_SSL", "NIGHTMILL_KAFKA_USERNAME": "mill"})
    assert refused.value.faults == ("kafka_password: it is not set, and kafka_security is SASL_SSL",)


# ---- faults -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.KafkaConnectionError("111 ECONNREFUSED"), "111 ECONNREFUSED"),
        (errors.SaslAuthenticationFailedError("SaslAuthenticationFailedError: no."), "no"),
        (errors.NotLeaderForPartitionError(), "NotLeaderForPartitionError"),
        (errors.IllegalSaslStateError(), "it asks for no login at this address"),
    ],
)
def test_an_error_says_what_it_says_without_its_class_in_front(error, words):
    assert said(error) == words


@pytest.mark.parametrize(
    ("error", "ours", "branch"),
    [
        (errors.KafkaTimeoutError("x"), BrokerUnavailable, Unavailable),
        (errors.NotEnoughReplicasError(), BrokerUnavailable, Unavailable),
        (errors.OutOfOrderSequenceNumberError(), BrokerUnavailable, Unavailable),
        (errors.TopicAuthorizationFailedError("t"), BrokerRefused, Refused),
        (errors.GroupAuthorizationFailedError("g"), BrokerRefused, Refused),
        (errors.MessageSizeTooLargeError("2 MiB"), MessageTooLarge, Refused),
    ],
)
def test_every_error_is_given_to_who_must_act(error, ours, branch):
    found = translate(error, WHERE, "t")
    assert (type(found), isinstance(found, branch)) == (ours, True)


def test_a_lost_connection_is_told_once_in_a_while(monkeypatch):
    clock = iter([0.0, 1.0, 29.0, 31.0])
    monkeypatch.setattr(kafka_faults.time, "monotonic", lambda: next(clock))
    ear = kafka_faults._Ear()
    with structlog.testing.capture_logs() as logs:
        for _ in range(4):
            cause = errors.KafkaConnectionError("reset")
            ear.emit(logging.LogRecord("kafka", 40, "", 0, "%s: Connection lost: %s", ("node 1", cause), None))
    told = [entry for entry in logs if entry["event"] == "kafka_connection_lost"]
    assert [entry["reason"] for entry in told] == ["reset", "reset"]
