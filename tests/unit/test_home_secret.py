"""The data directory's secret."""

import stat

import pytest

from infra.home_secret import home_secret
from jobs.errors import StorageCorrupt

pytestmark = pytest.mark.unit


def test_it_is_made_once_and_private(tmp_path):
    first = home_secret(tmp_path / "home")
    assert (len(first), home_secret(tmp_path / "home")) == (32, first)
    assert [file.name for file in (tmp_path / "home").iterdir()] == ["secret"]
    assert stat.S_IMODE((tmp_path / "home/secret").stat().st_mode) == 0o600


def test_two_homes_have_two_secrets(tmp_path):
    assert home_secret(tmp_path / "a") != home_secret(tmp_path / "b")


def test_a_cut_file_is_noticed(tmp_path):
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(StorageCorrupt, match="5 bytes instead of 32"):
        home_secret(tmp_path)
