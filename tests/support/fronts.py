"""A front over doors in memory for tests: each door says what the test lets it say."""

from __future__ import annotations

from infra.clocks import ManualClock
from jobs.model import Usage
from jobs.ports.engine import RequestProfile
from jobs.requests import End, Ended, LiveRequest, Load, Piece
from tests.factories import PRICE
from workers.front import Front
from workers.health import Watch

OPEN = Load(seats=4, open=True)
REFUSED = Ended(end=End.REFUSED, retry_after_s=2.0, reason="full")
LOST = Ended(end=End.LOST, reason="engine died")
DONE = Ended(end=End.DONE, usage=Usage(rows=1))


def a_request(request_id="req-a", **changes):
    request = LiveRequest(
        id=request_id,
        tenant="default",
        model="m",
        asked_model="m",
        endpoint="/v1/chat/completions",
        price=PRICE,
        profile=RequestProfile(key="k", kind="chat", stream=True),
        prompt="hello",
    )
    return request.evolve(**changes)


class FakeDoor:
    """says: what it tells at once of each request that enters; nothing: it holds it."""

    def __init__(self, name, *says, load=OPEN):
        self.name, self.says, self.now = name, says, load
        self.hears, self.entered, self.left = {}, [], []

    def enter(self, request, hear):
        self.entered.append(request.id)
        self.hears[request.id] = hear
        for said in self.says:
            hear(said)

    def leave(self, request_id):
        self.left.append(request_id)

    def load(self):
        return self.now

    def say(self, request_id, *said):
        for one in said:
            self.hears[request_id](one)


class FakeWays:
    """pools: lists of doors, by rank; all of the model `m`."""

    def __init__(self, *pools):
        self.pools, self.asks = pools, []

    def doors(self, model):
        return self.pools if model == "m" else ()

    def models(self):
        return ["m"]

    def asked(self, model, *, short):
        self.asks.append((model, short))
        return 30.0


class Square:
    """A front over doors. heard: what each request was told."""

    def __init__(self, *pools):
        self.clock, self.ways, self.heard, self.probes = ManualClock(), FakeWays(*pools), {}, 0
        self.watch = Watch(probe_of=self._probe, clock=self.clock)
        self.front = Front(ways=self.ways, watch=self.watch, clock=self.clock)

    def _probe(self, model):
        self.probes += 1
        return a_request(f"probe-{self.probes}", model=model, probe=True)

    def ask(self, request_id="req-a", **changes):
        heard = self.heard[request_id] = []
        self.front.ask(a_request(request_id, **changes), heard.append)
        return heard

    def step(self, seconds=0.0):
        self.clock.advance(seconds)
        self.front.step()

    def figures(self):
        return {(one.name.removeprefix("nightmill_"), *one.labels): one.value for one in self.front.figures()}


def pieces(*texts):
    return [Piece(0, text, 1) for text in texts]
