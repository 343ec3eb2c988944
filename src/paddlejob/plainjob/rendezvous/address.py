"""Addresses and ports: of this pod, and of the local pods of `start --local`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator

import msgspec

from paddlejob import port_block
from paddlejob.plainjob import errors
from paddlejob.plainjob.settings import JobSettings

_SIOCGIFADDR = 0x8915
RETRY_SECONDS = 0.1
LINE_LIMIT = 1 << 20
PORT_BLOCKS = 200
"""The number of port blocks to try."""


def own_address(settings: JobSettings) -> str:
    """Return POD_IP, the address of CONF_PADDLE_NIC, the address of the host name, or an empty text."""
    if settings.pod_ip:
        return settings.pod_ip
    with contextlib.suppress(OSError):
        return interface_address(settings.nic)
    with contextlib.suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return ""


def interface_address(nic: str) -> str:
    """Return the IPv4 address of a network device. Raises OSError when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", nic.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])


async def connect(address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection as soon as the port accepts one."""
    while True:
        try:
            return await asyncio.open_connection(address, port, limit=LINE_LIMIT)
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)


async def until_listening(address: str, port: int) -> None:
    """Return as soon as the port accepts a connection."""
    _, writer = await connect(address, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class LoopbackPods(msgspec.Struct, frozen=True):
    """Addresses of the local pods, and the first port of their window."""

    addresses: tuple[str, ...]
    port: int


@contextlib.contextmanager
def reserve_loopback(nodes: int, first_port: int, ports: int) -> Iterator[LoopbackPods]:
    """Reserve free ports while the block runs. Raises SettingsError when there are none."""
    step = -(-ports // port_block.GRAIN) * port_block.GRAIN
    block = port_block.reserve((first_port + number * step for number in range(PORT_BLOCKS)), ports)
    if block is None:
        raise errors.SettingsError(
            f"no {ports} consecutive ports are free from {first_port} upwards: set CONF_PADDLE_PORT"
        )
    with block:
        yield LoopbackPods(tuple(block.address(node) for node in range(nodes)), block.first)
