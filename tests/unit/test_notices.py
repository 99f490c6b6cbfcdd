"""workers/notices.py: a worker leaves once."""

import pytest

from workers.notices import Notice

pytestmark = pytest.mark.unit


def test_the_first_notice_lets_the_worker_leave_and_no_further_one_is_looked_for():
    said, left = [None, None, "at noon", "at noon"], []
    notice = Notice(look=lambda: said.pop(0), leave=lambda: left.append("left"))
    for _ in range(5):
        notice.step()
    assert (left, said) == (["left"], ["at noon"])
