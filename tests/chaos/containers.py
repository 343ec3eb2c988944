"""What really runs on the node, by its control groups: the API server only knows what it was told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from devcluster.node.cgroups import HIERARCHIES, group_name

LOOK_SECONDS = 0.1
PAUSE = b"/pause"


@dataclass(frozen=True)
class Container:
    """A container that runs, by the first process in it."""

    namespace: str
    pod: str
    pid: int


@dataclass
class Seen:
    """When processes of a pod were seen, by the clock of this machine."""

    first: float
    last: float


def running_containers(directory: Path, pods: Iterable[dict[str, Any]]) -> list[Container]:
    """Return those of some pods, in order of the pods' names."""
    pids = processes_by_pod(directory)
    found = []
    for pod in pods:
        head = pod["metadata"]
        if own := pids.get(head["uid"]):
            found.append(Container(head["namespace"], head["name"], min(own)))
    return sorted(found, key=lambda each: each.pod)


def processes_by_pod(directory: Path) -> dict[str, list[int]]:
    """Return the processes of a cluster by the uid of their pod, without those that only wait."""
    found: dict[str, list[int]] = {}
    for top in (HIERARCHIES / group_name(directory), HIERARCHIES / "pids" / group_name(directory)):
        for members in top.glob("kubepods/**/pod*/*/cgroup.procs"):
            uid = members.parents[1].name.removeprefix("pod")
            try:
                pids = [int(pid) for pid in members.read_text().split()]
            except OSError:
                continue  # the group is gone
            if own := [pid for pid in pids if not _waits(pid)]:
                found.setdefault(uid, []).extend(own)
    return found


def _waits(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(PAUSE)
    except OSError:
        return True  # it has ended


class Witness:
    """Looks again and again which pods have processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="witness")
        self.seen: dict[str, Seen] = {}
        """By the uid of the pod."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            now = time.time()
            for uid in processes_by_pod(self._directory):
                self.seen.setdefault(uid, Seen(now, now)).last = now


def overlaps(seen: dict[str, Seen], pods: dict[str, str]) -> list[str]:
    """Return the names of pods of which two ran at the same time; `pods` has the name of each uid."""
    by_name: dict[str, list[Seen]] = {}
    for uid, times in seen.items():
        if uid in pods:
            by_name.setdefault(pods[uid], []).append(times)
    return sorted(
        name
        for name, runs in by_name.items()
        if any(one.last >= next_.first for one, next_ in pairwise(sorted(runs, key=lambda run: run.first)))
    )
