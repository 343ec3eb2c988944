"""Decides whether the command of a container does the same when it runs again."""

from __future__ import annotations

import os
import stat
from typing import Iterator, List, Mapping

KEEP_ENV = "PADDLEJOB_KEEP_ENV"
"""Names of variables that the template of the pod sets, so that no attempt changes them."""


def can_run_again(command: List[bytes], environment: Mapping[bytes, bytes]) -> bool:
    """Return whether a command of PID 1 can be executed in a child, once for each attempt."""
    # A fork copies only one of several threads.
    if os.getpid() != 1 or len(os.listdir("/proc/self/task")) > 1:
        return False
    if _is_input(0) or any(part.startswith((b"/dev/fd/", b"/proc/self/fd/")) for part in command):
        return False
    return not any(address in part for part in command for address in _addresses(environment))


def _is_input(file: int) -> bool:
    """Return whether a program can read something; a pipe has no second copy for the next attempt.

    A terminal is input, too, and sends its signals to both processes.
    """
    try:
        return os.isatty(file) or not stat.S_ISCHR(os.fstat(file).st_mode)
    except OSError:
        return True


def _addresses(environment: Mapping[bytes, bytes]) -> Iterator[bytes]:
    """Yield what changes with each attempt; a shell may have written it into the command."""
    kept = environment.get(KEEP_ENV.encode(), b"").split(b",")
    for name, value in environment.items():
        if name in kept:
            continue
        is_address = name in (b"PADDLE_PORT", b"PADDLE_MASTER", b"PADDLE_PSERVERS_IP_PORT_LIST")
        if is_address or name.endswith((b"_ENDPOINT", b"_ENDPOINTS")):
            yield from filter(None, value.split(b","))
        if name == b"PADDLE_TRAINERS":
            # Another worker may get a new pod, with another address. The names of services stay.
            others = set(value.split(b",")) - {environment.get(b"POD_IP", b"")}
            yield from (host for host in others if host.replace(b".", b"").isdigit())
