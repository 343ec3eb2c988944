"""The names that a pod can resolve: its own, and those of the job's services."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_LOCALHOST = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"


def hosts_file(pod: str, address: str, services: Iterable[tuple[str, str]], namespace: str) -> str:
    """Return a pod's /etc/hosts: itself, this machine's own entries, then the services by name and address.

    Services come last, so that the file of a pod that runs only grows.
    """
    lines = [f"{address} {pod}\n", _LOCALHOST, _entries_of_this_machine()]
    for name, at in services:
        qualified = f"{name}.{namespace}"
        spellings = [qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local"]
        if name != pod:
            # A name that is listed twice resolves to two addresses.
            spellings.append(name)
        lines.append(f"{at} {' '.join(spellings)}\n")
    return "".join(lines)


def _entries_of_this_machine() -> str:
    try:
        lines = Path("/etc/hosts").read_text().splitlines()
    except OSError:
        return ""
    entries = (line.partition("#")[0].split() for line in lines)
    return "".join(f"{' '.join(entry)}\n" for entry in entries if len(entry) > 1 and "localhost" not in entry)
