"""Reads the ends of containers' logs, and no more than that, whatever the server sends."""

from __future__ import annotations

import asyncio
import logging
import math

from paddlejob.kube import errors, responses
from paddlejob.kube.client import Client

log = logging.getLogger(__name__)

IDLE_TIMEOUT_SECONDS = 10.0
MOST_BYTES = 2 * 1024 * 1024
"""So much is received of a log. Kubelets count `limitBytes` from the first of `tailLines`, so less would cut
off the newest; container runtimes break lines at 16 KiB, so MAX_LINES of them are not longer than this."""
MAX_LINES = 100
REFUSALS = 3
"""After so many logs in a row that were forbidden, none is asked for."""
REFUSED_SECONDS = 300.0
"""How long a log that was forbidden is not asked for: an API server that starts may lack roles."""


class LogReader:
    """Reads the ends of logs, unless they are forbidden one and all: then it tries again now and then."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._refusals = 0
        self._paused_until = -math.inf

    @property
    def is_paused(self) -> bool:
        """Whether logs are not to be asked for now."""
        return asyncio.get_running_loop().time() < self._paused_until

    async def read_end(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        lines: int,
        keep_bytes: int,
        timestamps: bool = False,
    ) -> str:
        """Return the last lines of a log, at most MAX_LINES and the last bytes of these. Raises KubeError."""
        query = {"tailLines": str(min(lines, MAX_LINES)), "limitBytes": str(MOST_BYTES)}
        query |= {"container": container} if container else {}
        query |= {"timestamps": "true"} if timestamps else {}
        try:
            body = await self._read(namespace, pod, query, keep_bytes)
        except errors.ForbiddenError as error:
            self._count_refusal(error)
            raise
        self._refusals = 0
        return body.decode(errors="replace")

    async def _read(self, namespace: str, pod: str, query: dict[str, str], keep_bytes: int) -> bytearray:
        end, received = bytearray(), 0
        opened = self._client.log_stream(
            namespace, pod, query=query, idle_timeout_seconds=IDLE_TIMEOUT_SECONDS
        )
        async with opened as stream:
            if stream.status != 200:
                raise await responses.error_from_stream(stream)
            async for chunk in stream.chunks():
                end += chunk
                del end[:-keep_bytes]
                received += len(chunk)
                # A kubelet that does not heed `limitBytes` is not read any further.
                if received >= MOST_BYTES:
                    break
        return end

    def _count_refusal(self, error: errors.ForbiddenError) -> None:
        # One may be the fault of one node; several in a row are not.
        self._refusals += 1
        if self._refusals == REFUSALS:
            log.info("cannot read logs, retrying every %d s: %s", REFUSED_SECONDS, error)
        if self._refusals >= REFUSALS:
            self._paused_until = asyncio.get_running_loop().time() + REFUSED_SECONDS
