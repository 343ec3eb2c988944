"""Reads the last lines of container logs, bounded in size and time."""

from __future__ import annotations

import asyncio
import logging
import math

from paddlejob.api.pod import Pod
from paddlejob.kube import errors, responses
from paddlejob.kube.backoff import Backoff
from paddlejob.kube.client import Client

log = logging.getLogger(__name__)

READ_TIMEOUT_SECONDS = 5.0
"""Timeout from the request to the last byte of a log."""
SILENCE_BACKOFF = Backoff(10.0, 300.0)
"""Pause after a node did not send a log within the timeout."""
MAX_BYTES = 2 * 1024 * 1024
"""Maximum size of a response. Kubelets count `limitBytes` from the first of `tailLines`, so a lower limit
would cut off the newest lines. Container runtimes break lines at 16 KiB, so MAX_LINES lines fit."""
MAX_LINES = 100
REFUSALS = 3
"""Number of consecutive 403 responses after which reading pauses."""
REFUSED_SECONDS = 300.0
"""Pause after 403 responses. It ends because a starting API server may not have loaded its roles yet."""


class LogReader:
    """Reads the ends of logs. Pauses after 403 responses, and for nodes that do not respond."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._refusals = 0
        self._paused_until = -math.inf
        self._silences: dict[tuple[str, str], tuple[int, float]] = {}
        """Consecutive timeouts and the end of the pause, by namespace and node.

        The namespace is part of the key so that a slow log of one tenant does not block others.
        """

    def may_read(self, pod: Pod) -> bool:
        """Return whether the log of a pod may be requested now."""
        now = asyncio.get_running_loop().time()
        return now >= max(self._paused_until, self._silences.get(_source(pod), (0, -math.inf))[1])

    async def read_end(
        self,
        pod: Pod,
        container: str,
        *,
        lines: int,
        keep_bytes: int,
        timestamps: bool = False,
        timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> str:
        """Return the last lines of a log, at most MAX_LINES and `keep_bytes`. Raises KubeError."""
        query = {"tailLines": str(min(lines, MAX_LINES)), "limitBytes": str(MAX_BYTES)}
        query |= {"container": container} if container else {}
        query |= {"timestamps": "true"} if timestamps else {}
        try:
            async with asyncio.timeout(timeout_seconds):
                body = await self._read(pod, query, keep_bytes)
        except errors.ForbiddenError as error:
            self._count_refusal(error)
            raise
        except (TimeoutError, errors.TransportTimeoutError):
            self._count_silence(pod)
            raise errors.TransportTimeoutError(
                f"no log of pod {pod.metadata.name} from node {pod.spec.node_name} in {timeout_seconds:g}s"
            ) from None
        self._refusals = 0
        self._silences.pop(_source(pod), None)
        return body.decode(errors="replace")

    async def _read(self, pod: Pod, query: dict[str, str], keep_bytes: int) -> bytearray:
        end, received = bytearray(), 0
        async with self._client.log_stream(pod.metadata.namespace, pod.metadata.name, query=query) as stream:
            if stream.status != 200:
                raise await responses.error_from_stream(stream)
            async for chunk in stream.chunks():
                end += chunk
                del end[:-keep_bytes]
                received += len(chunk)
                # The kubelet ignores `limitBytes`.
                if received >= MAX_BYTES:
                    break
        return end

    def _count_silence(self, pod: Pod) -> None:
        # Concurrent reads count as one failure.
        if not self.may_read(pod):
            return
        now = asyncio.get_running_loop().time()
        failures = self._silences.get(_source(pod), (0, now))[0] + 1
        forgotten_at = now - SILENCE_BACKOFF.max_seconds
        self._silences = {source: each for source, each in self._silences.items() if each[1] > forgotten_at}
        self._silences[_source(pod)] = failures, now + SILENCE_BACKOFF.base_seconds(failures)

    def _count_refusal(self, error: errors.ForbiddenError) -> None:
        # A single 403 may be caused by one node; several in a row are a missing permission.
        self._refusals += 1
        if self._refusals == REFUSALS:
            log.info("cannot read logs, retrying every %d s: %s", REFUSED_SECONDS, error)
        if self._refusals >= REFUSALS:
            self._paused_until = asyncio.get_running_loop().time() + REFUSED_SECONDS


def _source(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.spec.node_name
