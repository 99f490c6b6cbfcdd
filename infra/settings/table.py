"""The table of settings: a field of `Settings` is a line of it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jobs.model import Value
from jobs.pools import Pool

PREFIX = "NIGHTMILL_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Value):
    """A line of the table. type: text, texts, path, integer or number; low, high: the range, ends included."""

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
    secret: bool = False,
) -> Any:
    """secret: it is left out of the repr."""
    shown = shown_default or f"{default:_}" if isinstance(default, int) else shown_default or str(default)
    rest = {"help": help, "unit": unit, "low": low, "high": high, "choices": choices, "shown_default": shown}
    return field(default=default, metadata=rest, repr=not secret)


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

    environment_file: Path = _setting(
        Path(),
        "File of `NAME=value` lines that commands add to their environment, where it lacks them: passwords, "
        "credentials of stores, Ray's token. A relative path is below `home`.",
        shown_default="none",
    )
    database_url: str = _setting(
        "",
        "URL of a PostgreSQL database for jobs, tasks and ledger, as `postgresql://USER@HOST/NAME`; a password is "
        "better kept in `PGPASSWORD` or `~/.pgpass`.",
        shown_default="SQLite in the data directory",
        secret=True,
    )
    database_connections: int = _setting(
        8, "Connections to PostgreSQL that a process holds, at most.", "connections", low=2, high=1000
    )
    database_statement_s: float = _setting(
        30.0, "How long a statement may run on PostgreSQL.", "seconds", low=1, high=3600
    )
    database_retry_s: float = _setting(
        10.0,
        "How long a transaction is tried again on PostgreSQL while it restarts, fails over or breaks a deadlock.",
        "seconds",
        low=0,
        high=3600,
    )

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

    objects: str = _setting(
        "objects",
        "Where staged rows and the like lie, under `tenants/TENANT/`: a folder (a relative path is below `home`) or an "
        "`s3://` URI, which every process of a cluster must reach. Not to be changed while a job is open.",
    )
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
        8, "How often S3 is asked before a request counts as failed; the pauses double.", "attempts", low=1, high=100
    )
    s3_timeout_s: float = _setting(30.0, "How long S3 may be silent within a request.", "seconds", low=1, high=3600)

    pool_lower_share: float = _setting(
        0.1,
        "Share of a pool's releases and seats that waiting jobs of lower priority have beside more urgent ones.",
        "share",
        low=0.01,
        high=0.5,
    )
    request_wait_s: float = _setting(
        2.0,
        "How long an interactive request may wait for a worker to begin with it; where it would take longer it is "
        "refused at once, with the time after which to ask again.",
        "seconds",
        low=0,
        high=600,
    )
    pool_idle_s: float = _setting(
        300.0, "After so long without work a pool shrinks to its least number of workers.", "seconds", low=1
    )
    pool_backlog_s: float = _setting(
        300.0, "A pool grows until its workers would do what waits in this time.", "seconds", low=1
    )
    worker_backoff_s: float = _setting(
        60.0, "Longest pause before a worker that died is replaced; it begins at 1 second.", "seconds", low=1
    )
    spot_notice: str = _setting(
        "",
        "Where a worker learns that its machine will be taken away, so that it drains in time: a file that appears (a "
        "relative path is below `home`), or a URL, as of a cloud's metadata service (docs/operations.md).",
        shown_default="nowhere",
    )
    spot_poll_s: float = _setting(5.0, "How often it looks there.", "seconds", low=0.1, high=600)
    ray_address: str = _setting(
        "auto",
        "Ray cluster of `nightmill up --cluster`: `auto` for the one that runs on this machine, or `HOST:PORT`.",
    )

    kafka_bootstrap: str = _setting(
        "",
        "Kafka brokers to begin with, as `host:port,host:port`.",
        shown_default="none: topics are kept in the data directory",
    )
    kafka_client_id: str = _setting("nightmill", "How Nightmill names itself to Kafka.")
    kafka_security: str = _setting(
        "PLAINTEXT",
        "How Kafka is reached: SSL encrypts, SASL logs in.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    kafka_sasl_mechanism: str = _setting(
        "SCRAM-SHA-512", "How Nightmill logs in to Kafka.", choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    )
    kafka_username: str = _setting("", "Who logs in to Kafka.", shown_default="none")
    kafka_password: str = _setting(
        "", "Its password; better in the environment than in a file.", shown_default="none", secret=True
    )
    kafka_ca: Path = _setting(
        Path(), "PEM file with the certificates that vouch for Kafka's.", shown_default="the machine's own"
    )
    kafka_cert: Path = _setting(Path(), "PEM file with the certificate that shows who we are.", shown_default="none")
    kafka_key: Path = _setting(Path(), "PEM file with that certificate's key.", shown_default="none")
    kafka_key_password: str = _setting("", "What that file is encrypted with.", shown_default="none", secret=True)
    kafka_check_hostname: str = _setting(
        "yes", "Whether Kafka's certificate must be for the name it was reached by.", choices=("yes", "no")
    )
    kafka_partitions: int = _setting(
        4, "Partitions of a topic that is made: the most dispatchers a pool will have.", "partitions", low=1, high=1000
    )
    kafka_replication: int = _setting(
        0,
        "Replicas of a topic that is made; 0: 3 where there are three brokers, else 1.",
        "replicas",
        low=0,
        high=32,
    )
    kafka_retention_s: float = _setting(
        86_400.0, "How long a topic that is made keeps a message.", "seconds", low=60, high=31_536_000
    )
    kafka_publish_timeout_s: float = _setting(
        10.0, "A message that Kafka has not stored after so long is sent again later.", "seconds", low=1, high=300
    )
    kafka_answer_timeout_s: float = _setting(
        10.0, "How long Kafka may take to be reached or to answer a question.", "seconds", low=1, high=300
    )
    kafka_session_s: float = _setting(
        10.0, "A dispatcher of which Kafka hears nothing for so long loses its partitions.", "seconds", low=6, high=300
    )
    kafka_max_poll_s: float = _setting(
        60.0, "So does one that has not polled for so long.", "seconds", low=6, high=3600
    )

    ingress_tenants: tuple[str, ...] = _setting(
        (),
        "Tenants for whom other systems may submit jobs by a message on `<topic_prefix>.submit.<tenant>`.",
        shown_default="none",
    )
    ingress_inputs: tuple[str, ...] = _setting(
        ("s3://",),
        "What such a submission may read: beginnings of URIs, as `s3://catalog/` or `file:///srv/in/`.",
        shown_default="s3://",
    )
    ingress_outputs: tuple[str, ...] = _setting(
        ("s3://",), "Where such a submission may write its results: beginnings of URIs.", shown_default="s3://"
    )

    metrics_port: int = _setting(
        -1,
        "First port on which a process shows its figures to Prometheus, under `/metrics`: it takes the first free one "
        "from here on. 0: none.",
        "port",
        low=0,
        high=65_535,
        shown_default="9464 for what stays up, 0 for commands that run one job",
    )
    metrics_bind: str = _setting(
        "127.0.0.1",
        "Address on which they are shown. Who can reach it can read them: `0.0.0.0` only where a firewall says who.",
    )

    up_processes: int = _setting(
        2,
        "Processes of `nightmill up` without a cluster, beside those of engines. 1: what schedules and keeps batches "
        "shares the one of API and workers, which takes less memory and lets fewer small batches through.",
        "processes",
        low=1,
        high=2,
    )
    one_core: str = _setting(
        "yes",
        "Whether each process of `nightmill up` keeps to one core: more small batches go through. "
        "Never beside an engine that computes on the CPU, nor with more than 4 workers.",
        choices=("yes", "no"),
    )
    api_host: str = _setting("127.0.0.1", "Address that the REST API listens on; `0.0.0.0` for all of the machine's.")
    api_port: int = _setting(8000, "Its port; 0 for any that is free.", "port", low=0, high=65_535)
    api_replicas: int = _setting(
        2, "Processes that serve it on a cluster, behind one address; 0: none.", "processes", low=0, high=1000
    )
    max_upload_mib: int = _setting(16_384, "Size of an uploaded file, at most.", "MiB", low=1)
    max_body_mib: int = _setting(16, "Size of the body of any other request, at most.", "MiB", low=1, high=4096)
    max_batch_lines: int = _setting(5_000_000, "Requests of a batch, at most.", "lines", low=1)
    file_expires_s: float = _setting(
        0.0, "After so long an uploaded file expires, where the upload does not say; 0: never.", "seconds", low=0
    )
    idempotency_keep_s: float = _setting(
        86_400.0, "How long the answer to an idempotency key is remembered.", "seconds", low=60
    )
    sweep_every_s: float = _setting(
        3600.0,
        "How often what is up deletes the bytes of files that were deleted or have expired; 0: only `nightmill sweep` "
        "does.",
        "seconds",
        low=0,
    )
    request_timeout_s: float = _setting(
        60.0, "How long the API may take for a request that is no upload, download or stream.", "seconds", low=1
    )
    generation_timeout_s: float = _setting(
        600.0,
        "How long a model may take for an answer over the API, a stream or not; then it is ended, and charged so far.",
        "seconds",
        low=1,
    )
    client_idle_s: float = _setting(
        30.0, "How long a client may neither send nor take anything within a request.", "seconds", low=1
    )
    stop_grace_s: float = _setting(
        10.0, "How long requests may still end when the API is told to stop.", "seconds", low=0, high=3600
    )

    max_input_rows: int = _setting(
        1_000_000_000, "Rows that a tenant's Parquet input may have, over REST or by a topic.", "rows", low=1
    )
    max_input_columns: int = _setting(
        2000, "Columns that it may have, the leaves of nested ones counted.", "columns", low=1
    )
    max_input_gib: int = _setting(4096, "What its pages may come to, unpacked.", "GiB", low=1)
    look_memory_mib: int = _setting(
        1024, "Memory that the process may take which looks at it first.", "MiB", low=64, high=1_048_576
    )
    look_timeout_s: float = _setting(
        60.0, "How long that may take, beside a second for each 50 MiB of it.", "seconds", low=1, high=86_400
    )

    private_hosts: tuple[str, ...] = _setting(
        (),
        "Hosts that webhooks may call though their addresses are not public, as `hooks.internal` or `10.0.0.7`.",
        shown_default="none",
    )
    webhook_timeout_s: float = _setting(
        15.0, "How long an endpoint of a webhook may take for its answer.", "seconds", low=0.1, high=60
    )
    seal_key: str = _setting(
        "",
        "Base64 of 32 bytes with which stored secrets of webhooks are encrypted; better in the environment than in a "
        "file. Every node of a cluster needs the same.",
        shown_default="one that follows from the data directory's `secret`",
        secret=True,
    )

    min_free_mib: int = _setting(512, "Below so much free disk `nightmill doctor` warns.", "MiB", low=0)
    log_level: str = _setting(
        "info", "Least urgent event that is logged.", choices=("debug", "info", "warning", "error")
    )
    log_file: Path = _setting(
        Path("logs/nightmill.log"), "Where events are logged, as JSON lines; a relative path is below `home`."
    )

    pools: tuple[Pool, ...] = ()
    """Tables of the file, not a line of this table: see infra/settings/pools.py."""

    @property
    def database(self) -> Path:
        """The SQLite file (named by infra.sql), where there is no `database_url`."""
        return self.home / "nightmill.db"

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


_TYPES = {"tuple[str, ...]": "texts", "str": "text", "Path": "path", "int": "integer", "float": "number"}

SETTINGS: tuple[Setting, ...] = tuple(
    Setting(name=f.name, type=_TYPES[str(f.type)], default=f.default, **f.metadata)
    for f in fields(Settings)
    if f.metadata
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
