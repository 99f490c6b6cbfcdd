"""docs/lines.md names every field that a line may have, and the endpoints are those of the batch API."""

import re
from pathlib import Path

import pytest

from infra.data.endpoints import ENDPOINTS
from infra.data.line_fields import CARRIED, MENDS, WITHOUT_EFFECT
from jobs import filing

pytestmark = pytest.mark.architecture
PAGE = Path(__file__).resolve().parents[2] / "docs/lines.md"


def test_every_field_is_on_the_page():
    words = set(re.findall(r"`([a-z_]+)`", PAGE.read_text(encoding="utf-8")))
    fields = {*MENDS}.union(*CARRIED.values(), *WITHOUT_EFFECT.values())
    assert sorted(fields - words) == []


def test_a_batch_may_name_the_endpoints_that_lines_can():
    assert tuple(ENDPOINTS) == filing.ENDPOINTS
