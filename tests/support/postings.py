"""Postings of interactive requests for tests: complete, small, and each field open to an override."""

from __future__ import annotations

from jobs.model import Usage
from jobs.requests import Posting
from tests.factories import PRICE

USED = Usage(rows=1, input_tokens=10, cached_tokens=4, output_tokens=6, outcomes={"ok": 1})


def a_posting(request_id="req-a", **changes):
    posting = Posting(
        id=request_id,
        tenant="default",
        project="web",
        creator="key_a",
        tags={"team": "red"},
        model="fake",
        asked_model="gpt",
        endpoint="/v1/chat/completions",
        pool="chat",
        worker="chat-0",
        price=PRICE,
        usage=USED,
        outcome="ok",
        first_token_s=0.1,
        seconds=0.5,
        at=7.0,
    )
    return posting.evolve(**changes)
