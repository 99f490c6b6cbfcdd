"""Which bytes a Range asks for."""

import io

import pytest

from api.rest.ranges import part_of, stream
from jobs.errors import Unavailable

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("header", "part"),
    [
        (None, None),
        ("bytes=0-", (0, 10)),
        ("bytes=3-5", (3, 6)),
        ("bytes=3-3", (3, 4)),
        ("bytes=3-99", (3, 10)),
        ("bytes=-4", (6, 10)),
        ("bytes=-99", (0, 10)),
        ("bytes=4-99999999999999999999", (4, 10)),
        ("bytes=-99999999999999999999", (0, 10)),
        ("bytes = 2 - 4", (2, 5)),
        # What the RFC lets a server treat as not asked for.
        ("bytes=5-3", None),
        ("bytes=0-1,4-5", None),
        ("lines=0-1", None),
        ("bytes=-", None),
        ("bytes=a-b", None),
    ],
)
def test_a_range_names_bytes_of_the_file(header, part):
    assert part_of(header, 10) == part


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=11-12", "bytes=-0", "bytes=99999999999999999999-"])
def test_a_range_outside_the_file_is_told_its_size(header):
    with pytest.raises(ValueError, match=r"^bytes \*/10$"):
        part_of(header, 10)


def test_a_file_that_is_shorter_than_its_record_is_not_given_as_the_whole():
    with pytest.raises(Unavailable, match="100 bytes where its record has 8000"):
        stream(io.BytesIO(b"x" * 100), 8000, None, {}, "text/plain")
