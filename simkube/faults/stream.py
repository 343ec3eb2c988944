"""A watch that goes wrong: late, in pieces, and with a bad end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from paddlejob.kube.errors import TransportError, TransportTimeoutError
from paddlejob.kube.transport import Stream
from simkube.apiserver import refusals, watches

FATES = ("watch_closed", "watch_cut", "watch_silent", "watch_gone")
"""The ways in which a watch can end, by the names of their rates."""


class Weather(Protocol):
    """The faults that a stream depends on."""

    rng: random.Random

    @property
    def healed(self) -> bool: ...


class FaultyStream:
    """A stream that meets its fate after a while, unless the network has healed by then."""

    def __init__(
        self,
        inner: Stream,
        faults: Weather,
        *,
        fate: str | None,
        delay_seconds: float,
        life_seconds: float,
        idle_seconds: float | None,
    ) -> None:
        self._inner = inner
        self._faults = faults
        self._fate = fate
        self._delay_seconds = delay_seconds
        self._ends_at = asyncio.get_running_loop().time() + life_seconds
        self._idle_seconds = idle_seconds

    @property
    def status(self) -> int:
        """The HTTP status code."""
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        return self._inner.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the received bytes until the fault happens."""
        chunks = self._inner.chunks()
        while True:
            chunk = await self._next(chunks)
            if chunk is None:
                return
            if self._delay_seconds and not self._faults.healed:
                await asyncio.sleep(self._faults.rng.uniform(0, self._delay_seconds))
            if self._is_time():
                async for last in self._end(chunk):
                    yield last
                return
            for piece in self._pieces(chunk):
                yield piece

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """Return the next chunk, None at the end, an empty one when fate strikes before it comes."""
        if self._fate in {None, "watch_cut"}:  # a cut needs an event to go through
            return await _step(chunks)
        waiting = asyncio.ensure_future(_step(chunks))
        try:
            seconds = self._ends_at - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait([waiting], timeout=max(0.0, seconds))
            if done:
                return waiting.result()
            if self._faults.healed:
                self._fate = None
                return await waiting
            return b""
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    def _is_time(self) -> bool:
        late = asyncio.get_running_loop().time() >= self._ends_at
        return self._fate is not None and late and not self._faults.healed

    async def _end(self, chunk: bytes) -> AsyncIterator[bytes]:
        match self._fate:
            case "watch_gone":
                yield watches.error_line(refusals.expired("too old resource version"))
            case "watch_cut":
                yield chunk[: self._faults.rng.randrange(1, len(chunk))]
                raise TransportError("connection reset")
            case "watch_silent":
                await asyncio.sleep(self._idle_seconds or 10 * 86400.0)
                raise TransportTimeoutError(f"received nothing for {self._idle_seconds} s")
            case _:
                if chunk:
                    yield chunk

    def _pieces(self, chunk: bytes) -> list[bytes]:
        """Return a chunk as TCP may deliver it."""
        if self._faults.healed or len(chunk) < 2 or self._faults.rng.random() < 0.7:
            return [chunk] if chunk else []
        cut = self._faults.rng.randrange(1, len(chunk))
        return [chunk[:cut], chunk[cut:]]


async def _step(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
