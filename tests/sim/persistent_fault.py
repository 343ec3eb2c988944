"""Faults that do not go away: they hit every new pod of every job, for a time or forever."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
import random

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import PODS
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.kubelet import outcomes

LOOK_SECONDS = 0.2
"""How long a pod is there at least before it is deleted."""


class Kind(enum.StrEnum):
    """What happens to the pods."""

    NONE = "none"
    EXIT = "workers exit at once"
    EVICTION = "pods are evicted at once"
    POD_DEADLINE = "pods outlive their own activeDeadlineSeconds"
    REJECTION = "kubelets reject pods"
    REBOOT = "nodes lose their containers"
    START_ERROR = "nodes cannot start containers"
    DELETION = "somebody deletes every new pod"
    DRAIN = "somebody deletes every finished pod"


class PersistentFault(msgspec.Struct, frozen=True):
    """What keeps happening to the pods of a job, and for how long."""

    kind: Kind = Kind.NONE
    until_seconds: float = math.inf
    exit_code: int = 1
    after_seconds: float = 0.5
    """After what time of running, or of being there."""

    def outcome(self, pod: JsonObject) -> outcomes.Outcome | None:
        """Return what becomes of a pod's container, None if it is not affected."""
        is_worker = pod["metadata"]["labels"][names.LABEL_ROLE] == "worker"
        if asyncio.get_running_loop().time() >= self.until_seconds or not is_worker:
            return None
        match self.kind:
            case Kind.EXIT:
                return outcomes.crash(self.exit_code, after_seconds=self.after_seconds)
            case Kind.EVICTION:
                return outcomes.Evict(after_seconds=self.after_seconds)
            case Kind.POD_DEADLINE:
                return outcomes.outlive_deadline(after_seconds=self.after_seconds)
            case Kind.REJECTION:
                return outcomes.Reject()
            case Kind.REBOOT:
                return outcomes.reboot(after_seconds=self.after_seconds)
            case Kind.START_ERROR:
                return outcomes.fail_to_start()
        return None

    async def delete_pods(self, server: ApiServer) -> None:
        """Delete the affected pods until `until_seconds`. While nobody writes, nothing is due."""
        if self.kind not in (Kind.DELETION, Kind.DRAIN):
            return
        loop = asyncio.get_running_loop()
        seen: dict[str, float] = {}
        written = asyncio.Event()
        server.log.on_write.append(lambda _: written.set())
        while loop.time() < self.until_seconds:
            await asyncio.sleep(LOOK_SECONDS)
            written.clear()
            due = self._delete_due(server, seen, loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await written.wait()

    def _delete_due(self, server: ApiServer, seen: dict[str, float], now: float) -> float:
        """Delete the pods whose time has come; return when the next one's comes, or when all is over."""
        due = self.until_seconds
        for pod in server.objects(PODS):
            metadata = pod["metadata"]
            if self.kind is Kind.DRAIN and pod["status"].get("phase") != "Succeeded":
                continue
            due_at = seen.setdefault(metadata["uid"], now) + self.after_seconds
            if due_at <= now:
                self._delete(server, metadata["namespace"], metadata["name"])
            else:
                due = min(due, due_at)
        return due

    def _delete(self, server: ApiServer, namespace: str, name: str) -> None:
        # It may be gone since it was listed.
        with contextlib.suppress(NotFoundError):
            server.delete(PODS, namespace, name, options={"gracePeriodSeconds": 0}, identity="policy")


def draw(rng: random.Random) -> PersistentFault:
    """Draw a persistent fault; most histories have none."""
    if rng.random() < 0.6:
        return PersistentFault()
    kind = rng.choice([each for each in Kind if each is not Kind.NONE])
    return PersistentFault(
        kind,
        until_seconds=rng.choice((60.0, 600.0, 7200.0)),
        exit_code=rng.choice((rng.randint(1, 255), 15, 101, 143)),
        after_seconds=rng.choice((0.0, 1.0, 30.0)),
    )
