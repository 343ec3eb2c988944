"""The dashboard of one user, on 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self

from aiohttp import web

from paddlejob.client.errors import ClientError
from paddlejob.client.job import Jobs
from paddlejob.dashboard.guard import Handler, LinkGuard
from paddlejob.dashboard.pages import application
from paddlejob.dashboard.session import ALL, UserSession

STOP_SECONDS = 0.2


class Dashboard:
    """Serves jobs to the user with the link."""

    def __init__(self, jobs: Jobs, *, all_namespaces: bool = False) -> None:
        scope = ALL if all_namespaces else getattr(jobs, "namespace", "default")
        self._session = UserSession(jobs, scope=scope)
        self._runner: web.AppRunner | None = None
        self._guard: LinkGuard | None = None

    async def __aenter__(self) -> Self:
        # The jobs are listed while the browser starts.
        self._session.watch(self._session.scope)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def until_stopped(self) -> None:
        """Wait until cancelled."""
        await asyncio.shield(self._session.over)

    async def serve(self, port: int = 0, hosts: Iterable[str] = ()) -> str:
        """Listen on 127.0.0.1 and return the link that works once. Raises ClientError."""
        self._runner = web.AppRunner(
            application(self._check),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=STOP_SECONDS,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", port).start()
        except OSError as error:
            raise ClientError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
        actual: int = self._runner.addresses[0][1]
        self._guard = LinkGuard(self._session, actual, hosts)
        return f"http://127.0.0.1:{actual}/{self._guard.query}"

    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._guard is not None
        return await self._guard.check(request, handler)
