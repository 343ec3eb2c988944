"""A flood of connections from a separate process, bounded in number and time.

    python -m tests.support.flood {silent,tls,reports,metrics} PORT COUNT SECONDS SOURCE...

Each of COUNT clients connects from one of the source addresses, and again when it is disconnected. Those of
`silent` send nothing, of `tls` nothing after the handshake, of `reports` a report with a forged token, of
`metrics` three requests, of which they read every byte that is sent back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from contextlib import suppress

import uvloop

PAUSE_SECONDS = 0.2
_POD = {"name": "demo-worker-0", "uid": "forged"}
_CLAIMS = {"aud": ["paddlejob-recorder"], "exp": 4e9, "kubernetes.io": {"namespace": "default", "pod": _POD}}
TOKEN = f"e30.{base64.urlsafe_b64encode(json.dumps(_CLAIMS).encode()).decode().rstrip('=')}.c2ln"
SENT = {
    "silent": "",
    "tls": "",
    "reports": f"POST /v1/report HTTP/1.1\r\nContent-Length: 2\r\nAuthorization: Bearer {TOKEN}\r\n\r\n{{}}",
    "metrics": "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 3,
}


async def attack(
    port: int, source: str, context: ssl.SSLContext | None, sent: bytes, attempts: list[str]
) -> None:
    while True:
        writer = None
        attempts.append(source)
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0), ssl=context
            )
            writer.write(sent)
            while await reader.read(1 << 16):
                pass
        if writer is not None:
            writer.close()
        await asyncio.sleep(PAUSE_SECONDS)


async def main(kind: str, port: int, count: int, seconds: float, sources: list[str]) -> None:
    attempts: list[str] = []
    context = None
    if kind in ("tls", "reports"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    clients = [
        asyncio.create_task(
            attack(port, sources[number % len(sources)], context, SENT[kind].encode(), attempts)
        )
        for number in range(count)
    ]
    print("begun", flush=True)
    await asyncio.sleep(seconds)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    print(len(attempts), flush=True)


if __name__ == "__main__":
    kind, port, count, seconds, *sources = sys.argv[1:]
    uvloop.install()
    asyncio.run(main(kind, int(port), int(count), float(seconds), sources))
