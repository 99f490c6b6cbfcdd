# ruff: noqa: PLC0415 - what a command does not use is not imported
"""The data directory opened: every embedded adapter behind its port, each made when it is first asked for.

Imports stand inside the methods: `nightmill status` must not wait for what only a run needs.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from infra import logs
from infra.settings import Settings
from infra.settings.secrets import secrets_of
from jobs.model import Model
from jobs.plan import PlanPolicy
from jobs.pools import Pool
from jobs.ports.clock import Clock, Ids
from jobs.ports.intake import Tokenizer
from jobs.ports.objects import Objects
from jobs.ports.planning import Publisher, SegmentPlanner
from jobs.ports.queue import Queue
from jobs.ports.rows import PartSink, RowSource

if TYPE_CHECKING:
    from infra.data.intake import DataIntake
    from infra.data.results import Results
    from infra.data.wiring import DataSide
    from infra.engines.making import Making
    from infra.limits import RateLimits
    from infra.locks import OwnerLock
    from infra.models.registry import Registry
    from infra.queue.kafka_policy import KafkaPolicy
    from infra.sql import SqlStore
    from infra.web.outward import Outward

MIB = 1 << 20


class Home:
    """One data directory. `close` it; what was never asked for was never opened."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    # ---- clocks, names, locks -------------------------------------------------------------------

    @cached_property
    def clock(self) -> Clock:
        from infra.clocks import SystemClock

        return SystemClock()

    @cached_property
    def ids(self) -> Ids:
        from infra.clocks import SystemIds

        return SystemIds()

    @cached_property
    def locks(self) -> OwnerLock:
        """Who is alive, and who has which name."""
        from infra.locks import OwnerLock

        return OwnerLock(self.settings.home)

    # ---- the truth, the queue, objects ----------------------------------------------------------

    @cached_property
    def store(self) -> SqlStore:
        """The database, migrated to this release's schema."""
        from infra.sql import PostgresPolicy, open_store

        settings = self.settings
        policy = PostgresPolicy(
            connections=settings.database_connections,
            statement_s=settings.database_statement_s,
            retry_s=settings.database_retry_s,
        )
        return open_store(settings.database_url or settings.home, clock=self.clock, policy=policy)

    @cached_property
    def limiter(self) -> RateLimits:
        """The rate limits of interactive requests, shared through the database."""
        from infra.limits import RateLimits

        return RateLimits(self.store, self.clock, self.ids.token())

    @cached_property
    def broker(self) -> Queue:
        """The topics: Kafka's where the settings name a broker, else the data directory's own."""
        if self.settings.kafka_bootstrap:
            from infra.queue.kafka import open_kafka

            return open_kafka(self._kafka_policy())
        from infra.queue import open_queue

        return open_queue(self.settings.home, clock=self.clock, ids=self.ids)

    def _kafka_policy(self) -> KafkaPolicy:
        from infra.queue.kafka_policy import KafkaPolicy, Security

        settings = self.settings
        security = Security(
            protocol=settings.kafka_security,
            mechanism=settings.kafka_sasl_mechanism,
            username=settings.kafka_username,
            password=settings.kafka_password,
            ca=self._file(settings.kafka_ca),
            cert=self._file(settings.kafka_cert),
            key=self._file(settings.kafka_key),
            key_password=settings.kafka_key_password,
            check_hostname=settings.kafka_check_hostname == "yes",
        )
        return KafkaPolicy(
            bootstrap=settings.kafka_bootstrap,
            client_id=settings.kafka_client_id,
            security=security,
            partitions=settings.kafka_partitions,
            replication=settings.kafka_replication,
            retention_s=settings.kafka_retention_s,
            publish_s=settings.kafka_publish_timeout_s,
            answer_s=settings.kafka_answer_timeout_s,
            session_s=settings.kafka_session_s,
            max_poll_s=settings.kafka_max_poll_s,
        )

    def _file(self, setting: Path) -> Path | None:
        """A relative path is below the data directory; an empty one is none."""
        return None if setting == Path() else self.settings.home / setting

    @cached_property
    def objects(self) -> Objects:
        """Every store; a URI's scheme chooses."""
        from infra.objects import S3Options, open_objects

        settings = self.settings
        s3 = S3Options(
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            path_style=settings.s3_path_style,
            attempts=settings.s3_attempts,
            timeout_s=settings.s3_timeout_s,
        )
        more = {"db": lambda: self.store.objects(settings.scratch)}
        return open_objects(scratch=settings.scratch, s3=s3, more=more)

    @property
    def own_objects(self) -> str:
        """URI of the folder of what is not the user's."""
        where = self.settings.objects
        return where if "://" in where else (self.settings.home / where).as_uri()

    # ---- models ---------------------------------------------------------------------------------

    @cached_property
    def registry(self) -> Registry:
        """The models."""
        from infra.models.registry import Registry

        return Registry(self.settings.models_file, self.settings.models)

    def example_prices(self, *models: str) -> None:
        """Give those of the models that are shipped and have no price their example price."""
        from infra.models.prices import ensure_example_prices

        ensure_example_prices(self.store, models, self.settings.currency)

    def tokenizer(self, model: Model) -> Tokenizer:
        """The model's own, where it is at hand."""
        from infra.models.tokenizer import tokenizer_of

        return tokenizer_of(model)

    def context_length(self, model: Model) -> int | None:
        """Tokens of prompt and output together, as the model's files say."""
        from infra.models.registry import context_length

        return context_length(model)

    @property
    def making(self) -> Making:
        """How engines are made."""
        from infra.engines.making import Making

        settings = self.settings
        return Making(
            logs=settings.logs,
            cpu_kv_cache_gib=settings.kv_cache_gib,
            hang_timeout_s=settings.hang_timeout_s,
            start_timeout_s=settings.engine_start_timeout_s,
        )

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The declared pools, or those that `nightmill up` made for the models at hand."""
        from infra.standing import load_pools

        return self.settings.pools or load_pools(self.settings.home)

    # ---- rows -----------------------------------------------------------------------------------

    @cached_property
    def data(self) -> DataSide:
        """Planner, row source and part sink."""
        from infra.data.wiring import data_side
        from infra.home_secret import home_secret

        return data_side(
            self.objects,
            home=self.own_objects,
            secret=home_secret(self.settings.home),
            files=self.store.files,
            policy=self._plan_policy(),
        )

    def _plan_policy(self) -> PlanPolicy:
        settings = self.settings
        return PlanPolicy(
            task_s=settings.task_seconds,
            max_rows=settings.task_max_rows,
            max_tokens=settings.task_max_tokens,
            max_bytes=settings.task_max_mib * MIB,
            segment_rows=settings.segment_rows,
            segment_bytes=settings.segment_mib * MIB,
        )

    @property
    def planner(self) -> SegmentPlanner:
        return self.data.planner

    @property
    def rows(self) -> RowSource:
        return self.data.source

    @property
    def sink(self) -> PartSink:
        return self.data.sink

    @cached_property
    def publisher(self) -> Publisher:
        """Publishes result folders."""
        from infra.data.publish import FolderPublisher

        return FolderPublisher(self.objects, self.data.jobs)

    @cached_property
    def results(self) -> Results:
        """Reads results back."""
        from infra.data.results import Results

        return Results(self.objects, self.data.jobs, parts=self.store.parts)

    @cached_property
    def intake(self) -> DataIntake:
        """Looks at a request's input before anything starts."""
        from infra.data.intake import DataIntake
        from infra.data.line_rules import ModelFacts
        from infra.data.look import LookPolicy
        from infra.models.registry import embedding_size, embedding_sizes
        from infra.models.tokenizer import shows_tools

        settings = self.settings
        settings.scratch.mkdir(parents=True, exist_ok=True)
        return DataIntake(
            self.objects,
            self.data.reader,
            home=self.own_objects,
            scratch=settings.scratch,
            look=LookPolicy.of(
                memory_mib=settings.look_memory_mib,
                timeout_s=settings.look_timeout_s,
                rows=settings.max_input_rows,
                columns=settings.max_input_columns,
                gib=settings.max_input_gib,
            ),
            facts=ModelFacts(embedding_size=embedding_size, sizes=embedding_sizes, shows_tools=shows_tools),
        )

    @cached_property
    def outward(self) -> Outward:
        """Calls to addresses that tenants named, and the seal of what signs them."""
        from infra.web.outward import open_outward

        settings = self.settings
        hosts = settings.private_hosts
        return open_outward(
            key=settings.seal_key, home=settings.home, timeout_s=settings.webhook_timeout_s, private_hosts=hosts
        )

    def close(self) -> None:
        """Close what was opened. Idempotent."""
        data = self.__dict__.pop("data", None)
        if data is not None:
            data.reader.close()
        for name in ("limiter", "broker", "store"):
            opened = self.__dict__.pop(name, None)
            if opened is not None:
                opened.close()


def open_home(settings: Settings) -> Home:
    """Set up the log and open the data directory (lazily)."""
    logs.set_up(settings.log_file, settings.log_level, secrets=secrets_of(settings, os.environ))
    return Home(settings)
