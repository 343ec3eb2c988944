"""The network of a pod on a real node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from devcluster.node.runtime import NodeRuntime


def disconnect(directory: Path, pid: int) -> Callable[[], None]:
    """Take the network from the pod of a process, at the node's end of its cable; return what restores it.

    Raises: ValueError or subprocess.CalledProcessError when the pod is gone.
    """
    machine, [inside] = NodeRuntime(directory).machine_pid(), _links(pid, "show", "dev", "eth0")
    [name] = (each["ifname"] for each in _links(machine, "show") if each["ifindex"] == inside["link_index"])
    _links(machine, "set", name, "down")

    def restore() -> None:
        with suppress(subprocess.CalledProcessError):  # the pod is gone, and its cable too
            _links(machine, "set", name, "up")

    return restore


def _links(process: int, *arguments: str) -> list[dict[str, Any]]:
    command = ["nsenter", f"--target={process}", "--net", "ip", "-json", "link", *arguments]
    answer = subprocess.run(command, check=True, capture_output=True).stdout
    found: list[dict[str, Any]] = json.loads(answer or b"[]")
    return found
