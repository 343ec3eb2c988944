"""Container logs as a kubelet serves them: since a time, the last lines, or followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import TransportError

LOOK_SECONDS = 0.02
"""How often a followed log looks for more."""


class Instance(NamedTuple):
    """One start of one container of one pod."""

    uid: str
    container: str
    restarts: int


class LoggedLine(NamedTuple):
    """A line and when it was written."""

    time: datetime
    nanoseconds: int
    """Nanoseconds, which differ for lines of the same microsecond."""
    text: bytes

    def encoded(self, *, timestamps: bool) -> bytes:
        """Return the line as it is sent."""
        stamp = f"{self.time:%Y-%m-%dT%H:%M:%S.%f}{self.nanoseconds:03}Z ".encode() if timestamps else b""
        return stamp + self.text + b"\n"


class ContainerLogs:
    """The logs of all containers of a cluster."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lines: dict[Instance, list[LoggedLine]] = {}
        self._cuts = 0
        self.opened = 0
        """How many logs were asked for."""

    def write(
        self, pod: JsonObject, text: bytes, *, container: str = "", time: datetime | None = None
    ) -> None:
        """Add lines to the log of a container, by default the first, as it runs now."""
        lines = self._lines.setdefault(instance_of(pod, container), [])
        for line in text.splitlines():
            lines.append(LoggedLine(time or self._now(), len(lines) % 1000, line))

    def cut(self) -> None:
        """Break the connections of all followers, in the middle of a line if one is being sent."""
        self._cuts += 1

    def read(self, pod: JsonObject, query: Mapping[str, str]) -> bytes:
        """Return the answer to a request without `follow`."""
        timestamps = _flag(query, "timestamps")
        encoded = b"".join(line.encoded(timestamps=timestamps) for line in self._wanted(pod, query))
        # Counted from the first selected line, also with `tailLines`: the newest lines are cut off.
        limit = query.get("limitBytes", "")
        return encoded[: int(limit)] if limit.isdecimal() else encoded

    async def follow(
        self, pod: JsonObject, query: Mapping[str, str], is_running: Callable[[Instance], bool]
    ) -> AsyncIterator[bytes]:
        """Yield the log until the container has ended."""
        self.opened += 1
        cuts, timestamps = self._cuts, _flag(query, "timestamps")
        instance = instance_of(pod, query.get("container", ""))
        lines = self._lines.setdefault(instance, [])
        wanted = self._wanted(pod, query)
        position = len(lines)
        while True:
            encoded = b"".join(line.encoded(timestamps=timestamps) for line in wanted)
            if cuts != self._cuts:
                if encoded:
                    yield encoded[: len(encoded) - 3]
                raise TransportError("the connection broke in the middle of a response")
            if encoded:
                yield encoded
            has_ended = not is_running(instance)
            wanted, position = lines[position:], len(lines)
            if has_ended and not wanted:
                return
            if not wanted:
                await asyncio.sleep(LOOK_SECONDS)

    def _wanted(self, pod: JsonObject, query: Mapping[str, str]) -> list[LoggedLine]:
        instance = instance_of(pod, query.get("container", ""))
        if _flag(query, "previous"):
            instance = instance._replace(restarts=instance.restarts - 1)
        lines = self._lines.get(instance, [])
        if since := query.get("sinceTime"):
            # The API server passes it on to the kubelet in whole seconds.
            begin = datetime.fromisoformat(since).replace(microsecond=0)
            lines = [line for line in lines if line.time >= begin]
        tail = query.get("tailLines", "")
        return lines[max(0, len(lines) - int(tail)) :] if tail.isdecimal() else list(lines)


def instance_of(pod: JsonObject, container: str = "") -> Instance:
    """Return the present instance of a container, by default of the first."""
    name = container or pod["spec"]["containers"][0]["name"]
    return Instance(pod["metadata"]["uid"], name, _status(pod, name).get("restartCount", 0))


def waiting_reason(pod: JsonObject, container: str = "") -> str:
    """Return why a container has no log yet, empty when it has one."""
    status = _status(pod, container or pod["spec"]["containers"][0]["name"])
    state = status.get("state") or {}
    if "running" in state or "terminated" in state or (status.get("lastState") or {}).get("terminated"):
        return ""
    return str((state.get("waiting") or {}).get("reason") or "ContainerCreating") if status else ""


def is_running(pod: JsonObject, container: str) -> bool:
    """Return whether a container runs according to the status of its pod."""
    return "running" in (_status(pod, container).get("state") or {})


def _status(pod: JsonObject, container: str) -> JsonObject:
    status = pod.get("status") or {}
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found: JsonObject = next((each for each in every if each["name"] == container), {})
    return found


def _flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in {"1", "true"}
