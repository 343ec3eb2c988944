"""Waiting for a real API server."""

from __future__ import annotations

import time

from devcluster import ApiError, ControlPlane


def until_there(plane: ControlPlane, path: str) -> None:
    """Wait until something can be read."""
    deadline = time.monotonic() + 30
    while True:
        try:
            plane.request("GET", path)
        except ApiError as error:
            if error.code not in (404, 429) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
