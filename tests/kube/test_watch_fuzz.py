"""The watch against a model of a server that changes, forgets, refuses and hangs up at random."""

from __future__ import annotations

import random
from collections import deque

import pytest

from paddlejob.kube import watch


class ModelServer:
    """The whole history of a few names, where the oldest part may be compacted away."""

    def __init__(self, rng: random.Random, *, streams_lists: bool) -> None:
        self.rng = rng
        self.streams_lists = streams_lists
        self.events: list[tuple[str, str]] = []
        self.compacted = 0

    @property
    def version(self) -> int:
        return len(self.events)

    def change(self) -> None:
        name = self.rng.choice("abcdef")
        exists = name in self.truth(self.version)
        kind = self.rng.choice(["MODIFIED", "DELETED"]) if exists else "ADDED"
        self.events.append((kind, name))

    def truth(self, version: int) -> dict[str, int]:
        objects: dict[str, int] = {}
        for number, (kind, name) in enumerate(self.events[:version], start=1):
            if kind == "DELETED":
                del objects[name]
            else:
                objects[name] = number
        return objects


class ModelDriver:
    """Does what the machine asks for, with accidents, and compares the cache with the truth at every step."""

    def __init__(self, server: ModelServer, rng: random.Random) -> None:
        self.server, self.rng = server, rng
        self.accident_rate = 0.3
        self.cache: dict[str, int] = {}
        self.staged: dict[str, int] = {}
        self.version: int | None = None
        self.position: int | None = None
        self.pending: deque[watch.Line] = deque()
        self.state: watch.State = watch.Empty()
        self.request: watch.Request = watch.Wait(0, 0)

    def step(self) -> None:
        received = self.accident() if self.rng.random() < self.accident_rate else None
        self.feed(received or self.answer())

    def feed(self, received: watch.Input) -> None:
        self.state, effects = watch.step(self.state, received)
        requests = [effect for effect in effects if isinstance(effect, watch.Request)]
        assert len(requests) == 1 or (not requests and isinstance(received, watch.Line))
        for effect in effects:
            self.perform(effect)
        if self.version is not None:
            assert self.cache == self.server.truth(self.version)

    def perform(self, effect: watch.Effect) -> None:
        match effect:
            case watch.Begin():
                self.staged = {}
            case watch.Stage(payload=(name, number)):
                self.staged[name] = number
            case watch.Unstage(payload=(name, _)):
                self.staged.pop(name, None)
            case watch.Replace(resource_version=version):
                self.cache, self.version = self.staged, int(version)
                self.staged = {}
            case watch.Apply(payload=(name, number), resource_version=version):
                self.cache[name], self.version = number, int(version)
            case watch.Remove(payload=(name, _), resource_version=version):
                del self.cache[name]
                self.version = int(version)
            case watch.Advance(resource_version=version):
                self.version = int(version)
            case watch.OpenStream() | watch.FetchPage() | watch.Wait():
                self.request, self.position = effect, None
                self.pending.clear()

    def accident(self) -> watch.Input | None:
        if isinstance(self.request, watch.Wait):
            return None
        seconds = self.rng.choice([0.1, 5.0, 100.0])
        refused = watch.HttpError(self.rng.choice([401, 403, 404, 410, 429, 500, 503]))
        if isinstance(self.request, watch.FetchPage):
            return self.rng.choice([refused, watch.Broken("no route")])
        if self.position is None:
            return self.rng.choice([refused, watch.Broken("no route"), watch.HttpError(400)])
        given_up = watch.InStreamError(self.rng.choice([410, 429, 500]), open_seconds=seconds)
        return self.rng.choice(
            [watch.Eof(seconds), watch.Idle(70.0), watch.Broken("reset", seconds), given_up]
        )

    def answer(self) -> watch.Input:
        match self.request:
            case watch.Wait():
                return watch.WaitOver()
            case watch.FetchPage():
                return self.page(self.request)
            case watch.OpenStream():
                return self.line(self.request) if self.position is not None else self.open(self.request)

    def page(self, request: watch.FetchPage) -> watch.Input:
        version, _, start = (request.continue_token or f"{self.server.version}:0").partition(":")
        if int(version) < self.server.compacted:
            return watch.HttpError(410)
        items = sorted(self.server.truth(int(version)).items())[int(start) :]
        size = len(items) if request.whole else 2
        more = f"{version}:{int(start) + size}" if len(items) > size else ""
        return watch.Page(tuple(items[:size]), version, more)

    def open(self, request: watch.OpenStream) -> watch.Input:
        if request.resource_version:
            self.position = int(request.resource_version)
            if self.position < self.server.compacted:
                return self.rng.choice([watch.HttpError(410), watch.InStreamError(410)])
        elif not self.server.streams_lists and self.rng.random() < 0.5:
            return watch.HttpError(422)
        else:
            self.position = self.server.version
            objects = self.server.truth(self.position).items()
            self.pending.extend(watch.Line("ADDED", str(item[1]), item) for item in objects)
            self.pending.append(
                watch.Line("BOOKMARK", str(self.position), initial_events_end=self.server.streams_lists)
            )
        return self.line(request)

    def line(self, request: watch.OpenStream) -> watch.Input:
        assert self.position is not None
        if self.pending:
            return self.pending.popleft()
        if self.position < self.server.version:
            kind, name = self.server.events[self.position]
            self.position += 1
            return watch.Line(kind, str(self.position), (name, self.position))
        return watch.Line("BOOKMARK", str(self.position))


@pytest.mark.parametrize("streams_lists", [True, False], ids=["streamed-lists", "paged-lists"])
@pytest.mark.parametrize("seed", range(150))
def test_the_cache_always_equals_one_version_and_in_the_end_the_last(seed: int, streams_lists: bool):
    rng = random.Random(f"{seed}/{streams_lists}")
    server = ModelServer(rng, streams_lists=streams_lists)
    driver = ModelDriver(server, rng)
    for _ in range(rng.randint(20, 200)):
        if rng.random() < 0.5:
            server.change()
        if rng.random() < 0.05:
            server.compacted = rng.randint(server.compacted, server.version)
        driver.step()
    driver.accident_rate = 0.0
    for _ in range(40 + 2 * server.version):
        driver.step()
    assert driver.cache == server.truth(server.version)
