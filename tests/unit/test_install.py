"""infra/deploy/install.py: what it says before it downloads anything."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

SCRIPT = Path(__file__).resolve().parents[2] / "infra/deploy/install.py"
spec = importlib.util.spec_from_file_location("nightmill_install", SCRIPT)
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (("Linux", "x86_64", ("glibc", "2.36")), None),
        (("Linux", "aarch64", ("glibc", "2.31")), None),
        (("Darwin", "arm64", ("", "")), "macOS"),
        (("Windows", "AMD64", ("", "")), "Windows"),
        (("Linux", "riscv64", ("glibc", "2.39")), "riscv64"),
        (("Linux", "x86_64", ("", "")), "musl"),
        (("Linux", "x86_64", ("glibc", "2.28")), "2.28"),
    ],
)
def test_a_machine_without_an_engine_wheel_is_told_why(machine, expected):
    reason = install.why_no_wheel(*machine)
    assert (reason is None) if expected is None else (expected in reason)


def installer(tmp_path, *, engine="cpu", dev=False):
    return install.Installer(tmp_path / ".venv", engine=engine, dev=dev, goal="demo")


def test_without_a_wheel_it_offers_docker_and_the_fake_engine_and_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(install.platform, "system", lambda: "Darwin")
    with pytest.raises(install.Failed) as refused:
        installer(tmp_path).run()
    assert "Nothing was downloaded" in str(refused.value)
    assert "docker run" in str(refused.value)
    assert "make demo ENGINE=fake" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named_before_the_download(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "why_no_wheel", lambda *_: None)
    usage = install.shutil.disk_usage(tmp_path)._replace(free=2_000_000_000)
    monkeypatch.setattr(install.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(install.Failed, match=r"6 GB.*2\.0 GB"):
        installer(tmp_path).run()


def test_the_fake_engine_installs_neither_torch_nor_the_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(install.platform, "system", lambda: "Darwin")
    setup, commands = installer(tmp_path, engine="fake"), []
    monkeypatch.setattr(setup, "make_venv", setup.venv.mkdir)
    monkeypatch.setattr(setup, "step", lambda title, command, **_: commands.append(f"{title}: {command}") or True)
    setup.run()
    assert [text for text in commands if "engine.txt" in text or "torch" in text] == []
    assert "core.txt" in commands[0]


def test_a_second_run_does_nothing(tmp_path, monkeypatch):
    setup = installer(tmp_path, engine="fake")
    setup.python.parent.mkdir(parents=True)
    setup.python.symlink_to(sys.executable)
    commands = []
    monkeypatch.setattr(setup, "step", lambda title, *_, **__: commands.append(title) or True)
    setup.run()
    first = list(commands)
    setup.run()
    assert commands == first
    assert not installer(tmp_path, engine="cpu").is_done()


def test_where_pip_has_no_cpu_torch_uv_is_tried(tmp_path, monkeypatch):
    setup, titles = installer(tmp_path), []

    def step(title, command, **_):
        titles.append(title)
        return "as it is configured" not in title

    monkeypatch.setattr(setup, "step", step)
    setup.install_torch()
    assert titles == [
        "installing torch (CPU build) by pip as it is configured",
        "installing uv",
        "installing torch by uv",
    ]


@pytest.mark.parametrize(
    ("version", "engine", "fits"),
    [
        ((3, 10), "cpu", False),
        ((3, 11), "cpu", True),
        ((3, 15), "cpu", False),
        ((3, 15), "fake", True),
        (None, "cpu", False),
    ],
)
def test_only_pythons_with_wheels_fit(tmp_path, version, engine, fits):
    assert installer(tmp_path, engine=engine).fits(version) is fits


def test_an_interpreter_that_does_not_run_has_no_version(tmp_path):
    assert install.version_of(str(tmp_path / "python3.99")) is None
