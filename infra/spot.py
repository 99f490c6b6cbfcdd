"""Whether the machine will be taken away soon: a file that appears, or a page that a cloud's metadata service answers.

Understood are the pages of Amazon (`/latest/meta-data/spot/instance-action`: 404 until there is a notice), Google
(`/computeMetadata/v1/instance/preempted`: FALSE or TRUE) and Azure (`/metadata/scheduledevents`: a list of events), and
any page of your own that is there (200) once there is a notice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import structlog

log = structlog.get_logger()

TIMEOUT_S = 2.0
MOST_BYTES = 1 << 16
_HEADERS = {"Metadata-Flavor": "Google", "Metadata": "true"}
"""Google and Azure answer nobody without theirs; the others take no notice of them."""
_AMAZON = "/latest/"
_TOKEN, _TOKEN_TTL = "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds"
_ENDING = {"Preempt", "Terminate"}


def notice_source(setting: str, home: Path) -> Callable[[], str | None]:
    """What to ask: it returns the notice, or None as long as there is none.

    setting: an http(s) URL, or a file's path (a relative one is below `home`). A service that does not answer gives no
    notice.
    """
    place = urlsplit(setting)
    if place.scheme in {"http", "https"}:
        return lambda: _answer(place)
    path = home / setting
    return lambda: _content(path)


def _content(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")[:MOST_BYTES].strip() or path.name
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("notice_unread", file=str(path), reason=error.strerror)
        return None


def _answer(place: SplitResult) -> str | None:
    page = f"{place.path or '/'}?{place.query}" if place.query else place.path or "/"
    try:
        status, text = _ask(place, "GET", page, _HEADERS | _token(place))
    except (OSError, HTTPException, ValueError) as error:
        log.debug("notice_unasked", url=place.geturl(), reason=str(error))
        return None
    return _notice(text) if status == 200 else None


def _token(place: SplitResult) -> dict[str, str]:
    """Amazon's second version wants a token first; where it gives none, the page may do without."""
    if not place.path.startswith(_AMAZON):
        return {}
    status, token = _ask(place, "PUT", "/latest/api/token", {_TOKEN_TTL: "60"})
    return {_TOKEN: token} if status == 200 else {}


def _ask(place: SplitResult, method: str, page: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Directly: a proxy would answer for another machine, and a redirect leads away from the service."""
    kind = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = kind(place.netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, page, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(MOST_BYTES).decode(errors="replace")
    finally:
        connection.close()


def _notice(text: str) -> str | None:
    """None where the page is there and says that nothing is to come."""
    if text.strip().upper() == "FALSE":
        return None
    try:
        said = json.loads(text)
    except ValueError:
        return text.strip() or "notice"
    if isinstance(said, dict) and isinstance(said.get("Events"), list):
        ending = [event for event in said["Events"] if isinstance(event, dict) and event.get("EventType") in _ENDING]
        return json.dumps(ending) if ending else None
    return text.strip()
