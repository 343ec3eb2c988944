"""What a browser does with the dashboard, without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from yarl import URL

from paddlejob.client.job import Jobs
from paddlejob.dashboard.server import Dashboard

PATIENCE_SECONDS = 60.0


class Answer:
    """A whole answer."""

    def __init__(self, response: aiohttp.ClientResponse, text: str) -> None:
        self.status = response.status
        self.headers = response.headers
        self.cookies = response.cookies
        self.text = text

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Pages:
    """Requests that carry the cookie once the link was opened."""

    def __init__(self, link: str, session: aiohttp.ClientSession, **headers: str) -> None:
        url = URL(link)
        self.base, self.query = str(url.origin()), dict(url.query)
        self._session = session
        self._headers = headers

    @property
    def cookies(self) -> list[Any]:
        return list(self._session.cookie_jar)

    async def request(
        self, method: str, path: str | URL, *, query: dict | None = None, **options: Any
    ) -> Answer:
        headers = self._headers | options.pop("headers", {})
        url = URL(self.base).join(path) if isinstance(path, URL) else self.base + path
        async with self._session.request(method, url, params=query, headers=headers, **options) as response:
            return Answer(response, await response.text())

    async def get(self, path: str | URL, **options: Any) -> Answer:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        headers = {"Origin": self.base, **options.pop("headers", {})}
        return await self.request("POST", path, json=body or {}, headers=headers, **options)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, last: str = "") -> AsyncIterator[Events]:
        """Follow a stream of events."""
        headers = self._headers | ({"Last-Event-ID": last} if last else {})
        async with self._session.get(self.base + path, headers=headers, timeout=None) as response:
            assert response.status == 200, await response.text()
            yield Events(response)


class Events:
    """The events of one stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.last_id = ""

    async def until(self, event: str, fits: Callable[[Any], object] = lambda _: True) -> Any:
        """Return the next event of a name whose data fit."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            name = ""
            while line := (await self._response.content.readuntil(b"\n")).decode():
                field, _, value = line.rstrip("\n").partition(": ")
                if field == "id":
                    self.last_id = value
                elif field == "event":
                    name = value
                elif field == "data" and name == event and fits(data := json.loads(value)):
                    return data
        raise AssertionError(f"the stream ended without {event}")


@contextlib.asynccontextmanager
async def opened(jobs: Jobs, **options: bool) -> AsyncIterator[Pages]:
    """Serve jobs, with a client that has the link and has not opened it yet."""
    async with Dashboard(jobs, **options) as dashboard:
        link = await dashboard.serve()
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            yield Pages(link, session)
