"""Loopback addresses and reserved ports for the pods of `start --local`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from paddlejob import port_block
from paddlejob.plainjob import errors

BLOCKS = 200
"""How many port blocks to try."""


class LoopbackPlace(msgspec.Struct, frozen=True):
    """Addresses of the pods, and the first port of their window."""

    addresses: tuple[str, ...]
    port: int


@contextmanager
def loopback_place(nodes: int, first_port: int, ports: int) -> Iterator[LoopbackPlace]:
    """Hold a free block of ports for as long as the block runs. Raises SettingsError when there is none."""
    step = -(-ports // port_block.GRAIN) * port_block.GRAIN
    block = port_block.reserve((first_port + number * step for number in range(BLOCKS)), ports)
    if block is None:
        raise errors.SettingsError(
            f"no {ports} consecutive ports are free from {first_port} upwards: set CONF_PADDLE_PORT"
        )
    with block:
        yield LoopbackPlace(tuple(block.address(node) for node in range(nodes)), block.first)
