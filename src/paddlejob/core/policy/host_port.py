"""Which ports a job with `intranet: Host` gets: a block of its own, on every node."""

from __future__ import annotations

import zlib
from collections.abc import Set as AbstractSet

from paddlejob.api import names


def choose_base_port(job_uid: str, port_range: tuple[int, int], taken: AbstractSet[int]) -> int | None:
    """Return a free base port, or None when the range is used up.

    The search starts at a place that depends on the job's UID, so that two operators that do not see each
    other's choice yet are unlikely to make the same one.
    """
    first, last = port_range
    blocks = (last - first + 1) // names.PORTS_PER_POD
    start = zlib.crc32(job_uid.encode()) % max(blocks, 1)
    for step in range(blocks):
        port = first + (start + step) % blocks * names.PORTS_PER_POD
        if not any(port - names.PORTS_PER_POD < other < port + names.PORTS_PER_POD for other in taken):
            return port
    return None
