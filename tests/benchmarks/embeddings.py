"""Short embeddings by one engine process and by two behind one port, fed as a worker feeds them, in interleaved rounds.

The engines share the machine's cores; both kinds are up all the time, and idle while the other runs.
"""

from __future__ import annotations

import importlib.util
import random
import time
from pathlib import Path

from infra.engines.making import Engines, Making
from jobs.feed import FeedPolicy
from jobs.model import Model
from jobs.pools import EMBEDDING, Pool
from jobs.ports.engine import EngineRequest, RequestProfile
from tests.benchmarks import figures, words
from tests.support.prepared import prepared_model

TEXTS, WORDS, CHUNK = 2000, 7, 64
COUNTS = (1, 2)
PROFILE = RequestProfile(key="p", kind="embedding")


def run(folder: Path, *, rounds: int) -> None:
    """Print texts a second, medians over the rounds."""
    if importlib.util.find_spec("vllm") is None:
        print("vLLM is not installed.")
        return
    model = Model(name="minilm", kind="embedding", path=str(prepared_model("minilm")), engine="vllm")
    making = Making(logs=folder, cpu_kv_cache_gib=1, hang_timeout_s=120.0, start_timeout_s=600.0)
    pool = Pool(name="embedding", model="minilm", purpose=EMBEDDING, engine_args={"max_model_len": 128})
    engines = {count: making.of_pool(model, pool.evolve(engines=count), f"engine-of-{count}") for count in COUNTS}
    found: dict[int, list[float]] = {count: [] for count in COUNTS}
    try:
        for engine in engines.values():
            engine.start()
            _rate(engine, 256)
        for number in range(rounds):
            for count in COUNTS if number % 2 else reversed(COUNTS):
                found[count].append(_rate(engines[count], TEXTS))
                print(f"round {number + 1}: {count} engines {found[count][-1]:,.0f} texts/s", flush=True)
    finally:
        for engine in engines.values():
            engine.stop()
    lines = [[str(count), figures.spread(rates, ",.0f")] for count, rates in found.items()]
    print(figures.table(["engine processes", f"texts of {WORDS} words a second"], lines))
    print(f"two / one: {figures.ratio(found[2], found[1])}")


def _rate(engine: Engines, count: int) -> float:
    """Texts a second, a window of them inside at a time."""
    rng = random.Random(11)
    texts = [EngineRequest(number, words.text(rng, WORDS)) for number in range(count)]
    cap = FeedPolicy.for_engine(engine.start().max_num_seqs).cap
    began, done, fed = time.monotonic(), 0, 0
    while done < count:
        while fed < count and engine.in_flight() <= cap - CHUNK:
            engine.submit(PROFILE, texts[fed : fed + CHUNK])
            fed += CHUNK
        results = engine.poll(0.05)
        assert all(result.finish_reason == "stop" for result in results), results
        done += len(results)
    return count / (time.monotonic() - began)
