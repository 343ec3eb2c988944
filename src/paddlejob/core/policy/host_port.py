"""Which ports a job with `intranet: Host` gets: a block of its own, on every node."""

from __future__ import annotations

import zlib
from collections.abc import Set as AbstractSet

from paddlejob.api import names


def choose_base_port(
    job_uid: str,
    port_range: tuple[int, int],
    taken: AbstractSet[int],
    declared: AbstractSet[int] = frozenset(),
) -> int | None:
    """Return a free base port, or None when the range is used up.

    `taken` are the base ports of other jobs, `declared` the ports that this job's own containers listen on:
    a sidecar inside the block would have its pods refused, and the block stays a job's for life.
    The search starts at a place that depends on the job's UID, so that two operators that do not see each
    other's choice yet are unlikely to make the same one.
    """
    first, last = port_range
    blocks = (last - first + 1) // names.PORTS_PER_POD
    start = zlib.crc32(job_uid.encode()) % max(blocks, 1)
    ends = {port + names.PORTS_PER_POD - 1 for port in taken}
    used = {(port - first) // names.PORTS_PER_POD for port in (*taken, *ends, *declared)}
    in_turn = ((start + step) % blocks for step in range(blocks))
    free = next((block for block in in_turn if block not in used), None)
    return None if free is None else first + free * names.PORTS_PER_POD
