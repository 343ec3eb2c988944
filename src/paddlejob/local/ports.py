"""Chooses the port block that a run reserves."""

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
    """Reserve a free port block. Raises InputError if there is none.

    The search starts at a random block, because ports of the previous job may still be in TIME_WAIT.
    """
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    blocks = candidate_blocks((low, high))
    start = random.randrange(len(blocks))  # noqa: S311 - not a secret
    block = port_block.reserve(blocks[start:] + blocks[:start], names.PORTS_PER_POD)
    if block is None:
        raise InputError(
            f"no {names.PORTS_PER_POD} consecutive ports are free from {FIRST_PORT} to {LAST_PORT}; "
            "stop another run first"
        )
    return block


def candidate_blocks(ephemeral: tuple[int, int]) -> list[int]:
    """Return the first port of each block, avoiding the ephemeral range if possible."""
    low, high = ephemeral
    width = names.PORTS_PER_POD
    every = range(FIRST_PORT, LAST_PORT - width + 2, width)
    return [port for port in every if port + width <= low or port > high] or list(every)


def size_errors(job: PaddleJob) -> Iterator[str]:
    """Yield an error if the job has more pods than a block has addresses."""
    pods = sum(spec.replicas for _, spec in job.spec.roles())
    if pods > MAX_ADDRESSES:
        yield f"the job has {pods} pods, but one machine runs at most {MAX_ADDRESSES}; use fewer replicas"
