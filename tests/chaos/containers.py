"""Processes on the node, by control groups: the API server only knows the reported state."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from devcluster.node.cgroups import HIERARCHIES, group_name

LOOK_SECONDS = 0.1
PAUSE = b"/pause"
HOSTNAME = re.compile(rb"(?:^|\0)HOSTNAME=([^\0]+)")


@dataclass(frozen=True)
class Container:
    """A container that runs, by the first process in it."""

    namespace: str
    pod: str
    pid: int


class Group(NamedTuple):
    """The control group of a container."""

    uid: str
    """Of its pod."""
    name: str


@dataclass
class Seen:
    """When processes of a container were seen, by the clock of this machine."""

    first: float
    last: float
    pod: str = ""
    """The name of its pod, once a process has it in its environment."""


def running_containers(directory: Path, pods: Iterable[dict[str, Any]]) -> list[Container]:
    """Return the containers of some pods, sorted by pod name."""
    pids: dict[str, list[int]] = {}
    for group, own in processes(directory):
        pids.setdefault(group.uid, []).extend(own)
    heads = (pod["metadata"] for pod in pods)
    found = (
        Container(head["namespace"], head["name"], min(pids[head["uid"]]))
        for head in heads
        if head["uid"] in pids
    )
    return sorted(found, key=lambda each: each.pod)


def processes(directory: Path) -> Iterator[tuple[Group, list[int]]]:
    """Yield the processes of each container of a cluster, without those that only wait."""
    for top in (HIERARCHIES / group_name(directory), HIERARCHIES / "pids" / group_name(directory)):
        # Not glob: it fails when a group goes away while it looks.
        for place, _, files in os.walk(top / "kubepods"):
            pod, name = Path(place).parts[-2:]
            if not pod.startswith("pod") or "cgroup.procs" not in files:
                continue
            try:
                pids = [int(pid) for pid in Path(place, "cgroup.procs").read_text().split()]
            except OSError:
                continue  # the group is gone
            if own := [pid for pid in pids if not _waits(pid)]:
                yield Group(pod.removeprefix("pod"), name), own


def _waits(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(PAUSE)
    except OSError:
        return True  # it has ended


def _pod_name(pids: Iterable[int]) -> str:
    for pid in pids:
        try:
            found = HOSTNAME.search(Path(f"/proc/{pid}/environ").read_bytes())
        except OSError:
            continue  # it has ended
        if found:
            return found[1].decode()
    return ""


class Witness:
    """Looks again and again which containers have processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="witness")
        self._seen: dict[Group, Seen] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def runs_of(self, jobs: Iterable[str]) -> dict[Group, Seen]:
        """Return when each container of some jobs was seen."""
        assert self._thread.is_alive(), "nobody has looked at the processes since the witness failed"
        begins = tuple(f"{job}-" for job in jobs)
        return {group: seen for group, seen in self._seen.copy().items() if seen.pod.startswith(begins)}

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            now = time.time()
            for group, pids in processes(self._directory):
                seen = self._seen.setdefault(group, Seen(now, now))
                seen.last = now
                seen.pod = seen.pod or _pod_name(pids)


def overlaps(runs: Iterable[Seen]) -> list[str]:
    """Return the names of pods of which two containers ran at the same time; each has one."""
    by_name: dict[str, list[Seen]] = {}
    for run in runs:
        by_name.setdefault(run.pod, []).append(run)
    return sorted(
        name
        for name, own in by_name.items()
        if any(one.last >= next_.first for one, next_ in pairwise(sorted(own, key=lambda run: run.first)))
    )
