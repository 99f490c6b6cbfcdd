"""Requests behind Ray Serve's HAProxy, as `nightmill up --cluster` has it: streams, and clients that leave."""

import asyncio
from importlib.util import find_spec

import pytest

from api.ray_http import OwnWatch, middlewares
from infra.deploy.cluster.service import free_ports
from tests.support.prepared import missing
from tests.support.upped import until, upped

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`"),  # Ray Serve's own models
]
SETTINGS = """
api_port = {port}
api_replicas = 2

[pools.talk]
model = "fake"
purpose = "interactive"
num_cpus = 0.1
min_workers = 1
engine_args = {{ token_latency_s = 0.1, max_num_seqs = 4 }}
"""
TOKENS, START_S = 50, 120.0


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    if find_spec("ray") is None:
        missing("Ray is not installed: pip install -e '.[cluster]'")
    (port,) = free_ports(1)
    with upped(tmp_path_factory.mktemp("haproxy"), SETTINGS.format(port=port), cluster=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(up):
    opened = up.client(up.key())
    up.ready(opened, "fake", START_S)
    return opened


def stream(client, tokens=TOKENS):
    return client.completions.create(model="fake", prompt="Once", max_tokens=tokens, stream=True)


def test_a_stream_comes_in_pieces_and_is_charged(up, client):
    chunks = list(stream(client, tokens=5))
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].text]) > 1
    (record,) = [one for one in up.records() if one[0] == chunks[0].id]
    assert record[1:] == ("truncated", 5)


def test_clients_that_leave_mid_stream_end_their_requests_and_pay_for_what_came(up, client):
    opened = [stream(client) for _ in range(4)]  # all seats, through both replicas
    names = {next(iter(chunks)).id for chunks in opened}
    for chunks in opened:
        chunks.close()

    def left():
        return [(outcome, tokens) for name, outcome, tokens in up.records() if name in names]

    until(lambda: len(left()) == 4, "record of each", 20.0)
    assert {outcome for outcome, _ in left()} == {"cancelled"}
    assert all(1 <= tokens < TOKENS for _, tokens in left())
    assert len(list(stream(client, tokens=2))) > 1  # their seats are free


def test_in_a_replica_ray_serve_is_told_that_the_app_watches_whatever_the_client_says():
    if find_spec("ray") is None:
        missing("Ray is not installed: pip install -e '.[cluster]'")
    from ray.serve._private.http_util import parse_disconnect_disabled_header  # noqa: PLC0415 - it warns

    seen = []

    async def app(scope, receive, send):
        seen.append(parse_disconnect_disabled_header(dict(scope["headers"])))

    watch = OwnWatch(app)
    for given in ([], [(b"x-request-disconnect-disabled", b"?0")]):
        asyncio.run(watch({"type": "http", "headers": given}, None, None))
    assert seen == [True, True]
    assert middlewares() == []  # here is no replica
