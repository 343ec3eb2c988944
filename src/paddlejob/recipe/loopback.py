"""A place for N nodes on one machine: loopback addresses, and a block of ports that nobody else uses.

Two jobs with the same ports at different loopback addresses would mix, because the trainers' rendezvous
listens at all addresses. So every run has ports of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from paddlejob.recipe import errors

BLOCKS = 200
STEP = 20


class LoopbackPlace(msgspec.Struct, frozen=True):
    """Addresses of the nodes, and the first port of their window."""

    addresses: tuple[str, ...]
    port: int


@contextmanager
def loopback_place(nodes: int, first_port: int, ports: int) -> Iterator[LoopbackPlace]:
    """Hold a free block of ports for as long as the block runs. Raises SettingsError when there is none."""
    with ExitStack() as held:
        for block in range(BLOCKS):
            port = first_port + block * STEP
            if port + ports <= 65535 and _claim(port, held) and _all_free(port, ports):
                yield LoopbackPlace(tuple(f"127.1.{block}.{node + 1}" for node in range(nodes)), port)
                return
    raise errors.SettingsError(
        f"no {ports} free ports in a row from {first_port} upwards: set CONF_PADDLE_PORT"
    )


def _claim(port: int, held: ExitStack) -> bool:
    """Agree with other runs on this machine; the claim ends with the process, however it ends."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0paddlejob-recipe-{port}")
    except OSError:
        claim.close()
        return False
    held.callback(claim.close)
    return True


def _all_free(port: int, ports: int) -> bool:
    with ExitStack() as probes:
        for number in range(port, port + ports):
            probe = probes.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", number))  # noqa: S104 - a probe that never listens
            except OSError:
                return False
    return True
