"""Reserves blocks of ports, with loopback addresses, for local runs on one machine.

Paddle's rendezvous servers listen on all addresses, so two jobs with the same port would silently mix.
All local runs reserve their ports here and therefore never overlap.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

LAST_PORT = 65535
GRAIN = 20
"""The unit of reservations, so that overlapping blocks exclude each other."""

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_ADDRESS_BITS = 12
MAX_ADDRESSES = (1 << _ADDRESS_BITS) - 2
"""Number of addresses of a block, which start at 127.0.16.1 or at a later multiple of 4096."""


class PortBlock:
    """A reserved block. Open sockets hold it, so the kernel releases it when the process ends."""

    def __init__(self, first: int, width: int, reservation: ExitStack) -> None:
        self.first = first
        self.width = width
        self._reservation = reservation

    @property
    def last(self) -> int:
        return self.first + self.width - 1

    def address(self, number: int) -> str:
        """Return the n-th loopback address of the block; reserved blocks share no address."""
        assert 0 <= number < MAX_ADDRESSES, number
        network = int(_LOOPBACK.network_address) + (self.first // GRAIN + 1 << _ADDRESS_BITS)
        return str(ipaddress.IPv4Address(network + number + 1))

    def close(self) -> None:
        self._reservation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reserve(candidates: Iterable[int], width: int) -> PortBlock | None:
    """Reserve the first candidate block that is not reserved and has no listener on its ports."""
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
    """Bind an abstract socket name, which belongs to the network namespace like a port and leaves no file."""
    claim = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        claim.bind(f"\0paddlejob/ports/{grain * GRAIN}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    return True


def _is_free(ports: range) -> bool:
    """Return whether every port can be bound on all addresses; a port in TIME_WAIT cannot."""
    with ExitStack() as attempts:
        for port in ports:
            attempt = attempts.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                attempt.bind(("0.0.0.0", port))  # noqa: S104 - tests all addresses
            except OSError:
                return False
    return True
