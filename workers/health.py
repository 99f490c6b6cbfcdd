"""Probes of the doors of workers: each proves its health by a token, a request's or a probe's. See `jobs.circuit`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import structlog

from jobs.circuit import Circuit, Health, ProbePolicy, begun, failed, is_due, is_late, is_proved, proved
from jobs.figures import Sample
from jobs.ports.clock import Clock
from jobs.ports.live import Door
from jobs.requests import End, Ended, LiveRequest, Said

log = structlog.get_logger()

ProbeOf = Callable[[str], LiveRequest]
"""A probe of a model's workers: one token, under an id of its own."""


@dataclass(slots=True, kw_only=True)
class Post:
    """A door and what is known of it. heard_s: when a token last came through it, monotonic; moved: its engine's
    counter when it was last looked at. probe: the id of the one under way.
    """

    door: Door
    model: str
    health: Health
    heard_s: float = 0.0
    moved: int = 0
    probe: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.model, self.door.name


@dataclass(slots=True, kw_only=True)
class Watch:
    """Keeps the circuits. `step` in one thread, now and then; the others from any."""

    probe_of: ProbeOf
    clock: Clock
    policy: ProbePolicy = ProbePolicy()
    _posts: dict[str, Post] = field(default_factory=dict)
    _probes: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self, model: str, door: Door) -> Post:
        """The post of a door. A new door under an old name is a new worker's."""
        post = self._posts.get(door.name)
        if post is None or post.door is not door:
            post = Post(door=door, model=model, health=Health(looked_s=self.clock.monotonic()))
            self._posts[door.name] = post
        return post

    def trusts(self, post: Post) -> bool:
        """Whether requests may go there."""
        return post.health.circuit(self.policy) is Circuit.CLOSED

    def step(self, doors: Iterable[tuple[str, Door]]) -> None:
        """Judge the probes that had their time, send those that are due. doors: all there are, with their model."""
        posts = [self.post(model, door) for model, door in doors]
        there = {post.door.name for post in posts}
        for name in [name for name in self._posts if name not in there]:
            self._posts.pop(name, None)
        for post in posts:
            self._look(post)

    def figures(self) -> Iterator[Sample]:
        posts = [post for post in [*self._posts.values()] if post.door.load().open]
        for (model, state), count in sorted(Counter((p.model, p.health.circuit(self.policy)) for p in posts).items()):
            yield Sample("nightmill_circuits", count, (model, state))
        with self._lock:
            probes = sorted(self._probes.items())
        for labels, count in probes:
            yield Sample("nightmill_probes_total", count, labels)

    # ---- one door -------------------------------------------------------------------------------

    def _look(self, post: Post) -> None:
        load, now = post.door.load(), self.clock.monotonic()
        if load.tokens_moved != post.moved:
            post.moved, post.heard_s = load.tokens_moved, now
        if not load.open:  # it says itself that it takes nothing; it begins anew once it does
            self._settle(post, Health(looked_s=now))
        elif is_proved(post.health, post.heard_s):
            self._proved(post, post.heard_s)
        elif is_late(post.health, self.policy, now):
            self._failed(post, "late", post.probe)
        elif is_due(post.health, self.policy, now):
            self._probe(post, now)

    def _probe(self, post: Post, now: float) -> None:
        probe = self.probe_of(post.model)
        with self._lock:
            post.probe, post.health = probe.id, begun(post.health, now)

        def hear(said: Said) -> None:
            if isinstance(said, Ended) and not _has_token(said):
                self._failed(post, said.reason or said.end, probe.id)
            else:
                self._proved(post, self.clock.monotonic(), probe.id)

        post.door.enter(probe, hear)

    def _proved(self, post: Post, now: float, probe: str = "") -> None:
        """probe: the id of the one that tells it, if one does."""
        if probe and probe != post.probe:
            return
        was_open = not self.trusts(post)
        self._settle(post, proved(post.health, now))
        with self._lock:
            self._probes[post.model, "proved"] += bool(probe)
        if was_open:
            log.info("circuit_closed", worker=post.door.name, model=post.model)

    def _failed(self, post: Post, reason: str, probe: str) -> None:
        """Of the probe that is under way: one that was judged already says nothing more."""
        with self._lock:
            if probe != post.probe:
                return
            post.probe, post.health = "", failed(post.health, self.clock.monotonic())
            self._probes[post.model, "failed"] += 1
            opens = post.health.failures == self.policy.failures
        log.log(
            40 if opens else 30, "circuit_opened" if opens else "probe_failed", worker=post.door.name, reason=reason
        )
        post.door.leave(probe)

    def _settle(self, post: Post, health: Health) -> None:
        with self._lock:
            left, post.probe, post.health = post.probe, "", health
        if left:
            post.door.leave(left)


def _has_token(ended: Ended) -> bool:
    return ended.end is End.DONE and (ended.result is None or ended.result.finish_reason != "error")
