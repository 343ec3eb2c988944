"""Blocks of ports on this machine that no other local run has, and loopback addresses to go with them.

Paddle's rendezvous servers listen on all addresses, so two jobs that use the same port mix silently.
Everything that runs several nodes on one machine reserves its ports here and so respects the others.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

LAST_PORT = 65535
GRAIN = 20
"""Reservations are made in units of this many ports, so that overlapping blocks exclude each other."""

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_ADDRESS_BITS = 12
MAX_ADDRESSES = (1 << _ADDRESS_BITS) - 2
"""How many addresses a block has: from 127.0.16.1, or a later multiple of 4096."""


class PortBlock:
    """A reserved block. Sockets hold it, so the kernel frees it with the process, however that ends."""

    def __init__(self, first: int, width: int, reservation: ExitStack) -> None:
        self.first = first
        self.width = width
        self._reservation = reservation

    @property
    def last(self) -> int:
        """The last port."""
        return self.first + self.width - 1

    def address(self, number: int) -> str:
        """Return the n-th loopback address of the block; blocks that exclude each other share none."""
        assert 0 <= number < MAX_ADDRESSES, number
        network = int(_LOOPBACK.network_address) + (self.first // GRAIN + 1 << _ADDRESS_BITS)
        return str(ipaddress.IPv4Address(network + number + 1))

    def close(self) -> None:
        """Give the block back."""
        self._reservation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reserve(candidates: Iterable[int], width: int) -> PortBlock | None:
    """Reserve the first candidate block that nobody has and on whose ports nothing listens."""
    for first in candidates:
        last = first + width - 1
        if last > LAST_PORT:
            continue
        with ExitStack() as held:
            grains = range(first // GRAIN, last // GRAIN + 1)
            if all(_hold(grain, held) for grain in grains) and _is_free(range(first, last + 1)):
                return PortBlock(first, width, held.pop_all())
    return None


def _hold(grain: int, held: ExitStack) -> bool:
    """Take an abstract socket name: like ports, it belongs to the network namespace, and leaves no file."""
    claim = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        claim.bind(f"\0paddlejob/ports/{grain * GRAIN}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    return True


def _is_free(ports: range) -> bool:
    """Whether every port can be bound on all addresses; one in TIME_WAIT cannot."""
    with ExitStack() as attempts:
        for port in ports:
            attempt = attempts.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                attempt.bind(("0.0.0.0", port))  # noqa: S104 - that is the question
            except OSError:
                return False
    return True
