"""Interactive requests through Nightmill and through vLLM's own OpenAI server, on the same tiny model.

Both are up at the same time and called in turns, so that what the machine does otherwise meets both. Streamed chats at
1, 8 and 64 clients, by uvicorn and by Ray Serve (HAProxy, throughput settings); and embeddings. The clients run on this
machine too.
"""

from __future__ import annotations

import importlib.util
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.deploy.cluster.service import free_ports
from infra.engines.spec import EngineSpec
from infra.models.prepare import prepare_tiny
from tests.benchmarks import figures, nightmill
from tests.benchmarks.raw_server import raw_server
from tests.benchmarks.served import Served, served, until
from tests.benchmarks.talkers import Heard, Talk, talked
from tests.support.prepared import prepared_model

CLIENTS = (1, 8, 64)
GOAL_ADDED_MS, GOAL_RATE = 5.0, 0.9
ENGINE_ARGS = {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "block_size": 32, "max_model_len": 2048}
EMBEDDING_ARGS = {"max_model_len": 128}
READY_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """seconds: of each turn. rounds: turns of each. cluster: whether Ray Serve is measured too; replicas: its."""

    seconds: float
    rounds: int
    cluster: bool
    replicas: int = 1


def run(folder: Path, sizes: Sizes) -> None:
    """Print a table a piece."""
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed: nothing to compare with.")
        return
    tiny = _spec("tiny", "chat", prepare_tiny(folder.parent / "models" / "tiny"), folder)
    (port,) = free_ports(1)
    with raw_server(folder, tiny, {**ENGINE_ARGS, "scheduling_policy": "priority"}, port):
        raw = Talk(kind="chat", host="127.0.0.1", port=port, key="-", model="tiny", clients=1, seconds=1)
        _chats(folder / "uvicorn", "uvicorn", raw, tiny, sizes, cluster=False)
        if sizes.cluster:
            name = f"Ray Serve, replicas: {sizes.replicas}"
            _chats(folder / "serve", name, raw, tiny, sizes, cluster=True)
    _embeddings(folder, sizes)


def _spec(model: str, kind: Any, path: Path, folder: Path) -> EngineSpec:
    arguments = EMBEDDING_ARGS if kind == "embedding" else ENGINE_ARGS
    log = folder / f"{model}.log"
    return EngineSpec(model=model, kind=kind, backend="vllm", path=str(path), engine_args=arguments, log_path=log)


def pool(name: str, model: str, purpose: str, arguments: Mapping[str, Any], **more: Any) -> str:
    """A table of the settings file."""
    given = {"model": model, "purpose": purpose, "num_cpus": 0.1, "min_workers": 1, **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    inner = ", ".join(f"{key} = {json.dumps(value)}" for key, value in arguments.items())
    return "\n".join([f"[pools.{name}]", *lines, f"engine_args = {{ {inner} }}", ""])


@contextmanager
def up(
    folder: Path, pools: str, specs: Sequence[EngineSpec], *, cluster: bool = False, replicas: int = 1
) -> Iterator[Served]:
    """Nightmill with these pools, all of whose models answer."""
    home = folder / "home"
    folder.mkdir(parents=True, exist_ok=True)
    for spec in specs:
        nightmill.nightmill(home, "models", "add", spec.model, spec.path, "--free")
    with served(folder, cluster=cluster, pools=pools, replicas=replicas) as api:
        yield api


def ask(api: Served | Talk, path: str, body: bytes | None = None) -> Any:
    """The answer's JSON; with a body it is posted. Raises urllib.error.HTTPError."""
    heads = {"authorization": f"Bearer {api.key}", "content-type": "application/json"}
    request = urllib.request.Request(f"http://{api.host}:{api.port}{path}", body, heads)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


# ---- chats --------------------------------------------------------------------------------------


def _chats(folder: Path, name: str, raw: Talk, spec: EngineSpec, sizes: Sizes, *, cluster: bool) -> None:
    talk = pool("talk", spec.model, "interactive", ENGINE_ARGS)
    with up(folder, talk, [spec], cluster=cluster, replicas=sizes.replicas) as api:
        ours = Talk(kind="chat", host=api.host, port=api.port, key=api.key, model=spec.model, clients=1, seconds=1)
        warm(ours, raw)
        for clients in CLIENTS:
            pairs = list(_turns(ours, raw, clients, sizes))
            _report(f"{name}, {clients} clients", pairs)


def warm(*talks: Talk) -> None:
    """Until each answers, and once more."""
    for talk in talks:
        until(lambda talk=talk: _answers(talk), READY_S)  # type: ignore[misc]
        talked(_with(talk, clients=8, seconds=2.0, seed=1))


def _answers(talk: Talk) -> bool:
    """Asked by this process: to start one for each look would keep the machine busy."""
    path, body = "/v1/completions", {"model": talk.model, "prompt": "a", "max_tokens": 1}
    if talk.kind == "embedding":
        path, body = "/v1/embeddings", {"model": talk.model, "input": "a"}
    try:
        ask(talk, path, json.dumps(body).encode())
    except urllib.error.HTTPError as error:
        if error.code not in {429, 503}:
            raise RuntimeError(f"{error.code}: {error.read()[:300]!r}") from error
        return False
    except OSError:
        return False
    return True


def _with(talk: Talk, **changes: Any) -> Talk:
    return Talk(**{**{name: getattr(talk, name) for name in Talk.__slots__}, **changes})


def _turns(ours: Talk, raw: Talk, clients: int, sizes: Sizes) -> Iterator[tuple[Heard, Heard]]:
    """(ours, theirs) each round, of the same prompts; who begins changes."""
    for number in range(sizes.rounds):
        found: dict[bool, Heard] = {}
        for mine in (True, False) if number % 2 else (False, True):
            talk = _with(ours if mine else raw, clients=clients, seconds=sizes.seconds, seed=100 + number)
            found[mine] = talked(talk)
        yield found[True], found[False]


def share(values: Sequence[float], part: float) -> float:
    """The value below which such a part of them lies."""
    found = sorted(values)
    return found[min(len(found) - 1, int(part * len(found)))]


def _report(name: str, pairs: Sequence[tuple[Heard, Heard]]) -> None:
    lines = []
    for label, of in (("first token", "first_s"), ("between tokens", "each_s"), ("last token to end", "end_s")):
        for part in (0.5, 0.99):
            values = [[1000 * share(getattr(heard, of), part) for heard in pair] for pair in pairs]
            mine, theirs = [v[0] for v in values], [v[1] for v in values]
            added = [a - b for a, b in values]
            cells = [figures.spread(column, ",.2f") for column in (mine, theirs, added)]
            lines.append([f"{label} p{100 * part:.0f}, ms", *cells])
    rates = [[heard.a_second for heard in pair] for pair in pairs]
    ratio = figures.ratio([r[0] for r in rates], [r[1] for r in rates])
    lines.append(["requests a second", *(figures.spread([r[n] for r in rates]) for n in (0, 1)), f"ratio {ratio}"])
    print(f"\n{name} (refused: {sum(mine.refused for mine, _ in pairs)} of ours)")
    print(figures.table(["", "nightmill", "vLLM's server", "added"], lines))
    print(
        f"goals at 8 clients: at most {GOAL_ADDED_MS:g} ms added at p50, at least {GOAL_RATE:g} of its rate", flush=True
    )


# ---- embeddings ---------------------------------------------------------------------------------


def _embeddings(folder: Path, sizes: Sizes) -> None:
    spec = _spec("minilm", "embedding", prepared_model("minilm"), folder)
    (port,) = free_ports(1)
    with (
        raw_server(folder, spec, {**EMBEDDING_ARGS, "runner": "pooling"}, port),
        up(folder / "embedding", pool("embed", "minilm", "embedding", EMBEDDING_ARGS), [spec]) as api,
    ):
        ours = Talk(kind="embedding", host=api.host, port=api.port, key=api.key, model="minilm", clients=8, seconds=1)
        raw = _with(ours, port=port, key="-")
        warm(ours, raw)
        pairs = list(_turns(ours, raw, 8, sizes))
        rates = [[heard.a_second * ours.texts for heard in pair] for pair in pairs]
        mine, theirs = [r[0] for r in rates], [r[1] for r in rates]
        print(f"\nembeddings a second, 8 clients with {ours.texts} texts each time: {figures.spread(mine, ',.0f')}")
        print(f"vLLM's server: {figures.spread(theirs, ',.0f')}; ratio {figures.ratio(mine, theirs)}", flush=True)
