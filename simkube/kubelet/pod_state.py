"""The status that a kubelet reports for a pod, from the states of its containers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from paddlejob.api.meta import JsonObject
from paddlejob.kubelet import ContainerOutcome, phase_of
from simkube.kubelet.node_pool import Placement
from simkube.virtual_loop import timestamp

ENDED = ("Succeeded", "Failed")


class SimulatedContainer:
    """One container: its state and its last state."""

    def __init__(self, container: JsonObject) -> None:
        self.name: str = container["name"]
        self.image: str = container.get("image", "")
        self.is_sidecar = container.get("restartPolicy") == "Always"
        self.restarts = 0
        self.current: JsonObject = {"waiting": {"reason": "ContainerCreating"}}
        self.last: JsonObject = {}
        self._is_restart = False
        self.finished = False
        """It has terminated and will not be started again."""

    def wait(self, reason: str, message: str = "") -> None:
        """Set the state to waiting."""
        waiting = {"reason": reason, "message": message} if message else {"reason": reason}
        self.current = {"waiting": waiting}

    def run(self, at: datetime) -> None:
        """Running since a moment; a restart counts from here on."""
        self.restarts += self._is_restart
        self._is_restart = False
        self.current = {"running": {"startedAt": timestamp(at)}}

    def terminate(self, code: int, at: datetime, *, reason: str = "", message: str = "") -> None:
        """Ended at a moment, with an exit code."""
        started = self.current.get("running", {}).get("startedAt", timestamp(at))
        terminated = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "startedAt": started,
            "finishedAt": timestamp(at),
        }
        self.current = {"terminated": terminated | ({"message": message} if message else {})}

    def lose(self) -> None:
        """Report running containers as killed, as a kubelet does when it gives up a pod."""
        terminated = {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "startedAt": None,
            "finishedAt": None,
        }
        self.current = {"terminated": terminated}

    def give_up(self) -> None:
        """Stay as it last ended: it waits to be started again, but will not be."""
        if self.last and "waiting" in self.current:
            self.current, self.last = self.last, {}
            self._is_restart = False

    def restart(self, reason: str, message: str) -> None:
        """Wait to be started again."""
        self.last = self.current
        self._is_restart = True
        self.wait(reason, message)

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return "running" in self.current

    @property
    def has_started(self) -> bool:
        """Whether it runs or ever ran."""
        return "waiting" not in self.current or bool(self.last)

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it has not."""
        terminated = self.current.get("terminated")
        return None if terminated is None else terminated["exitCode"]

    def status(self, *, ready: bool) -> JsonObject:
        """Return the containerStatuses entry."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"sha256:{self.image}" if self.has_started else "",
            "ready": ready,
            "started": self.is_running,
            "restartCount": self.restarts,
            "state": self.current,
            "lastState": self.last,
        }


class SimulatedPod:
    """Everything that goes into a pod's status."""

    def __init__(self, pod: JsonObject, now: Callable[[], datetime]) -> None:
        spec = pod["spec"]
        self.inits = [SimulatedContainer(container) for container in spec.get("initContainers") or ()]
        self.containers = [SimulatedContainer(container) for container in spec["containers"]]
        for state in (*self.inits, *self.containers) if self.inits else ():
            state.wait("PodInitializing")
        self.placement: Placement | None = None
        self.has_address = False
        self.ready = True
        """Whether running containers pass their probes."""
        self.started_at: datetime | None = None
        self.verdict: JsonObject = {}
        """Phase, reason and message, unless the kubelet derives them from the containers."""
        self.is_released = False
        """Whether the kubelet has let the pod go. The final phase and the verdict are reported only then."""
        self.disruption: JsonObject | None = None
        self._has_lost = False
        self._last_phase = "Pending"
        self._now = now
        self._restart_policy: str = spec.get("restartPolicy", "Always")
        self._conditions: dict[str, JsonObject] = {}

    @property
    def initialized(self) -> bool:
        """Whether all init containers have done their work."""
        return all(state.has_started if state.is_sidecar else state.exit_code == 0 for state in self.inits)

    def phase(self) -> str:
        """Return the phase that follows from the containers; a final one may not be reported yet."""
        if "phase" in self.verdict:
            return str(self.verdict["phase"])
        ends = all(state.finished for state in self.containers)
        inits = _observed(state for state in self.inits if not state.is_sidecar)
        phase = phase_of(self._restart_policy, inits, _observed(self.containers), ends=ends)
        has_sidecar = any(state.is_running for state in self.inits)
        return "Running" if phase in ENDED and has_sidecar else phase

    def let_go(self, *, forgetting: bool = False) -> None:
        """Report an end of every container: nothing that has stopped will be started again.

        How they ended may be forgotten: a kubelet that evicts a pod removes its dead containers at once.
        """
        for state in (*self.inits, *self.containers):
            state.give_up()
        for state in self.containers:
            state.finished = True
            never_ran = self.initialized and not state.has_started
            self._has_lost = self._has_lost or never_ran
            if never_ran or forgetting:
                state.lose()
        if self.phase() not in ENDED:
            self.verdict = {"phase": "Failed"}

    def status(self) -> JsonObject:
        """Return the whole status, as a merge patch can carry it."""
        phase = self.phase()
        ready = self.ready and phase == "Running"
        if phase not in ENDED or self.is_released:
            self._last_phase = phase
        status: JsonObject = {**(self.verdict if self.is_released else {}), "phase": self._last_phase}
        if self.placement is not None:
            status["hostIP"] = self.placement.node_address
            status["startTime"] = timestamp(self.started_at or self._now())
            if self.has_address:
                status["podIP"] = self.placement.pod_address
                status["podIPs"] = [{"ip": self.placement.pod_address}]
            status["containerStatuses"] = [
                state.status(ready=ready and state.is_running) for state in self.containers
            ]
            if self.inits:
                status["initContainerStatuses"] = [
                    state.status(ready=state.is_running if state.is_sidecar else state.exit_code == 0)
                    for state in self.inits
                ]
        status["conditions"] = self._all_conditions(phase, ready=ready)
        return status

    def _all_conditions(self, phase: str, *, ready: bool) -> list[JsonObject]:
        all_ready = ready and all(state.is_running for state in self.containers)
        facts: dict[str, bool] = {"PodScheduled": self.placement is not None}
        if self.placement is not None:
            facts |= {
                "PodReadyToStartContainers": self.has_address and not self.is_released,
                "Initialized": self.initialized,
                "ContainersReady": all_ready,
                "Ready": all_ready,
            }
        reasons = self._reasons(phase)
        conditions = [self._condition(kind, holds, reasons.get(kind, {})) for kind, holds in facts.items()]
        return conditions + ([self.disruption] if self.disruption else [])

    def _reasons(self, phase: str) -> dict[str, JsonObject]:
        if self.placement is None:
            why = {"reason": "Unschedulable", "message": "0 nodes are available"}
            return {"PodScheduled": why}
        if phase == "Succeeded":
            why = {"reason": "PodCompleted"}
            return {"Initialized": why, "ContainersReady": why, "Ready": why}
        reasons: dict[str, JsonObject] = {}
        if not self.initialized:
            waiting = _names(state for state in self.inits if state.exit_code != 0)
            why = {"reason": "ContainersNotInitialized"}
            reasons["Initialized"] = why | {"message": f"containers with incomplete status: [{waiting}]"}
        return reasons | self._reasons_not_ready(phase)

    def _reasons_not_ready(self, phase: str) -> dict[str, JsonObject]:
        if not self.ready:
            return {"Ready": {"reason": "NodeNotReady"}} if phase == "Running" else {}
        waiting = _names(state for state in self.containers if not state.is_running)
        why = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{waiting}]"}
        if phase == "Failed" and (not self._has_lost or self.verdict.get("reason")):
            why = {"reason": "PodFailed"}
        return {"ContainersReady": why, "Ready": why} if waiting else {}

    def _condition(self, kind: str, holds: bool, why: JsonObject) -> JsonObject:  # noqa: FBT001
        value: dict[str, Any] = {"type": kind, "status": "True" if holds else "False"}
        value |= why
        previous = self._conditions.get(kind)
        if previous is not None and previous["status"] == value["status"]:
            value["lastTransitionTime"] = previous["lastTransitionTime"]
        else:
            value["lastTransitionTime"] = timestamp(self._now())
        self._conditions[kind] = value
        return value


def _observed(states: Iterable[SimulatedContainer]) -> list[ContainerOutcome]:
    return [ContainerOutcome(state.has_started, state.exit_code) for state in states]


def _names(states: Iterable[SimulatedContainer]) -> str:
    return " ".join(state.name for state in states)
