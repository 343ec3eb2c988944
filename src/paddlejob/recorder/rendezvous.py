"""Waits for the master's port before Paddle connects to it.

A rank that starts before the master would try again only after 3 seconds.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Mapping

WAIT_SECONDS = 60.0
"""After this time Paddle waits as it does on its own."""
RETRY_SECONDS = 0.02
CONNECT_SECONDS = 1.0


def master_of(environ: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the address of the master's store, None for the master and without a valid address."""
    endpoints = environ.get("PADDLE_MASTER") or environ.get("PADDLE_TRAINER_ENDPOINTS", "")
    host, _, port = endpoints.split(",")[0].rpartition(":")
    if environ.get("PADDLE_TRAINER_ID", "0") == "0" or not host or not port.isdigit():
        return None
    return host.strip("[]"), int(port)


def wait_for_master(environ: Mapping[str, str] = os.environ) -> None:
    """Return when the master's port accepts connections, or after a limited time."""
    master, deadline = master_of(environ), time.monotonic() + WAIT_SECONDS
    while master is not None and time.monotonic() < deadline:
        try:
            # Paddle's store drops a connection that is closed without a command.
            socket.create_connection(master, CONNECT_SECONDS).close()
        except OSError:
            time.sleep(RETRY_SECONDS)
        else:
            return
