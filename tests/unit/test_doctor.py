"""The doctor: each check finds what is there, and says the mend."""

import fcntl
import shutil
from types import SimpleNamespace

import pytest

from infra import machine
from infra.doctor import Level, examine
from infra.settings import load

pytestmark = pytest.mark.unit


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "home").mkdir()
    return load(environ={}, home=tmp_path / "home")


def found(settings) -> dict:
    return {check.name: check for check in examine(settings)}


def test_every_check_that_does_not_pass_names_a_mend(settings):
    assert [check.name for check in examine(settings) if (check.level is not Level.OK) != bool(check.mend)] == []


def test_nothing_is_left_in_the_data_directory(settings):
    list(examine(settings))
    assert list(settings.home.iterdir()) == []


def test_without_vllm_only_the_fake_model_runs(settings, monkeypatch):
    monkeypatch.setattr(machine, "can_import", lambda _: False)
    assert (found(settings)["engine"].level, "fake" in found(settings)["engine"].found) == (Level.WARN, True)


def test_a_full_disk_is_a_warning(settings, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert found(settings)["disk"].level is Level.WARN


def test_a_home_without_file_locks_fails(settings, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    check = found(settings)["home"]
    assert (check.level, check.mend) == (Level.FAIL, "set NIGHTMILL_HOME to a folder on a local disk")


def test_a_processor_without_avx2_is_a_warning(settings, monkeypatch):
    monkeypatch.setattr(machine, "is_x86", lambda: True)
    monkeypatch.setattr(machine, "cpu_instructions", list)
    assert found(settings)["cpu"].level is Level.WARN


def test_too_little_memory_is_a_warning(settings, monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda: 1 << 30)
    assert found(settings)["memory"].level is Level.WARN


def test_an_unprepared_model_names_the_command(settings):
    assert found(settings)["model minilm"].mend == "nightmill models prepare minilm"
