"""The worst that one tenant does to a shared API server, and the connections that an operator shares."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import TransportTimeoutError
from paddlejob.kube.transport import Response, Transport
from paddlejob.kube.transport.fair_limiter import CONNECTION_LIMIT, RequestLimiter
from simkube.apiserver import refusals
from simkube.apiserver.request import parse_path

STREAM_OPEN_SECONDS = 30.0
"""How long a client waits for the first byte of a log."""


class TenantFaults(msgspec.Struct):
    """Faults by namespace and resource, such as `("tenant", "pods")`, and by node."""

    slow_webhooks: dict[tuple[str, str], float] = {}
    """Seconds that each write takes in admission; writes that outlast the client's timeout have no effect."""
    throttled: set[tuple[str, str]] = set()
    """Writes that are refused with 429, as by the admission plugin EventRateLimit."""
    silent_nodes: set[str] = set()
    """Nodes that send no logs."""
    exempt: set[str] = set()
    """Clients that the faults do not affect."""

    async def meet_write(self, identity: str, path: str, timeout_seconds: float | None) -> Response | None:
        """Delay a write; return the refusal, if any. Raises TransportTimeoutError."""
        if identity in self.exempt:
            return None
        named = parse_path(path)
        place = (named.namespace, named.plural) if named else ("", "")
        if place in self.throttled:
            message = "the maximum number of events was reached"
            return refusals.response(refusals.refusal(429, "TooManyRequests", message, retry_after_seconds=1))
        seconds = self.slow_webhooks.get(place, 0.0)
        if timeout_seconds is not None and seconds >= timeout_seconds:
            await asyncio.sleep(timeout_seconds)
            raise TransportTimeoutError(f"request timed out after {timeout_seconds:g}s: {path}")
        if seconds:
            await asyncio.sleep(seconds)
        return None

    async def meet_log(self, pod: JsonObject | None) -> None:
        """Delay the log of a pod on a silent node. Raises TransportTimeoutError."""
        if pod is not None and pod["spec"].get("nodeName") in self.silent_nodes:
            await asyncio.sleep(STREAM_OPEN_SECONDS)
            raise TransportTimeoutError(f"no response within {STREAM_OPEN_SECONDS:g}s")


class LimitedTransport:
    """A transport with a limited number of connections; each request takes `request_seconds`."""

    def __init__(
        self, transport: Transport, request_seconds: float = 0.0, *, limit: int = CONNECTION_LIMIT
    ) -> None:
        self._transport = transport
        self._request_seconds = request_seconds
        self._limiter = RequestLimiter(limit)

    async def request(self, method: str, path: str, **options: Any) -> Response:
        """Send one request when there is a connection for it."""
        await self._limiter.enter(path)
        try:
            if self._request_seconds:
                await asyncio.sleep(self._request_seconds)
            return await self._transport.request(method, path, **options)
        finally:
            self._limiter.leave(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
