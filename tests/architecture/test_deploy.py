"""What operators get: the compose file and the broker's pom say the same as the code."""

import re
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from infra.deploy.cluster.config import read_config
from infra.deploy.cluster.objects import BUCKETS
from infra.deploy.cluster.ray_head import SERVE
from infra.deploy.cluster.town import ENVIRONMENT_FILE, SERVICES
from infra.settings import load

pytestmark = pytest.mark.architecture

DEPLOY = Path(__file__).resolve().parents[2] / "infra/deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def images():
    return {name: service["image"] for name, service in COMPOSE["services"].items()}


def test_docker_users_get_the_services_of_make_cluster():
    assert set(COMPOSE["services"]) == set(SERVICES)


def test_every_image_is_pinned_to_a_release_and_names_no_host():
    assert [
        image for image in images().values() if not re.fullmatch(r"([a-z]+/)?[a-z]+:\d+(\.\d+)+(-\w+)?", image)
    ] == []


def test_the_broker_is_the_same_release_everywhere():
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = ET.parse(DEPLOY / "kafka/pom.xml").findall(".//m:dependency", space)
    versions = {d.findtext("m:artifactId", "", space): d.findtext("m:version", "", space) for d in found}
    assert versions["kafka_2.13"] == versions["kafka-tools"] == images()["kafka"].partition(":")[2]


def test_every_service_has_a_health_check_and_is_published_to_this_machine_only():
    services = COMPOSE["services"].values()
    assert [service["image"] for service in services if not service.get("healthcheck")] == []
    assert [port for service in services for port in service["ports"] if not port.startswith("127.0.0.1:")] == []


def test_the_settings_of_the_containers_are_settings(tmp_path):
    file = tmp_path / "nightmill.toml"
    file.write_text(COMPOSE["configs"]["nightmill"]["content"])
    environment = COMPOSE["services"]["ray"]["environment"]
    variables = {name: str(value) for name, value in environment.items() if name != "NIGHTMILL_CONFIG"}
    settings = load(environ=variables, config=file)
    assert settings.kafka_bootstrap == "kafka:19092"
    assert settings.objects.split("/")[2] in BUCKETS


def test_the_containers_have_the_buckets_of_make_cluster():
    check = COMPOSE["services"]["s3"]["healthcheck"]["test"][-1]
    assert [bucket for bucket in BUCKETS if f'"{bucket}"' not in check] == []


# ---- make cluster -----------------------------------------------------------------------------------


def test_the_settings_of_make_cluster_are_nightmill_s_and_name_every_service_of_it():
    settings, config = load(environ={}, config=DEPLOY / "local.toml"), read_config(DEPLOY / "local.toml")
    assert set(config.ports) == set(SERVICES)
    assert (settings.home, settings.home / settings.environment_file) == (config.home, config.folder / ENVIRONMENT_FILE)
    assert settings.objects.split("/")[2] in BUCKETS
    assert [pool.name for pool in settings.pools] == ["batch", "trial"]


def test_make_cluster_takes_those_settings():
    makefile = (DEPLOY.parents[1] / "Makefile").read_text()
    assert "CLUSTER ?= infra/deploy/local.toml\n" in makefile
    assert makefile.count("infra.deploy.cluster up --config $(CLUSTER)") == 1
    assert makefile.count("infra.deploy.cluster down --config $(CLUSTER)") == 1


def test_volumes_and_configs_that_are_used_are_declared():
    used = {v.partition(":")[0] for s in COMPOSE["services"].values() for v in s.get("volumes", ())}
    assert {name for name in used if not name.startswith(".")} == set(COMPOSE["volumes"])


def test_ray_knows_the_settings_that_a_local_ray_is_started_with():
    found = find_spec("ray")
    if found is None or found.origin is None:
        pytest.skip("Ray is not installed")
    known = (Path(found.origin).parent / "serve/_private/constants.py").read_text()
    assert [name for name in SERVE if f'"{name}"' not in known] == []
