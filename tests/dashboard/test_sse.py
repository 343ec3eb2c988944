"""Messages for browsers that read slowly."""

from __future__ import annotations

import asyncio
import json

from paddlejob.dashboard.sse import Message, Outbox


async def fill(outbox: Outbox, data: str, sent: list[str]) -> None:
    while True:
        await outbox.put(Message("lines", data))
        sent.append(data)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_unread_stream_keeps_a_bounded_number_of_bytes():
    outbox, sent = Outbox(max_bytes=1000), []
    source = asyncio.create_task(fill(outbox, "x" * 98, sent))
    await settled()
    assert len(sent) == 10
    first = await outbox.get()
    await settled()
    assert len(sent) == 11
    assert json.loads(first.encode().split(b"data: ")[1]) == "x" * 98
    source.cancel()


async def test_a_message_above_the_bound_is_sent_alone():
    outbox, sent = Outbox(max_bytes=1000), []
    source = asyncio.create_task(fill(outbox, "x" * 5000, sent))
    await settled()
    assert len(sent) == 1
    await outbox.get()
    await settled()
    assert len(sent) == 2
    source.cancel()
