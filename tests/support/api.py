"""A whole Nightmill with its API in this process: pools, keeper, uvicorn, over a data directory of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import structlog

from api.serve import Live, Served, serve
from infra.bootstrap import Home, open_home
from infra.settings import load
from jobs.pools import Pool, pool_for
from jobs.ports.limiting import Limiter
from jobs.ports.live import Front
from jobs.tenancy import MEMBER_SCOPES, ApiKey, Role, Tenant, digest_of
from workers.embedded import Embedded

URL = "/v1/chat/completions"
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Town:
    """url: of the API, without /v1. mill: None where the API is alone."""

    home: Home
    served: Served
    pools: tuple[Pool, ...]
    mill: Embedded | None = None
    clients: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.served.url

    def key(self, tenant: str = "acme", **options: Any) -> str:
        """See `a_key_of`."""
        return a_key_of(self.home, tenant, **options)

    def openai(self, key: str | None = None, **options: Any) -> openai.OpenAI:
        """The stock client, with `base_url` and the key changed."""
        options = {"max_retries": 0, **options}
        return self._open(openai.OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key(), **options))

    def http(self, key: str | None = None) -> httpx.Client:
        """For what the stock client does not say."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self._open(httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S))

    def _open(self, client: Any) -> Any:
        self.clients.append(client)
        return client

    def close(self) -> None:
        """What tests opened."""
        for client in self.clients:
            client.close()


def a_home(folder: Path, **settings: Any) -> Home:
    """settings: NIGHTMILL_* without the prefix, in small letters."""
    env = {f"NIGHTMILL_{name.upper()}": str(value) for name, value in {"api_port": 0, **settings}.items()}
    home = open_home(load(home=folder / "home", environ=env))
    home.example_prices("fake")
    return home


@contextmanager
def talking(folder: Path, *, front: Front, limiter: Limiter | None = None, **settings: Any) -> Iterator[Town]:
    """The API alone over a front, with the models `fake`, which takes tools, and `embedder`. settings: see `a_home`."""
    logging = structlog.get_config()
    home = a_home(folder, **settings)
    home.registry.add("embedder", None, kind="embedding", engine="fake")
    home.store.set_price(home.store.price("fake").evolve(model="embedder"))
    chats = pool_for(home.registry.resolve("fake")).evolve(engine_args={"tool_call_parser": "any"})
    pools = (chats, pool_for(home.registry.resolve("embedder")))
    home.__dict__["pools"] = pools
    served = serve(home, live=Live(front=front, limiter=limiter))
    opened = Town(home=home, served=served, pools=pools)
    try:
        until(lambda: served.ready, "the API")
        yield opened
    finally:
        opened.close()
        served.stop()
        home.close()
        structlog.configure(**logging)


@contextmanager
def town(folder: Path, *, engine_args: Mapping[str, Any] | None = None, **settings: Any) -> Iterator[Town]:
    """All of it in this process, unless told otherwise. engine_args: of the fake engine. settings: see `a_home`."""
    logging = structlog.get_config()
    home = a_home(folder, **{"up_processes": 1, **settings})
    pool = pool_for(home.registry.resolve("fake")).evolve(engine_args=engine_args or {})
    home.__dict__["pools"] = (pool,)
    mill = Embedded(home, [pool])
    mill.start()
    served = serve(home, wake=mill.wake, live=Live(front=mill.front))
    opened = Town(home=home, served=served, pools=(pool,), mill=mill)
    try:
        until(lambda: served.ready, "the API")
        yield opened
    finally:
        opened.close()
        served.stop()
        mill.close(10.0)
        home.close()
        structlog.configure(**logging)
    assert mill.alarm.error is None


def a_key_of(home: Home, tenant: str, *, text: str = "", **changes: Any) -> str:
    """A new key of the tenant, which is made if need be; or the one of this text, if it is not there."""
    store = home.store
    text = text or f"nm_{home.ids.token()}"
    if store.key_by_digest(digest_of(text)) is not None:
        return text
    store.put_tenant(Tenant(name=tenant), "test")
    record = ApiKey(
        id=home.ids.new("key_"),
        tenant=tenant,
        digest=digest_of(text),
        shown=text[:10],
        **{"scopes": MEMBER_SCOPES, "role": Role.MEMBER, **changes},
    )
    store.add_key(record, "test")
    return text


def until(seen: Callable[[], Any], what: str) -> Any:
    """Look again and again; what was seen."""
    end = time.monotonic() + PATIENCE_S
    while not (found := seen()):
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.02)
    return found


def a_line(number: int, *, model: str = "fake", **body: Any) -> dict[str, Any]:
    """A request of a batch."""
    messages = [{"role": "user", "content": f"Tell me of thing {number}."}]
    return {
        "custom_id": f"line-{number}",
        "method": "POST",
        "url": URL,
        "body": {"model": model, "messages": messages, "max_tokens": 8, **body},
    }


def lines_of(*lines: Any) -> bytes:
    """As a JSONL file; what is text already stays as it is."""
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines).encode()


def some_lines(count: int, **changes: Any) -> bytes:
    return lines_of(*(a_line(number, **changes) for number in range(count)))
