"""Which containers accept exec, cp and port-forward, as the status of their pod has it."""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from client.scene import Scene, play
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError
from paddlejob.kube.resource import PODS
from paddlejob.testing.build import job

RUNS, WAITS, ENDED = {"running": {}}, {"waiting": {}}, {"terminated": {"exitCode": 0}}
NOT_STARTED, HAS_ENDED = "has not started", "has ended"


def pod_of(phase: str, **states: JsonObject) -> Pod:
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    metadata = {"name": "demo-worker-0", "labels": {"paddle-res-name": "demo-worker-0"}}
    return msgspec.convert(
        {"metadata": metadata, "status": {"phase": phase, "containerStatuses": statuses}}, Pod
    )


EXEC = {
    "a running container": (pod_of("Running", paddle=RUNS), "paddle", ""),
    "a waiting container": (pod_of("Pending", paddle=WAITS), "paddle", NOT_STARTED),
    "an ended container": (pod_of("Running", paddle=ENDED, sidecar=RUNS), "paddle", HAS_ENDED),
    "a sidecar of an ended container": (pod_of("Running", paddle=ENDED, sidecar=RUNS), "sidecar", ""),
    "an ephemeral container": (pod_of("Running", paddle=RUNS), "debugger", ""),
    "an ephemeral container after the others": (pod_of("Running", paddle=ENDED), "debugger", ""),
    "an ephemeral container of an ended pod": (pod_of("Failed", paddle=ENDED), "debugger", HAS_ENDED),
    "a pod without a node": (pod_of("Pending"), "paddle", NOT_STARTED),
    "a rejected pod": (pod_of("Failed"), "paddle", HAS_ENDED),
}


@pytest.mark.parametrize(("pod", "container", "stage"), EXEC.values(), ids=EXEC)
def test_exec_is_refused_only_where_it_cannot_succeed(pod, container, stage):
    with pytest.raises(ClientError, match=stage) if stage else nullcontext():
        ranks.check_running(job().worker(1).build(), pod, container)


FORWARD = {
    "the training container runs": (pod_of("Running", paddle=RUNS), ""),
    "a sidecar runs": (pod_of("Running", paddle=ENDED, sidecar=RUNS), ""),
    "no container runs any more": (pod_of("Running", paddle=ENDED, sidecar=ENDED), HAS_ENDED),
    "no container runs yet": (pod_of("Pending", paddle=WAITS), NOT_STARTED),
}


@pytest.mark.parametrize(("pod", "stage"), FORWARD.values(), ids=FORWARD)
def test_ports_are_forwarded_if_any_container_runs(pod, stage):
    with pytest.raises(ClientError, match=f"paddle of worker-0 {stage}") if stage else nullcontext():
        ranks.check_any_running(job().worker(1).build(), pod)


def test_ports_of_a_sidecar_are_forwarded_after_the_training():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        await scene.runs("demo-worker-0")
        statuses = [
            {"name": name, "state": state, "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
            for name, state in {"paddle": ENDED, "sidecar": RUNS}.items()
        ]
        patch = {"status": {"containerStatuses": statuses}}
        scene.server.patch(PODS, "default", "demo-worker-0", patch, subresource="status")
        await demo.forwarder("0", print)

    play(act)
