"""The front: takes a request to a worker that has room, and to another one where that fails before its first piece.

It holds no truth: charges are posted by workers, and what is known of them is asked of their doors each time. No lock
is held while a door or a listener is called.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from jobs.choosing import Choice, Memory, beginnings, order
from jobs.figures import Histogram, Sample
from jobs.ports.clock import Clock
from jobs.ports.live import Door, Hear
from jobs.requests import End, Ended, LiveRequest, Piece, Said
from workers.health import Post, Watch

log = structlog.get_logger()

_TRIES = 16
"""Doors that one request is taken to at most: if so many have no room, the model has none."""
_LOSSES = 2
"""A request with which two workers died is not given to a third one."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Ways(Protocol):
    """Where the doors of a model are. All from any thread; none waits."""

    def doors(self, model: str) -> Sequence[Sequence[Door]]:
        """Of the workers that are there, by pool, in the order in which the pools are asked."""
        ...

    def models(self) -> Sequence[str]:
        """Those with a pool that takes requests."""
        ...

    def asked(self, model: str, *, short: bool) -> float:
        """Requests come for a model, so its pools stay awake. short: one found no room, or no worker.

        Seconds until the next worker may be there.
        """
        ...


def _histogram() -> Histogram:
    return Histogram(_SECONDS)


@dataclass(slots=True)
class Tally:
    """What became of requests, by model. Changed under the front's lock."""

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    retries: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_token_s: dict[str, Histogram] = field(default_factory=lambda: defaultdict(_histogram))
    seconds: dict[str, Histogram] = field(default_factory=lambda: defaultdict(_histogram))


@dataclass(slots=True, kw_only=True)
class Front:
    """`jobs.ports.live.Front`. `step` in one thread, a few times a second: probes of all doors."""

    ways: Ways
    watch: Watch
    clock: Clock
    tally: Tally = field(default_factory=Tally)
    _open: dict[str, _Asking] = field(default_factory=dict)
    _seats: Counter[str] = field(default_factory=Counter)
    _memory: Memory = field(default_factory=Memory)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, request: LiveRequest, hear: Hear) -> None:
        asking = _Asking(front=self, request=request, hear=hear, began_s=self.clock.monotonic())
        asking.hashes = beginnings(request.prompt, f"{request.model}\0{request.profile.cache_salt}")
        self.ways.asked(request.model, short=False)
        with self._lock:
            self._open[request.id] = asking
        try:
            asking.go()
        except BaseException:  # whoever asks is told by it, and nobody else
            with self._lock:
                self._open.pop(request.id, None)
            raise

    def leave(self, request_id: str) -> None:
        if (asking := self._open.get(request_id)) is not None:
            asking.leave()

    def serves(self, model: str) -> bool:
        return model in self.ways.models()

    def step(self) -> None:
        ways = self.ways
        self.watch.step([(model, d) for model in ways.models() for doors in ways.doors(model) for d in doors])

    def figures(self) -> Iterator[Sample]:
        """Of requests and of the circuits of workers."""
        tally = self.tally
        with self._lock:
            counts = sorted(tally.ends.items()), sorted(tally.retries.items())
            still = sorted(Counter(asking.request.model for asking in self._open.values()).items())
        for labels, count in counts[0]:
            yield Sample("nightmill_requests_total", count, labels)
        for labels, count in counts[1]:
            yield Sample("nightmill_request_retries_total", count, labels)
        for model, count in still:
            yield Sample("nightmill_requests_open", count, (model,))
        for model, seconds in [*tally.first_token_s.items()]:
            yield Sample("nightmill_request_first_token_seconds", seconds, (model,))
        for model, seconds in [*tally.seconds.items()]:
            yield Sample("nightmill_request_seconds", seconds, (model,))
        yield from self.watch.figures()

    # ---- for a request --------------------------------------------------------------------------

    def choose(self, request: LiveRequest, hashes: Sequence[int], tried: set[str]) -> Post | None:
        """The next door to be asked, whose seats are taken from now on; None where none is left."""
        posts: dict[str, Post] = {}
        choices = []
        for rank, doors in enumerate(self.ways.doors(request.model)):
            for door in doors:
                if door.name not in tried and self.watch.trusts(post := self.watch.post(request.model, door)):
                    posts[door.name] = post
                    choices.append(Choice(name=door.name, load=door.load(), rank=rank, mine=self._seats[door.name]))
        with self._lock:
            names = order(choices, request.seats, self._memory.known(hashes))
            if not names or len(tried) >= _TRIES:
                return None
            self._seats[names[0]] += request.seats
        return posts[names[0]]

    def served(self, hashes: Sequence[int], name: str) -> None:
        """A door has begun with a prompt of these beginnings."""
        if hashes:
            with self._lock:
                self._memory.note(hashes, name)

    def free(self, request: LiveRequest, name: str) -> None:
        """A door is done with a request, whatever it did."""
        with self._lock:
            self._seats[name] -= request.seats
            if self._seats[name] <= 0:
                del self._seats[name]

    def again(self, request: LiveRequest, reason: str) -> None:
        with self._lock:
            self.tally.retries[request.model, reason] += 1

    def over(self, asking: _Asking, ended: Ended) -> None:
        """Nothing more is said of a request."""
        model, now = asking.request.model, self.clock.monotonic()
        with self._lock:
            self._open.pop(asking.request.id, None)
            self.tally.ends[model, ended.end] += 1
            if ended.end is End.DONE:
                self.tally.seconds[model].note(now - asking.began_s)
                if asking.first_s is not None:
                    self.tally.first_token_s[model].note(asking.first_s - asking.began_s)


@dataclass(slots=True, kw_only=True, eq=False)
class _Asking:
    """One request on its way. post: the door that has it. first_s: when its first piece came, monotonic.

    refusals: of the doors that had no room; losses: of those that died with it.
    """

    front: Front
    request: LiveRequest
    hear: Hear
    began_s: float
    hashes: Sequence[int] = ()
    first_s: float | None = None
    post: Post | None = None
    gone: bool = False
    tried: set[str] = field(default_factory=set)
    refusals: list[Ended] = field(default_factory=list)
    losses: list[Ended] = field(default_factory=list)

    def go(self) -> None:
        """To the next door, or to the end."""
        post = None
        if not self.gone and len(self.losses) < _LOSSES:
            post = self.front.choose(self.request, self.hashes, self.tried)
        if post is None:
            self._end(self._nowhere())
            return
        if self.tried:
            self.front.again(self.request, "lost" if self.losses else "refused")
        self.tried.add(post.door.name)
        self.post = post
        post.door.enter(self.request, lambda said: self._heard(post, said))
        if self.gone:  # it left while we were on the way
            post.door.leave(self.request.id)

    def leave(self) -> None:
        """The client is gone."""
        self.gone = True
        if (post := self.post) is not None:
            post.door.leave(self.request.id)

    def _heard(self, post: Post, said: Said) -> None:
        if isinstance(said, Piece):
            post.heard_s = now = self.front.clock.monotonic()
            if self.first_s is None:
                self.first_s = now
                self.front.served(self.hashes, post.door.name)
            self.hear(said)
            return
        self.front.free(self.request, post.door.name)
        if said.end is End.DONE:
            post.heard_s = self.front.clock.monotonic()
            if self.first_s is None:
                self.front.served(self.hashes, post.door.name)
        if said.end not in {End.REFUSED, End.LOST}:
            self._end(said)
        elif self.first_s is not None:  # what was told cannot be told once more
            self._end(said.evolve(end=End.LOST))
        else:
            (self.refusals if said.end is End.REFUSED else self.losses).append(said)
            self._go_on()

    def _go_on(self) -> None:
        """In the thread of a door, which knows nothing of what may break here."""
        try:
            self.go()
        except Exception as error:
            log.exception("request_stuck", request=self.request.id)
            self._end(Ended(end=End.LOST, reason=repr(error)))

    def _nowhere(self) -> Ended:
        """No door is left: what is said of that. A request that was lost on the way is not merely refused."""
        soon = self.front.ways.asked(self.request.model, short=not self.gone)
        waits = [one.retry_after_s for one in self.refusals if one.retry_after_s is not None]
        wait_s = min(waits, default=soon)
        if self.losses:
            return self.losses[-1].evolve(retry_after_s=wait_s)
        reason = self.refusals[-1].reason if self.refusals else "no worker of the model is ready"
        return Ended(end=End.REFUSED, retry_after_s=wait_s, reason=reason)

    def _end(self, ended: Ended) -> None:
        self.front.over(self, ended)
        self.hear(ended)
