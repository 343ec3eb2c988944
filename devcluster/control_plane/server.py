"""The process that holds a background cluster: `python -m devcluster.control_plane.server DIRECTORY`."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from devcluster.cache import write_atomically
from devcluster.control_plane.plane import ControlPlane
from devcluster.errors import DevclusterError
from devcluster.processes import Record
from devcluster.settings import ClusterSettings

ORDER = "order.json"
"""Request to the server."""
STATE = "cluster.json"
"""Answer of the server after the cluster is ready."""
READY = b"ready"


def as_json(settings: ClusterSettings) -> Any:
    """Give settings as they read back from a file."""
    return json.loads(json.dumps(asdict(settings)))


def from_json(stored: dict[str, Any]) -> ClusterSettings:
    """Give the settings that `as_json` was given."""
    extra = {name: tuple(values) for name, values in stored["extra_args"].items()}
    lists = {name: tuple(stored[name]) for name in ("components", "controllers")}
    return ClusterSettings(**{**stored, **lists, "extra_args": extra})


def serve(directory: Path) -> None:
    """Hold the control plane that the order in the directory asks for, until a signal or the owner's end."""
    # It outlives its starter, and must not hold the locks and pipes of that process open.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGTERM, _exit_in_order)
    order = json.loads((directory / ORDER).read_text())
    settings = from_json(order["settings"])
    owner = Record(**order["owner"]) if order["owner"] else None
    with ControlPlane.start_with(settings, directory=directory) as plane:
        state = {"access": asdict(plane.access), "settings": as_json(settings)}
        write_atomically(directory / STATE, json.dumps(state, default=str, indent=1), mode=0o600)
        os.write(1, READY)
        # The starter reads the pipe until it closes.
        os.dup2(2, 1)
        _wait_for_an_end(plane, owner)


def _exit_in_order(_signal: int, _frame: object) -> NoReturn:
    # An exception, so that the `with` block ends the components wherever the signal arrives.
    sys.exit(0)


def _wait_for_an_end(plane: ControlPlane, owner: Record | None) -> None:
    """Return when the owner has ended; raise when a component has."""
    handles = {record.name: record.open() for record in (*plane.records(), *([owner] if owner else []))}
    ended = [name for name, handle in handles.items() if handle is None] or _first_ended(handles)
    if "owner" not in ended:
        raise DevclusterError(
            f"{', '.join(ended)} ended unexpectedly; see the logs in {plane.directory / 'logs'}."
        )


def _first_ended(handles: Mapping[str, int | None]) -> list[str]:
    poller = select.poll()
    for handle in handles.values():
        if handle is not None:
            poller.register(handle, select.POLLIN)
    ready = {handle for handle, _ in poller.poll()}
    return [name for name, handle in handles.items() if handle in ready]


def main() -> None:
    """Run the server of the directory named on the command line."""
    try:
        serve(Path(sys.argv[1]))
    except DevclusterError as error:
        sys.exit(str(error))
    except BrokenPipeError:
        sys.exit("The command that started this cluster was ended before the cluster was ready.")


if __name__ == "__main__":
    main()
