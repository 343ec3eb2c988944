"""A job's own part of this machine: a block of ports and a range of loopback addresses.

Paddle's rendezvous servers listen on all addresses, so that two jobs with the same port mix silently. Each
job therefore gets ports that no other run has, whoever started it.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from paddlejob.api import names
from paddlejob.local.errors import InputError

FIRST_PORT = 20000
LAST_PORT = 65535
_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_ADDRESS_BITS = 12
"""Each slot has 4096 addresses: 127.0.16.0 to 127.0.31.255, and so on."""


class Slot:
    """A reserved slot. It is held by a socket, so that the kernel frees it with the process."""

    def __init__(self, number: int, base_port: int, reservation: socket.socket) -> None:
        self.base_port = base_port
        self._first_address = int(_LOOPBACK.network_address) + (number + 1 << _ADDRESS_BITS)
        self._reservation = reservation

    @property
    def port_range(self) -> tuple[int, int]:
        """First and last port."""
        return self.base_port, self.base_port + names.PORTS_PER_POD - 1

    def address(self, number: int) -> str:
        """Return the address of the n-th pod."""
        if not 0 <= number < (1 << _ADDRESS_BITS) - 2:
            raise InputError(f"a run has at most {(1 << _ADDRESS_BITS) - 2} pods on one machine; use fewer")
        return str(ipaddress.IPv4Address(self._first_address + number + 1))

    def close(self) -> None:
        """Give the slot back."""
        self._reservation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reserve() -> Slot:
    """Return a slot that nobody else has, with ports that nothing listens on.

    The search begins anywhere, because ports that a job has just left may linger in TIME_WAIT.
    Raises InputError when there is none.
    """
    blocks = list(enumerate(candidate_blocks(_ephemeral_ports())))
    start = random.randrange(len(blocks))  # noqa: S311 - no secret
    for number, port in blocks[start:] + blocks[:start]:
        reservation = _reserve(port)
        if reservation is None:
            continue
        if _is_free(port):
            return Slot(number, port, reservation)
        reservation.close()
    raise InputError(
        f"no {names.PORTS_PER_POD} free ports in a row from {FIRST_PORT} to {LAST_PORT}; end a run first"
    )


def candidate_blocks(ephemeral: tuple[int, int]) -> Iterator[int]:
    """Yield the first ports of all blocks, outside the range that the kernel hands out if possible."""
    low, high = ephemeral
    width = names.PORTS_PER_POD
    every = range(FIRST_PORT, LAST_PORT - width + 2, width)
    outside = [port for port in every if port + width <= low or port > high]
    yield from outside or every


def _ephemeral_ports() -> tuple[int, int]:
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    return int(low), int(high)


def _reserve(port: int) -> socket.socket | None:
    """Take an abstract socket name, which belongs to the network namespace as ports do, and to no file."""
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        reservation.bind(f"\0paddlejob/ports/{port}")
    except OSError as error:
        reservation.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return reservation


def _is_free(base_port: int) -> bool:
    """Whether every port of a block can be bound on all addresses."""
    with contextlib.ExitStack() as stack:
        for port in range(base_port, base_port + names.PORTS_PER_POD):
            attempt = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                attempt.bind(("0.0.0.0", port))  # noqa: S104 - that is the question
            except OSError:
                return False
    return True
