"""Logs: events as JSON lines in the file, warnings for people, nothing that can stop a run."""

import json
import logging

import pytest
import structlog

from infra import logs
from jobs.errors import BadSetting

pytestmark = pytest.mark.unit


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path, shown):
    path = tmp_path / "logs/nightmill.log"
    logs.set_up(path, "info", shown.append)
    yield path
    structlog.contextvars.clear_contextvars()
    structlog.reset_defaults()


def lines(file) -> list[dict]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "timestamp"} for line in found]


def test_an_event_is_a_json_line_with_its_data_and_what_was_bound(file):
    logs.bind(job="job-1")
    structlog.get_logger().info("task_done", rows=3)
    logs.unbind("job")
    structlog.get_logger().info("idle")
    structlog.get_logger().debug("unseen")
    assert lines(file) == [
        {"level": "info", "event": "task_done", "rows": 3, "job": "job-1"},
        {"level": "info", "event": "idle"},
    ]


def test_people_see_warnings_on_one_line_and_nothing_less_urgent(file, shown):
    log = structlog.get_logger()
    log.info("task_done")
    log.warning("lease_lost", task="t\n1")
    log.error("loop_ended", exc_info=ValueError("x"))
    log.error("told_elsewhere", silent=True)
    assert shown == ["warning: lease lost: task=t 1", "error: loop ended"]
    assert "ValueError: x" in lines(file)[2]["exception"]
    assert lines(file)[3] == {"level": "error", "event": "told_elsewhere"}


def test_a_second_process_appends(file, tmp_path):
    structlog.get_logger().info("one")
    logs.set_up(file, "info")
    structlog.get_logger().info("two")
    assert [line["event"] for line in lines(file)] == ["one", "two"]


def test_a_long_file_is_set_aside_at_the_next_start(file, monkeypatch):
    structlog.get_logger().info("old")
    monkeypatch.setattr(logs, "MAX_BYTES", 1)
    logs.set_up(file)
    structlog.get_logger().info("new")
    assert [line["event"] for line in lines(file)] == ["new"]
    assert [line["event"] for line in lines(file.with_name("nightmill.log.1"))] == ["old"]


def test_a_line_that_cannot_be_written_stops_nothing(file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logs.os, "write", full)
    structlog.get_logger().info("lost")


def test_a_place_that_cannot_be_written_is_a_fault_of_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSetting, match="log_file: "):
        logs.set_up(tmp_path / "file/nightmill.log", logging.getLevelName(logging.INFO).lower())


def test_a_secret_is_in_no_line_whatever_an_event_holds(file, shown):
    password = 'p4ss"wörd'
    logs.set_up(file, "info", shown.append, secrets=[password])
    error = ValueError(f"cannot log in with {password}")
    structlog.get_logger().error("login_failed", reason=str(error), nested={"url": f"u:{password}@h"}, exc_info=error)
    assert ("p4ss" in file.read_text(), lines(file)[0]["nested"], shown) == (
        False,
        {"url": "u:[hidden]@h"},
        ["error: login failed: reason=cannot log in with [hidden], nested={'url': 'u:[hidden]@h'}"],
    )
