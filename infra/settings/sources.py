"""Where settings come from: command line, environment, file, default; all faults are found before any is raised."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import platformdirs

from infra.currencies import ISO_4217
from infra.hints import nearest
from infra.settings.pools import read_pools
from infra.settings.table import PREFIX, SETTINGS, Setting, Settings
from jobs.errors import BadSetting
from jobs.submit import is_tenant

CONFIG = "NIGHTMILL_CONFIG"
FOR_TESTS = "NIGHTMILL_TEST_"
"""Variables that begin so are no settings: the chaos tests steer a process with them."""
FILE_NAME = "nightmill.toml"
BEATS_PER_LEASE = 3
"""A lease must survive two lost beats."""

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PLAIN_NAMED = {"tenant", "topic_prefix"}
"""These become parts of account and topic names."""
_URI = re.compile(r"[a-z][a-z0-9+.-]*://\S*")
_DATABASE = re.compile(r"(postgres|postgresql|postgresql\+psycopg)://.+", re.DOTALL)


class _Fault(ValueError):
    """One fault of one value; the message is shown to the user after the value's name."""


# ---- values -------------------------------------------------------------------------------------


def _from_text(setting: Setting, text: str) -> Any:
    parsers: Mapping[str, Callable[[str], Any]] = {"integer": int, "number": float, "texts": _split}
    parse = parsers.get(setting.type, str)
    try:
        return _checked(setting, parse(text.strip()))
    except _Fault:
        raise
    except ValueError:
        msg = f"{text!r} is not {_a(setting.type)}"
        raise _Fault(msg) from None


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


def _from_toml(setting: Setting, value: Any) -> Any:
    if setting.type == "texts":
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            msg = f"{value!r} is no list of texts"
            raise _Fault(msg)
        return _checked(setting, tuple(value))
    wanted = {"integer": (int,), "number": (int, float)}.get(setting.type, (str,))
    if isinstance(value, bool) or not isinstance(value, wanted):
        msg = f"{value!r} is not {_a(setting.type)}"
        raise _Fault(msg)
    return _checked(setting, float(value) if setting.type == "number" else value)


def _a(type_name: str) -> str:
    return f"an {type_name}" if type_name == "integer" else f"a {type_name}"


_KINDS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "ingress_tenants": ("tenant's name", is_tenant),
    "private_hosts": ("host", re.compile(r"[A-Za-z0-9._:-]{1,253}").fullmatch),
}
"""What the values of a list are, where they are no URIs."""


def _checked_texts(setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
    kind, fits = _KINDS.get(setting.name, ("URI", _URI.fullmatch))
    for value in values:
        if not fits(value):
            msg = f"{value!r} is no {kind}"
            raise _Fault(msg)
    if len(set(values)) < len(values):
        msg = "one of its values is there twice"
        raise _Fault(msg)
    return values


def _checked(setting: Setting, value: Any) -> Any:
    if setting.type == "texts":
        return _checked_texts(setting, value)
    if setting.choices and value not in setting.choices:
        msg = f"{value!r} is not one of {', '.join(setting.choices)}"
        raise _Fault(msg)
    if setting.type in {"text", "path"} and not value.strip():
        msg = "it is empty"
        raise _Fault(msg)
    if setting.name == "currency" and value not in ISO_4217:
        msg = f"{value!r} is no currency code of ISO 4217, such as USD"
        raise _Fault(msg)
    if setting.name in _PLAIN_NAMED and not _PLAIN_NAME.fullmatch(value):
        msg = f"{value!r} is not made of letters, digits, '.', '_' and '-' (at most 100)"
        raise _Fault(msg)
    if setting.name == "database_url" and not _DATABASE.fullmatch(value):
        msg = "it does not begin with postgresql://"  # it is not repeated here: it may hold a password
        raise _Fault(msg)
    low, high = setting.low, setting.high
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        msg = f"{value:.10g} {setting.unit} is not {_range(setting)}"
        raise _Fault(msg)
    return Path(value).expanduser() if setting.type == "path" else value


def _range(setting: Setting) -> str:
    if setting.high is None:
        return f"{setting.low:.10g} or more"
    return f"between {setting.low:.10g} and {setting.high:.10g}"


# ---- sources ------------------------------------------------------------------------------------


def load(
    *,
    home: Path | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Read all sources. `home` and `config` are the command line's. Raises BadSetting, naming every fault."""
    faults: list[str] = []
    values = dict(_read_environment(environ, faults))
    if home is not None:
        values["home"] = home
    named = config or (Path(environ[CONFIG]) if environ.get(CONFIG) else None)
    file = named or values.get("home", _default_home()) / FILE_NAME
    if named or file.is_file():
        from_file = dict(_read_file(file, faults))
        if "home" in from_file and named is None:
            faults.append(f"home: it cannot be set in {file}, which was found through it")
        from_file["home"] = file.parent / from_file.get("home", _default_home())
        values = from_file | values
    settings = _made(values)
    faults.extend(_faults_between(settings))
    if faults:
        raise BadSetting(reason="; ".join(faults), faults=tuple(faults))
    return settings


def _made(values: Mapping[str, Any]) -> Settings:
    settings = Settings(**{"home": _default_home(), **values})
    home = Path(os.path.normpath(settings.home.expanduser().absolute()))  # one spelling: owners of leases carry it
    return settings.evolve(home=home, log_file=home / settings.log_file)


def _default_home() -> Path:
    return Path(platformdirs.user_data_path("nightmill", appauthor=False))


def _read_environment(environ: Mapping[str, str], faults: list[str]) -> Iterator[tuple[str, Any]]:
    by_variable = {setting.variable: setting for setting in SETTINGS}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable == CONFIG or variable.startswith(FOR_TESTS):
            continue
        setting = by_variable.get(variable)
        if setting is None:
            faults.append(_unknown(variable, by_variable, "the environment variable"))
            continue
        try:
            yield setting.name, _from_text(setting, environ[variable])
        except _Fault as fault:
            faults.append(f"{variable}: {fault}")


def _read_file(file: Path, faults: list[str]) -> Iterator[tuple[str, Any]]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(f"{file}: {error.strerror or error}")
        return
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        faults.append(f"{file} is not TOML: {error}")
        return
    for name, value in found.items():
        if name == "pools":
            in_file: list[str] = []
            yield name, read_pools(value, in_file)
            faults.extend(f"{file}: {fault}" for fault in in_file)
            continue
        if name not in _BY_NAME:
            faults.append(_unknown(name, _BY_NAME, f"{file}: the setting"))
            continue
        try:
            yield name, _from_toml(_BY_NAME[name], value)
        except _Fault as fault:
            faults.append(f"{file}: {name}: {fault}")


def _unknown(name: str, known: Mapping[str, Setting], what: str) -> str:
    near = nearest(name, known)
    return f"{what} {name} is not known" + (f"; did you mean {near}?" if near else "")


def _faults_between(settings: Settings) -> Iterator[str]:
    if settings.kafka_security.startswith("SASL_"):
        for name in ("kafka_username", "kafka_password"):
            if not getattr(settings, name):
                yield f"{name}: it is not set, and kafka_security is {settings.kafka_security}"
    if settings.lease_s < BEATS_PER_LEASE * settings.beat_s:
        yield (
            f"lease_s: {settings.lease_s:g} seconds is less than {BEATS_PER_LEASE} beats of "
            f"{settings.beat_s:g} seconds (beat_s)"
        )
