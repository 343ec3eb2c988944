"""Reads the end of a container's log, and no more than that, whatever the server sends."""

from __future__ import annotations

from paddlejob.kube import responses
from paddlejob.kube.client import Client

IDLE_TIMEOUT_SECONDS = 10.0


async def read_end(
    client: Client,
    namespace: str,
    pod: str,
    container: str,
    *,
    lines: int,
    limit_bytes: int,
    timestamps: bool = False,
) -> str:
    """Return the last lines of a log. Raises KubeError."""
    query = {"tailLines": str(lines), "limitBytes": str(limit_bytes)}
    query |= {"container": container} if container else {}
    query |= {"timestamps": "true"} if timestamps else {}
    body = bytearray()
    async with client.log_stream(
        namespace, pod, query=query, idle_timeout_seconds=IDLE_TIMEOUT_SECONDS
    ) as stream:
        if stream.status != 200:
            raise await responses.error_from_stream(stream)
        async for chunk in stream.chunks():
            body += chunk
            # A kubelet that does not heed `limitBytes` is not read any further.
            if len(body) > 2 * limit_bytes:
                break
    return bytes(body).decode(errors="replace")
