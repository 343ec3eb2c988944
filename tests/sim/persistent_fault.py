"""Faults of every new pod in the namespace `default`, temporarily or permanently."""

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
from simkube.apiserver.server import ApiServer
from simkube.kubelet import outcomes

LOOK_SECONDS = 0.2
"""How long a pod is there at least before it is deleted."""


class Kind(enum.StrEnum):
    """The kind of fault."""

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
    """A fault of the pods of all jobs, and its end."""

    kind: Kind = Kind.NONE
    until_seconds: float = math.inf
    exit_code: int = 1
    after_seconds: float = 0.5
    """Time from the start, or the creation, of the pod to the fault."""

    def outcome(self, pod: JsonObject) -> outcomes.Outcome | None:
        """Return the outcome of a pod's container, None if it is not affected."""
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
        """Delete the affected pods until `until_seconds`. Without writes, no pod is due."""
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
        """Delete the pods that are due; return the time of the next one, or the end of the fault."""
        due = self.until_seconds
        for pod in server.objects(PODS, "default"):
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
