"""One fixture a port; its parameters are the adapters. A new adapter adds a parameter, not a file."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from infra.clocks import SeededIds
from infra.engines.several import SeveralEngines
from infra.objects.local import LocalObjects
from infra.queue import open_queue
from infra.sql import AT_ONCE, open_store
from infra.sql import engine as sql_engine
from tests.support.engines import a_spec, running, running_several, shows_tools, vllm_spec
from tests.support.postgres import ServersClock
from tests.support.s3 import BUCKET, shared_login


@pytest.fixture
def clock():
    return ServersClock()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty database that every test gets a copy of: to migrate one takes longer than most tests."""
    home = tmp_path_factory.mktemp("migrated")
    open_store(home).close()
    return home


@pytest.fixture
def no_flush(monkeypatch):
    """A power cut is not part of these tests, and a flush of the disk is most of their time."""
    pragmas = [pragma.replace("= FULL", "= OFF") for pragma in sql_engine.PRAGMAS]
    monkeypatch.setattr(sql_engine, "PRAGMAS", pragmas)


@pytest.fixture
def sqlite_home(tmp_path, migrated, no_flush):
    """A data directory whose database was migrated."""
    return shutil.copytree(migrated, tmp_path / "home")


@pytest.fixture
def postgres_url(postgres, clock):
    """A migrated database of the server's, which follows the clock."""
    with postgres.database() as database:
        yield database.url_of_clock(clock)


@pytest.fixture(params=["sqlite", "postgres"])
def open_again(request, clock):
    """Opens the same store as often as it is called."""
    opened = []
    where = request.getfixturevalue({"sqlite": "sqlite_home", "postgres": "postgres_url"}[request.param])

    def open_one():
        opened.append(open_store(where, clock=clock, pace=AT_ONCE))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again):
    return open_again()


@pytest.fixture(params=["sqlite", "kafka"])
def queue(request, tmp_path, clock, no_flush):
    if request.param == "sqlite":
        opened = open_queue(tmp_path / "home", clock=clock, ids=SeededIds(), pace=AT_ONCE)
        yield opened
        opened.close()
        return
    broker = request.getfixturevalue("kafka")
    opened = broker.open()
    yield opened
    opened.close()
    broker.clear()


@pytest.fixture(params=["file-uri", "path", "s3", "db-sqlite", "db-postgres"])
def folder(request, tmp_path):
    """Where objects may be written, as a URI."""
    place = tmp_path / "objects with a space"
    if request.param.startswith("db-"):
        return f"{request.param.removeprefix('db-')}+db://{place.as_posix()}"
    if request.param == "s3":
        return f"s3://{BUCKET}/{place.as_posix().lstrip('/')}"
    return place.as_uri() if request.param == "file-uri" else str(place)


@pytest.fixture
def objects(folder, request, tmp_path):
    """The adapter itself, without the router."""
    if "+db:" in folder:
        where = request.getfixturevalue({"sqlite": "sqlite_home", "postgres": "postgres_url"}[folder.partition("+")[0]])
        store = open_store(where, pace=AT_ONCE)
        yield store.objects(tmp_path / "scratch")
        store.close()
    elif folder.startswith("s3:"):
        request.getfixturevalue("s3_keys")
        from infra.objects.s3 import S3Objects  # noqa: PLC0415 - boto3 only where it is used
        from infra.objects.s3_client import Connection  # noqa: PLC0415 - as above

        options = request.getfixturevalue("s3").options()
        yield S3Objects(Connection(options, open_client=shared_login), tmp_path / "scratch")
    else:
        yield LocalObjects()


REAL = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="session", params=["fake", "two fakes", pytest.param("vllm", marks=REAL)])
def engine(request, tmp_path_factory):
    """A chat engine with a context of 4096 tokens. One start serves all tests; they leave it empty."""
    folder = tmp_path_factory.mktemp("engine")
    args = {"max_model_len": 4096, "max_num_seqs": 32, "tool_call_parser": "hermes"}
    spec = a_spec(folder, engine_args={**args, "row_latency_s": 0.05, "token_latency_s": 0.01})
    if request.param == "two fakes":
        halves = replace(spec, engine_args={**spec.engine_args, "max_num_seqs": 16})
        with running_several(halves, 2) as started:
            yield started
        return
    if request.param == "vllm":
        spec = vllm_spec(folder, "tiny", engine_args=args)
        spec = replace(spec, path=str(shows_tools(Path(spec.path), folder / "model")))
    with running(spec) as started:
        yield started


@pytest.fixture(scope="session")
def slow(engine, tmp_path_factory):
    """The same where rows take seconds, so that what a test does to them comes while they run, however busy the
    machine is. A model is slow by `LONG` outputs; a fake engine's are short, so its tokens take long.
    """
    if engine.spec.backend != "fake":
        yield engine
        return
    args = {**engine.spec.engine_args, "token_latency_s": 0.5}
    spec = a_spec(tmp_path_factory.mktemp("slow"), engine_args=args)
    with running_several(spec, 2) if isinstance(engine, SeveralEngines) else running(spec) as started:
        yield started


@pytest.fixture(scope="session", params=["fake", "two fakes", pytest.param("vllm", marks=REAL)])
def embedder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedder")
    spec = a_spec(folder, kind="embedding", engine_args={"max_model_len": 128, "embedding_size": 384})
    if request.param == "two fakes":
        with running_several(spec, 2) as started:
            yield started
        return
    if request.param == "vllm":
        spec = vllm_spec(folder, "minilm", kind="embedding", engine_args={"max_model_len": 128})
    with running(spec) as started:
        yield started
