"""Finding this machine's own address, and whether a port answers."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct

from paddlejob.plainjob.settings import JobSettings

_SIOCGIFADDR = 0x8915
LOOK_EVERY_SECONDS = 0.1
LINE_LIMIT = 1 << 20


def own_address(settings: JobSettings) -> str:
    """Return POD_IP, or the address of CONF_PADDLE_NIC, or that of the host name, or nothing."""
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
            await asyncio.sleep(LOOK_EVERY_SECONDS)


async def until_listening(address: str, port: int) -> None:
    """Return as soon as the port accepts a connection."""
    _, writer = await connect(address, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
