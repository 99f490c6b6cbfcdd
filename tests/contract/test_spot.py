"""infra/spot.py: how a worker learns that its machine goes: a file, or a metadata service as a cloud describes it."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.spot import notice_source

pytestmark = pytest.mark.contract

ACTION = json.dumps({"action": "terminate", "time": "2026-11-29T20:00:00Z"})
EVENTS = {"DocumentIncarnation": 2, "Events": [{"EventId": "1", "EventType": "Preempt", "Resources": ["vm-1"]}]}
REBOOT = {"DocumentIncarnation": 1, "Events": [{"EventId": "0", "EventType": "Reboot", "Resources": ["vm-1"]}]}


class Metadata(BaseHTTPRequestHandler):
    """Answers what the server's `pages` say: path → (needed headers, status, text)."""

    def _answer(self):
        needed, status, text = self.server.pages.get((self.command, self.path), ({}, 404, "Not Found"))
        if any(self.headers.get(name) != value for name, value in needed.items()):
            status, text = 401, "Unauthorized"
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_PUT = _answer  # noqa: N815 - the handler's own names

    def log_message(self, *_):
        pass


@contextmanager
def metadata():
    """Yields (its address, its pages)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.pages = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", server.pages
    server.shutdown()
    server.server_close()


def test_a_file_is_a_notice_once_it_is_there(tmp_path):
    look = notice_source("going", tmp_path)
    before = look()
    (tmp_path / "going").write_text("at noon\n")
    assert (before, look()) == (None, "at noon")
    (tmp_path / "going").write_text("")
    assert (look(), notice_source(str(tmp_path / "going"), tmp_path / "elsewhere")()) == ("going", "going")


def test_amazons_page_is_asked_with_a_token_and_there_only_with_a_notice(tmp_path):
    with metadata() as (address, pages):
        pages["PUT", "/latest/api/token"] = ({"X-aws-ec2-metadata-token-ttl-seconds": "60"}, 200, "t0k")
        look = notice_source(f"{address}/latest/meta-data/spot/instance-action", tmp_path)
        before = look()
        pages["GET", "/latest/meta-data/spot/instance-action"] = ({"X-aws-ec2-metadata-token": "t0k"}, 200, ACTION)
        assert (before, look()) == (None, ACTION)


def test_amazons_first_version_needs_no_token(tmp_path):
    with metadata() as (address, pages):
        pages["GET", "/latest/meta-data/spot/instance-action"] = ({}, 200, ACTION)
        assert notice_source(f"{address}/latest/meta-data/spot/instance-action", tmp_path)() == ACTION


def test_googles_page_says_true_or_false(tmp_path):
    page = "/computeMetadata/v1/instance/preempted"
    with metadata() as (address, pages):
        look = notice_source(address + page, tmp_path)
        pages["GET", page] = ({"Metadata-Flavor": "Google"}, 200, "FALSE")
        before = look()
        pages["GET", page] = ({"Metadata-Flavor": "Google"}, 200, "TRUE")
        assert (before, look()) == (None, "TRUE")


def test_azures_page_lists_events_of_which_only_some_end_the_machine(tmp_path):
    page = "/metadata/scheduledevents?api-version=2020-07-01"
    with metadata() as (address, pages):
        look = notice_source(address + page, tmp_path)
        pages["GET", page] = ({"Metadata": "true"}, 200, json.dumps(REBOOT))
        before = look()
        pages["GET", page] = ({"Metadata": "true"}, 200, json.dumps(EVENTS))
        assert (before, look()) == (None, json.dumps(EVENTS["Events"]))


def test_a_service_that_does_not_answer_gives_no_notice(tmp_path):
    with metadata() as (address, _):
        pass
    assert notice_source(address, tmp_path)() is None
