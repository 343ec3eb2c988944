"""No pod outlives the deadlines of its job by more than the time to stop it."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import PODS
from simkube.apiserver.server import ApiServer

LOOK_SECONDS = 5.0
BOUND_SECONDS = 150.0
"""For the operator to come back, a pod's grace period, and its removal by force from a node that is gone."""
LIMITS = frozenset({"activeDeadlineSeconds", "startupDeadlineSeconds"})
"""Jobs without any have nothing to outlive."""
ENDED = ("Succeeded", "Failed")
ENDED_PHASES = ("Completed", "Failed")
DEADLINE_REASONS = (Reason.DEADLINE_EXCEEDED, Reason.STARTUP_DEADLINE_EXCEEDED)


class DeadlineMissedError(AssertionError):
    """A pod runs, or may start, although its job is out of time."""


class Deadlines:
    """Measures with the clock of the simulation, not with timestamps of objects."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._running: dict[str, float] = defaultdict(float)
        """For how long each job has been seen in phase Running, by UID."""
        self._waiting: dict[str, float] = defaultdict(float)
        """For how long each job has been waited for before it first ran."""
        self._enforced_at: float | None = None

    def enforce(self) -> None:
        """Begin to check: the API server can be reached from now on."""
        self._enforced_at = asyncio.get_running_loop().time()

    async def watch(self) -> None:
        """Check all jobs periodically until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for each in self._server.objects(PADDLE_JOBS):
                self.look(each)

    def look(self, each: JsonObject) -> None:
        """Count the time that has passed for a job, and check its pods once that is too much."""
        uid, spec, status = each["metadata"]["uid"], each["spec"], each.get("status") or {}
        phase = status.get("phase", "")
        if phase in ENDED_PHASES and status.get("reason") not in DEADLINE_REASONS:
            # The job has ended; other rules apply to its pods.
            return
        if phase == "Suspended" or spec.get("suspend"):
            self._waiting[uid] = 0.0
        elif phase == "Running":
            self._running[uid] += LOOK_SECONDS
        elif not status.get("startTime"):
            self._waiting[uid] += LOOK_SECONDS
        active = spec.get("activeDeadlineSeconds", 0)
        is_late = active > 0 and self._running[uid] > active + BOUND_SECONDS
        is_late |= not status.get("startTime") and (
            self._waiting[uid] > spec.get("startupDeadlineSeconds", 10**9) + BOUND_SECONDS
        )
        if is_late and self._is_enforced() and (pods := self._active_pods(uid)):
            raise DeadlineMissedError(f"{each['metadata']['name']} ({phase}) is out of time, but has {pods}")

    def _is_enforced(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._enforced_at is not None and now > self._enforced_at + BOUND_SECONDS

    def _active_pods(self, uid: str) -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in self._server.objects(PODS)
            if pod["metadata"].get("ownerReferences", [{}])[0].get("uid") == uid
            and pod["status"].get("phase") not in ENDED
            and not _is_stopped_on_lost_node(pod)
        ]


def _is_stopped_on_lost_node(pod: JsonObject) -> bool:
    """Return whether a pod ends as soon as its node returns, or is deleted by the node controller before."""
    conditions = pod["status"].get("conditions") or ()
    is_lost = any(each.get("reason") == "NodeNotReady" for each in conditions)
    return is_lost and pod["spec"].get("activeDeadlineSeconds") == 1
