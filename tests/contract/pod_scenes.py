"""What a kubelet reports of a pod, as a table that holds for the simulated kubelet and for a real one.

The containers of a scene run shell scripts. A real kubelet runs them; the simulated one is told how they end.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.core.pod_set import FINAL_PHASES
from paddlejob.kube.client import Client
from paddlejob.kube.decoding import split_lines
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import CONFIG_MAPS, NODES, PODS
from simkube.kubelet.outcomes import (
    Evict,
    Exit,
    FailImagePull,
    Outcome,
    RunForever,
    Unschedulable,
    crash,
    run_out_of_memory,
)
from tests.support.waiting import eventually_async

POD = "scene"
HOLD = "example.org/hold"
"""A finalizer, so that the last status of a deleted pod can still be read."""


class Shows(msgspec.Struct, frozen=True):
    """What a pod's status comes to show: of each container one line."""

    phase: str
    conditions: dict[str, str]
    containers: dict[str, str] = {}
    reason: str = ""
    message: str = ""


class Scene(msgspec.Struct, frozen=True):
    """A pod, what becomes of its containers on a simulated kubelet, and what is done and seen in turn."""

    spec: JsonObject
    outcomes: dict[str, tuple[Outcome, ...]]
    """By container, of one start after the other; the last one stays."""
    steps: tuple[Shows | str, ...]
    """Names of methods of Stage, and what is waited for."""
    ignores_stop: bool = False
    """Whether containers have to be killed."""

    def behaviour(self, _pod: JsonObject, container: str, restarts: int) -> Outcome:
        """Tell the simulated kubelet how a container ends."""
        decided = self.outcomes[container]
        return decided[min(restarts, len(decided) - 1)]


class Stage:
    """A namespace in which one scene is played."""

    def __init__(self, client: Client, namespace: str, image: str) -> None:
        self.history: list[Shows] = []
        """Every status that the kubelet reported, in order."""
        self._client = client
        self._namespace = namespace
        self._image = image

    async def play(self, scene: Scene) -> None:
        """Play a scene to its end."""
        body = {"metadata": {"name": POD, "finalizers": [HOLD]}, "spec": self._with_image(scene.spec)}
        created = await self._client.create(PODS, self._namespace, body)
        watch = asyncio.create_task(self._watch(created.metadata.resource_version))
        try:
            for step in scene.steps:
                await (self._until(step) if isinstance(step, Shows) else getattr(self, step)())
        finally:
            watch.cancel()
            with suppress(NotFoundError):
                await self._release()
        check_phases(self.history)

    async def _watch(self, version: str) -> None:
        query = {"resourceVersion": version, "timeoutSeconds": "600"}
        stream = self._client.watch_stream(PODS, self._namespace, query, idle_timeout_seconds=600.0)
        async with stream as opened:
            async for line in split_lines(opened.chunks()):
                event = msgspec.json.decode(line)
                if event["type"] == "MODIFIED":
                    self.history.append(shown(event["object"]))

    async def delete(self) -> None:
        """Ask for the pod's end, with the grace that it has."""
        await self._client.delete(PODS, self._namespace, POD)

    async def configure(self) -> None:
        """Create the ConfigMap, and wake the kubelet as the operator does."""
        body = {"metadata": {"name": "settings"}, "data": {"a": "1"}}
        await self._client.create(CONFIG_MAPS, self._namespace, body)
        await self._client.patch(PODS, self._namespace, POD, {"metadata": {"annotations": {"wake": "up"}}})

    async def stop(self) -> None:
        """Stop the pod as the operator does."""
        await self._client.patch(PODS, self._namespace, POD, {"spec": {"activeDeadlineSeconds": 1}})

    async def mark(self) -> None:
        """Mark the pod as failed, as the operator does with a pod that has no node."""
        status = {"phase": MARKED.phase, "reason": MARKED.reason, "message": MARKED.message}
        await self._client.patch(PODS, self._namespace, POD, {"status": status}, subresource="status")

    async def bind(self) -> None:
        """Bind the pod to a node, as a scheduler does that has not seen the last change."""
        node = (await self._client.list(NODES)).items[0]["metadata"]["name"]
        body = {"metadata": {"name": POD}, "target": {"kind": "Node", "name": node}}
        await self._client.create(PODS, self._namespace, body, name=POD, subresource="binding")

    async def gone(self) -> None:
        """Wait until the pod is gone: its kubelet let it go, and nothing holds it any more."""
        await self._release()

        async def is_gone() -> bool:
            try:
                await self._client.get(PODS, self._namespace, POD)
            except NotFoundError:
                return True
            return False

        await eventually_async(is_gone, says=self._shown)

    async def _release(self) -> None:
        await self._client.patch(PODS, self._namespace, POD, {"metadata": {"finalizers": None}})

    async def _until(self, expected: Shows) -> None:
        async def matches() -> bool:
            return await self._shown() == expected

        async def difference() -> str:
            return f"\n  expected {expected}\n  but have {await self._shown()}"

        await eventually_async(matches, within_seconds=120.0, says=difference)

    async def _shown(self) -> Shows:
        return shown(await self._client.get(PODS, self._namespace, POD))

    def _with_image(self, spec: JsonObject) -> JsonObject:
        groups = {field: spec[field] for field in ("initContainers", "containers") if field in spec}
        return {
            **spec,
            **{
                field: [{"image": self._image, **container} for container in group]
                for field, group in groups.items()
            },
        }


def check_phases(history: Sequence[Shows]) -> None:
    """Check that a final phase follows the last container, with its reason and its disruption, and stays."""
    for before, after in pairwise(history):
        assert before.phase not in FINAL_PHASES or after.phase == before.phase, (before, after)
    for each in history:
        if each.phase in FINAL_PHASES:
            assert not any(line.startswith("running") for line in each.containers.values()), each
        else:
            assert not each.reason, each
            assert "DisruptionTarget" not in each.conditions, each


def reports_phase_alone(history: Sequence[Shows]) -> bool:
    """Return whether the kubelet reported the ends of all containers, and the phase in a later write."""
    return any(
        before.phase not in FINAL_PHASES
        and after.phase in FINAL_PHASES
        and all(line.startswith("terminated") for line in before.containers.values())
        for before, after in pairwise(history)
    )


def shown(pod: JsonObject) -> Shows:
    """Return what a controller can tell of a pod, without times and addresses."""
    status = pod["status"]
    entries = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    reason = status.get("reason", "")
    return Shows(
        phase=status["phase"],
        conditions={each["type"]: _condition(each) for each in status.get("conditions") or ()},
        containers={each["name"]: _container(each, pod["metadata"], reason) for each in entries},
        reason=reason,
        message=status.get("message", ""),
    )


def _condition(condition: JsonObject) -> str:
    return f"{condition['status']} {condition.get('reason', '')}".strip()


def _container(entry: JsonObject, metadata: JsonObject, status_reason: str) -> str:
    if status_reason == "Evicted" and "terminated" in entry["state"]:
        # Dead containers of an evicted pod are removed at once: how they ended may or may not be known.
        return "terminated"
    parts = [_state(entry["state"], metadata)]
    if entry["ready"]:
        parts.append("ready")
    if "CrashLoopBackOff" in parts[0]:
        # A loaded node may be too late to report the first back-offs.
        parts = [re.sub("back-off [0-9hms]+ ", "back-off ", parts[0])]
        parts.append("was restarted" if entry["restartCount"] else "was not restarted")
    elif entry["restartCount"]:
        parts.append(f"{entry['restartCount']} restarts")
    if entry.get("lastState") and "terminated" not in entry["state"]:
        # A kubelet removes the earlier container of one that will not run again, some time or other.
        parts.append(f"was {_state(entry['lastState'], metadata)}")
    return ", ".join(parts)


RUNTIMES_WORDS = ("ErrImagePull", "ImagePullBackOff", "StartError")
"""Reasons with a message of the container runtime's."""


def _state(state: JsonObject, metadata: JsonObject) -> str:
    [(kind, details)] = state.items()
    reason = details.get("reason", "")
    words = [kind, str(details.get("exitCode", "")), reason]
    if reason not in RUNTIMES_WORDS:
        message = details.get("message", "").replace(metadata["uid"], "UID")
        words.append(message.replace(metadata["namespace"], "NAMESPACE"))
    return " ".join(word for word in words if word)


SERVE = "trap 'exit 143' TERM; sleep 1000 & wait"
IGNORE = "trap '' TERM; sleep 1000"
FAIL_ONCE = "test -e /state/failed || { touch /state/failed; exit 1; }"
FILL = f"dd if=/dev/zero of=/state/large bs=1M count=5; {SERVE}"

NEVER: JsonObject = {"restartPolicy": "Never"}
ON_FAILURE: JsonObject = {"restartPolicy": "OnFailure"}
STATE: JsonObject = {"volumeMounts": [{"name": "state", "mountPath": "/state"}]}
FROM_CONFIG: JsonObject = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
FROM_KEY: JsonObject = {
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}}]
}


def container(script: str, name: str = "main", **fields: Any) -> JsonObject:
    return {"name": name, "command": ["sh", "-c", script], **fields}


def one(script: str, **spec: Any) -> JsonObject:
    """Return the spec of a pod of one container that is not restarted unless the spec says so."""
    return {"terminationGracePeriodSeconds": 20, **NEVER, "containers": [container(script)], **spec}


def volume(**source: Any) -> JsonObject:
    return {"volumes": [{"name": "state", "emptyDir": source}]}


def conditions(ready: str, *, initialized: str = "True", sandbox: bool = True) -> dict[str, str]:
    return {
        "PodScheduled": "True",
        "PodReadyToStartContainers": str(sandbox),
        "Initialized": initialized,
        "ContainersReady": ready,
        "Ready": ready,
    }


NOT_INITIALIZED = "False ContainersNotInitialized"
READY = conditions("True")
NOT_READY = conditions("False ContainersNotReady")
INITIALIZING = conditions("False ContainersNotReady", initialized=NOT_INITIALIZED)
COMPLETED = conditions("False PodCompleted", initialized="True PodCompleted", sandbox=False)
FAILED = conditions("False PodFailed", sandbox=False)
INIT_FAILED = conditions("False PodFailed", initialized=NOT_INITIALIZED, sandbox=False)
NEVER_READY = conditions("False ContainersNotReady", sandbox=False)

RUNS = Shows("Running", READY, {"main": "running, ready"})
UNSCHEDULABLE = Shows("Pending", {"PodScheduled": "False Unschedulable"})
MARKED = Shows("Failed", {"PodScheduled": "True"}, reason="JobEnded", message="as the operator writes")
WAITS_FOR_CONFIG = 'waiting CreateContainerConfigError configmap "settings" not found'
LOST = "terminated 137 ContainerStatusUnknown The container could not be located when the pod was terminated"
NEVER_RAN = Shows("Failed", NEVER_READY, {"main": LOST})
"""A pod that is deleted before its container has started: a kubelet takes that for a failure."""


def succeeded(**containers: str) -> Shows:
    return Shows("Succeeded", COMPLETED, containers)


def failed(**containers: str) -> Shows:
    return Shows("Failed", FAILED, containers)


def past_deadline(shows: Shows) -> Shows:
    """Return the status of a pod that its kubelet ended because of `activeDeadlineSeconds`."""
    message = "Pod was active on the node longer than the specified deadline"
    return msgspec.structs.replace(shows, reason="DeadlineExceeded", message=message)


def looping(code: int, reason: str, name: str = "main") -> str:
    """Return the line of a container that waits after a restart."""
    message = f"back-off restarting failed container={name} pod={POD}_NAMESPACE(UID)"
    return f"waiting CrashLoopBackOff {message}, was restarted, was terminated {code} {reason}"


RUN = {"main": (RunForever(),)}

SCENES: dict[str, Scene] = {
    "a program that succeeds": Scene(
        one("echo -n done > /dev/termination-log"),
        {"main": (Exit(0, 1.0, message="done"),)},
        (succeeded(main="terminated 0 Completed done"), "delete", "gone"),
    ),
    "a program that fails": Scene(
        one("exit 3"), {"main": (crash(3),)}, (failed(main="terminated 3 Error"), "delete", "gone")
    ),
    "a program that cannot be started": Scene(
        {**NEVER, "containers": [{"name": "main", "command": ["/no/such/program"]}]},
        {"main": (Exit(128, 0.0, reason="StartError"),)},
        (failed(main="terminated 128 StartError"),),
    ),
    "a program that takes more memory than its limit": Scene(
        {
            **NEVER,
            "containers": [
                container("exec python3 -c 'bytearray(10**9)'", resources={"limits": {"memory": "50Mi"}})
            ],
        },
        {"main": (run_out_of_memory(),)},
        (failed(main="terminated 137 OOMKilled"),),
    ),
    "two programs of which one fails": Scene(
        {**NEVER, "containers": [container("exit 0"), container("exit 4", "side")]},
        {"main": (Exit(0, 1.0),), "side": (crash(4),)},
        (failed(main="terminated 0 Completed", side="terminated 4 Error"),),
    ),
    "two programs of which one has ended": Scene(
        {**NEVER, "containers": [container("exit 0"), container(SERVE, "side")]},
        {"main": (Exit(0, 1.0),), "side": (RunForever(),)},
        (
            Shows("Running", NOT_READY, {"main": "terminated 0 Completed", "side": "running, ready"}),
            "delete",
            failed(main="terminated 0 Completed", side="terminated 143 Error"),
            "gone",
        ),
    ),
    "a program that fails again and again": Scene(
        one("exit 1", **ON_FAILURE),
        {"main": (crash(1, after_seconds=0.1),)},
        (Shows("Running", NOT_READY, {"main": looping(1, "Error")}),),
    ),
    "a program that succeeds again and again": Scene(
        one("exit 0", restartPolicy="Always"),
        {"main": (Exit(0, 0.1),)},
        (Shows("Running", NOT_READY, {"main": looping(0, "Completed")}),),
    ),
    "a program that fails once": Scene(
        {**ON_FAILURE, **volume(), "containers": [container(FAIL_ONCE, **STATE)]},
        {"main": (crash(1, after_seconds=0.1), Exit(0, 0.1))},
        (succeeded(main="terminated 0 Completed, 1 restarts"),),
    ),
    "init containers that succeed": Scene(
        one(SERVE, initContainers=[container("exit 0", "one"), container("exit 0", "two")]),
        {"one": (Exit(0, 1.0),), "two": (Exit(0, 1.0),), **RUN},
        (
            Shows(
                "Running",
                READY,
                {"one": "terminated 0 Completed, ready", "two": "terminated 0 Completed, ready"}
                | RUNS.containers,
            ),
        ),
    ),
    "an init container that runs": Scene(
        one(SERVE, initContainers=[container(SERVE, "one"), container("exit 0", "two")]),
        {"one": (RunForever(),), "two": (Exit(),), **RUN},
        (
            Shows(
                "Pending",
                INITIALIZING,
                {"one": "running", "two": "waiting PodInitializing", "main": "waiting PodInitializing"},
            ),
            "delete",
            Shows(
                "Failed",
                INIT_FAILED,
                {
                    "one": "terminated 143 Error",
                    "two": "waiting PodInitializing",
                    "main": "waiting PodInitializing",
                },
            ),
            "gone",
        ),
    ),
    "an init container that fails": Scene(
        one(SERVE, initContainers=[container("exit 5", "one")]),
        {"one": (crash(5),), **RUN},
        (
            Shows(
                "Failed",
                INIT_FAILED,
                {"one": "terminated 5 Error", "main": "waiting PodInitializing"},
            ),
        ),
    ),
    "an init container that fails again and again": Scene(
        one(SERVE, **ON_FAILURE, initContainers=[container("exit 5", "one")]),
        {"one": (crash(5, after_seconds=0.1),), **RUN},
        (
            Shows(
                "Pending",
                INITIALIZING,
                {"one": looping(5, "Error", "one"), "main": "waiting PodInitializing"},
            ),
        ),
    ),
    "a sidecar": Scene(
        {
            **one("sleep 3"),
            "initContainers": [container(SERVE, "proxy", restartPolicy="Always")],
        },
        {"proxy": (RunForever(),), "main": (Exit(0, 3.0),)},
        (
            Shows("Running", READY, {"proxy": "running, ready", "main": "running, ready"}),
            succeeded(proxy="terminated 143 Error", main="terminated 0 Completed"),
        ),
    ),
    "a ConfigMap that is missing at first": Scene(
        {**NEVER, "containers": [container(SERVE, **FROM_CONFIG)]},
        RUN,
        (
            Shows("Pending", NOT_READY, {"main": WAITS_FOR_CONFIG}),
            "configure",
            RUNS,
        ),
    ),
    "a key that is missing": Scene(
        {**NEVER, "containers": [container(SERVE, **FROM_KEY)]},
        RUN,
        (
            "configure",
            Shows(
                "Pending",
                NOT_READY,
                {
                    "main": "waiting CreateContainerConfigError "
                    "couldn't find key b in ConfigMap NAMESPACE/settings"
                },
            ),
            "delete",
            NEVER_RAN,
            "gone",
        ),
    ),
    "an image that does not exist": Scene(
        {**NEVER, "containers": [{"name": "main", "image": "example.org/no-such-image:v1"}]},
        {"main": (FailImagePull(),)},
        (
            Shows("Pending", NOT_READY, {"main": "waiting ErrImagePull"}),
            Shows("Pending", NOT_READY, {"main": "waiting ImagePullBackOff"}),
            "delete",
            NEVER_RAN,
            "gone",
        ),
    ),
    "a pod that fits no node": Scene(
        one(SERVE, nodeSelector={"no": "such-node"}),
        {"main": (Unschedulable(),)},
        (UNSCHEDULABLE, "delete"),
    ),
    "a program that stops when it is asked to": Scene(
        one(SERVE), RUN, (RUNS, "delete", failed(main="terminated 143 Error"), "gone")
    ),
    "a program that has to be killed": Scene(
        one(IGNORE, terminationGracePeriodSeconds=2),
        RUN,
        (RUNS, "delete", failed(main="terminated 137 Error"), "gone"),
        ignores_stop=True,
    ),
    "a pod that outlives its own deadline": Scene(
        one(SERVE, activeDeadlineSeconds=5),
        RUN,
        (RUNS, past_deadline(failed(main="terminated 143 Error"))),
    ),
    "a program that is stopped": Scene(
        one(SERVE), RUN, (RUNS, "stop", past_deadline(failed(main="terminated 143 Error")))
    ),
    "a program that is stopped and has to be killed": Scene(
        one(IGNORE, terminationGracePeriodSeconds=2),
        RUN,
        (RUNS, "stop", past_deadline(failed(main="terminated 137 Error"))),
        ignores_stop=True,
    ),
    "a program that is stopped before its own deadline": Scene(
        one(SERVE, activeDeadlineSeconds=1000),
        RUN,
        (RUNS, "stop", past_deadline(failed(main="terminated 143 Error"))),
    ),
    "a program that is stopped is not restarted": Scene(
        one(SERVE, **ON_FAILURE), RUN, (RUNS, "stop", past_deadline(failed(main="terminated 143 Error")))
    ),
    "a pod that is stopped before it starts": Scene(
        {**NEVER, "containers": [container(SERVE, **FROM_CONFIG)]},
        RUN,
        (Shows("Pending", NOT_READY, {"main": WAITS_FOR_CONFIG}), "stop", past_deadline(failed(main=LOST))),
    ),
    "a pod that is marked as failed before it is bound": Scene(
        one(SERVE, nodeSelector={"no": "such-node"}),
        {"main": (Unschedulable(),)},
        (UNSCHEDULABLE, "mark", "bind", MARKED, "delete", "gone"),
    ),
    "a pod that is evicted": Scene(
        {**NEVER, **volume(sizeLimit="1Mi"), "containers": [container(FILL, **STATE)]},
        {
            "main": (
                Evict(
                    5.0,
                    'Usage of EmptyDir volume "state" exceeds the limit "1Mi". ',
                    is_disruption=False,
                ),
            )
        },
        (
            RUNS,
            msgspec.structs.replace(
                failed(main="terminated"),
                reason="Evicted",
                message='Usage of EmptyDir volume "state" exceeds the limit "1Mi". ',
            ),
        ),
    ),
}
