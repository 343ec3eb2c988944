"""Chooses the block of ports that a run reserves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from paddlejob import port_block
from paddlejob.api import names
from paddlejob.api.v1 import PaddleJob
from paddlejob.local.errors import InputError
from paddlejob.port_block import LAST_PORT, MAX_ADDRESSES, PortBlock

FIRST_PORT = 20000


def reserve() -> PortBlock:
    """Return a free block of ports. Raises InputError when there is none.

    The search begins anywhere, because ports that a job has just left may linger in TIME_WAIT.
    """
    blocks = candidate_blocks(_ephemeral_ports())
    start = random.randrange(len(blocks))  # noqa: S311 - no secret
    block = port_block.reserve(blocks[start:] + blocks[:start], names.PORTS_PER_POD)
    if block is None:
        raise InputError(
            f"no {names.PORTS_PER_POD} consecutive ports are free from {FIRST_PORT} to {LAST_PORT}; "
            "stop another run first"
        )
    return block


def candidate_blocks(ephemeral: tuple[int, int]) -> list[int]:
    """Return the first ports of all blocks, outside the range that the kernel hands out if possible."""
    low, high = ephemeral
    width = names.PORTS_PER_POD
    every = range(FIRST_PORT, LAST_PORT - width + 2, width)
    return [port for port in every if port + width <= low or port > high] or list(every)


def size_errors(job: PaddleJob) -> Iterator[str]:
    """Yield what is wrong with the number of pods: each needs an address of the block."""
    pods = sum(spec.replicas for _, spec in job.spec.roles())
    if pods > MAX_ADDRESSES:
        yield f"the job has {pods} pods, but one machine runs at most {MAX_ADDRESSES}; use fewer replicas"


def _ephemeral_ports() -> tuple[int, int]:
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(low), int(high)
