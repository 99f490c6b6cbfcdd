"""File locks inside one process; what other processes see is in tests/contract/test_two_processes.py."""

import os
import threading

import pytest

from infra.locks import FileLock, LockTaken, OwnerLock
from jobs.errors import Refused

pytestmark = pytest.mark.unit


@pytest.fixture
def locks(tmp_path):
    return OwnerLock(tmp_path)


def test_an_owner_lives_while_its_lock_is_held(locks, tmp_path):
    assert (locks.is_alive("w"), locks.pid_of("w")) == (False, None)
    with locks.hold("w", ["job-a"]) as held:
        assert (locks.is_alive("w"), locks.pid_of("w")) == (True, os.getpid())
        held.write("job-a job-b")
        assert held.path.read_text() == f"{os.getpid()}\njob-a job-b"
    assert not locks.is_alive("w")
    assert list((tmp_path / "owners").iterdir()) == []


def test_a_name_is_claimed_once(locks):
    with locks.claim("job-a"):
        assert locks.holder_of("job-a") == os.getpid()
        with pytest.raises(LockTaken) as caught:
            locks.claim("job-a")
        assert (caught.value.name, caught.value.pid) == ("job-a", os.getpid())
        locks.claim("job-b").close()
    locks.claim("job-a").close()


def test_what_dead_owners_left_is_swept(locks, tmp_path):
    (tmp_path / "owners").mkdir()
    (tmp_path / "owners/dead.lock").write_text("1\n")
    with locks.hold("alive"):
        with locks.hold("second"):
            assert sorted(path.stem for path in (tmp_path / "owners").iterdir()) == ["alive", "second"]
        assert locks.is_alive("alive")


def test_probing_never_makes_a_claim_fail(locks):
    stop = threading.Event()

    def probe():
        while not stop.is_set():
            locks.holder_of("job-a")

    probes = [threading.Thread(target=probe) for _ in range(2)]
    for thread in probes:
        thread.start()
    for _ in range(200):
        locks.claim("job-a").close()
    stop.set()
    for thread in probes:
        thread.join()


def test_closing_twice_is_fine(tmp_path):
    lock = FileLock(tmp_path / "x.lock")
    lock.close()
    lock.close()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 201])
def test_a_name_that_is_no_file_name_is_refused(locks, name):
    with pytest.raises(Refused):
        locks.claim(name)
