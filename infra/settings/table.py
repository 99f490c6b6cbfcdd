"""The table of settings: a field of `Settings` is a line of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jobs.model import Value

PREFIX = "NIGHTMILL_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Value):
    """A line of the table. type: "text", "path", "integer" or "number"; low, high: the range, ends included."""

    name: str
    type: str
    default: Any
    shown_default: str
    unit: str
    help: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


def _setting(
    default: Any,
    help: str,  # noqa: A002 - the table's own word
    unit: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    shown_default: str = "",
) -> Any:
    shown = shown_default or f"{default:_}" if isinstance(default, int) else shown_default or str(default)
    rest = {"help": help, "unit": unit, "low": low, "high": high, "choices": choices, "shown_default": shown}
    return field(default=default, metadata=rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Value):
    """The table itself: a field is a setting. `home` and `log_file` are absolute once loaded."""

    home: Path = _setting(
        Path(),
        "Data directory: database, models, staged rows and logs. Not to be set in the file that lies in it.",
        shown_default="the platform's data directory (Linux: `~/.local/share/nightmill`)",
    )
    tenant: str = _setting("default", "Tenant that pays when a command names none.")
    currency: str = _setting("USD", "Currency of the book's prices and postings.", "ISO 4217 code")
    topic_prefix: str = _setting("nightmill", "First part of every topic's name.")

    lease_s: float = _setting(30.0, "How long a worker holds a task without a beat.", "seconds", low=1, high=3600)
    beat_s: float = _setting(
        2.0, "How often a worker renews its leases and learns of pause and cancel.", "seconds", low=0.05, high=600
    )
    task_open_s: float = _setting(
        60.0, "After so long a task commits its finished rows and leaves the others.", "seconds", low=1, high=86_400
    )
    drain_grace_s: float = _setting(
        10.0, "How long rows in the engine may still finish after Ctrl-C.", "seconds", low=0, high=3600
    )
    pause_min_rows: int = _setting(200, "Rows to see before --pause-on may pause a job.", "rows", low=1)

    segment_rows: int = _setting(200_000, "Input that is planned at once, at most.", "rows", low=1)
    segment_mib: int = _setting(64, "Input that is planned at once, at most.", "MiB uncompressed", low=1, high=4096)
    task_seconds: float = _setting(
        30.0,
        "Work of one worker that a task should be, where the model's speed is known.",
        "seconds",
        low=0.1,
        high=3600,
    )
    task_max_rows: int = _setting(4096, "Size of a task, at most.", "rows", low=1, high=1_000_000)
    task_max_tokens: int = _setting(2_000_000, "Size of a task, at most.", "estimated tokens", low=1)
    task_max_mib: int = _setting(64, "Size of a task's input, at most.", "MiB", low=1, high=4096)

    hang_timeout_s: float = _setting(
        120.0,
        "Rows in the engine and no token moved for so long: it hangs and is ended.",
        "seconds",
        low=1,
        high=86_400,
    )
    engine_start_timeout_s: float = _setting(
        1800.0,
        "How long an engine may take to start; big weights on a slow disk take minutes.",
        "seconds",
        low=1,
        high=86_400,
    )
    kv_cache_gib: int = _setting(2, "Memory for the KV cache where the engine runs on a CPU.", "GiB", low=1, high=4096)

    s3_endpoint: str = _setting(
        "",
        "URL of the S3 server.",
        shown_default="what the AWS tools' settings say (`AWS_ENDPOINT_URL_S3`), else Amazon's",
    )
    s3_region: str = _setting(
        "", "Region of the buckets.", shown_default="what the AWS tools' settings say (`AWS_DEFAULT_REGION`)"
    )
    s3_path_style: str = _setting(
        "auto",
        "Whether a bucket's name stands in the path instead of the host name; `auto`: where `s3_endpoint` is set.",
        choices=("auto", "yes", "no"),
    )
    s3_attempts: int = _setting(
        8, "How often a request to S3 is made before it counts as failed; the pauses double.", low=1, high=100
    )
    s3_timeout_s: float = _setting(30.0, "How long S3 may be silent within a request.", "seconds", low=1, high=3600)

    min_free_mib: int = _setting(512, "Below so much free disk `nightmill doctor` warns.", "MiB", low=0)
    log_level: str = _setting(
        "info", "Least urgent event that is logged.", choices=("debug", "info", "warning", "error")
    )
    log_file: Path = _setting(
        Path("logs/nightmill.log"), "Where events are logged, as JSON lines; a relative path is below `home`."
    )

    @property
    def database(self) -> Path:
        """The SQLite file (named by infra.sql)."""
        return self.home / "nightmill.db"

    @property
    def objects(self) -> Path:
        """Staged rows and what else is not the user's."""
        return self.home / "objects"

    @property
    def scratch(self) -> Path:
        """Files on their way to somewhere else."""
        return self.home / "scratch"

    @property
    def models(self) -> Path:
        """Where prepared models lie."""
        return self.home / "models"

    @property
    def models_file(self) -> Path:
        """The model registry."""
        return self.home / "models.toml"

    @property
    def logs(self) -> Path:
        """The folder of the log and of the engines' own output."""
        return self.log_file.parent


_TYPES = {"str": "text", "Path": "path", "int": "integer", "float": "number"}

SETTINGS: tuple[Setting, ...] = tuple(
    Setting(name=f.name, type=_TYPES[str(f.type)], default=f.default, **f.metadata) for f in fields(Settings)
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
