"""Ranks and their pods, and which containers accept exec, cp and port-forward."""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from client.scene import Scene, play
from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob, TrainingProgress
from paddlejob.client import ranks
from paddlejob.client.errors import ClientError
from paddlejob.kube.resource import PODS
from simkube.build import job

RUNS, WAITS, ENDED = {"running": {}}, {"waiting": {}}, {"terminated": {"exitCode": 0}}
NOT_STARTED, HAS_ENDED = "has not started", "has ended"


def pod_of(phase: str, **states: JsonObject) -> Pod:
    statuses = [{"name": name, "state": state} for name, state in states.items()]
    labels = {"paddle-res-name": "demo-worker-0", "paddle-res-type": "worker"}
    metadata = {"name": "demo-worker-0", "labels": labels}
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


def test_a_moved_rank_means_the_pod_that_holds_it():
    of = job().worker(3).build()
    moved = msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, moved_ranks="1:3"))
    assert [ranks.place_of(moved, rank).pods for rank in ("0", "1", "worker-1")] == [
        "worker-0",
        "worker-3",
        "worker-1",
    ]
    assert ranks.place_of(of, "1").pods == "1"


def test_a_spare_is_shown_as_one_until_it_starts():
    waiting = pod_of("Pending", paddle=WAITS)
    metadata = msgspec.structs.replace(waiting.metadata, annotations={names.ANNOTATION_SPARE: "true"})
    status = msgspec.structs.replace(waiting.status, pod_ip="10.0.0.1")
    spare = msgspec.structs.replace(waiting, metadata=metadata, status=status)
    assert ranks.waits_as_spare(spare)
    assert not ranks.waits_as_spare(msgspec.structs.replace(waiting, status=status))
    started = msgspec.structs.replace(pod_of("Running", paddle=RUNS), metadata=metadata)
    assert not ranks.waits_as_spare(started)


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


def several(command: str, *, reported: int = 0, pods: int = 2, **container: JsonObject) -> PaddleJob:
    built = job().worker(pods, command=command.split(), **container).build()
    progress = TrainingProgress(processes=reported) if reported else None
    return msgspec.structs.replace(built, status=msgspec.structs.replace(built.status, progress=progress))


LAUNCH = "python -m paddle.distributed.launch"
GPUS = {"resources": {"limits": {"nvidia.com/gpu": 8, "rdma/hca": 1}}}
GPU_MEMORY = {"resources": {"limits": {"aliyun.com/gpu-mem": 16}}}
COUNTS = {
    "a plain program": (several("python train.py --nproc_per_node 4", **GPUS), 1),
    "the launcher": (several(f"{LAUNCH} train.py"), 1),
    "a number": (several(f"{LAUNCH} --nproc_per_node=4 train.py"), 4),
    "a list of cards": (several("fleetrun --gpus 0,1,2 train.py", **GPUS), 3),
    "all cards": (several(f"{LAUNCH} train.py", **GPUS), 8),
    "a kit": (several("paddleformers-cli train /config/sft.yaml", **GPUS), 8),
    "parts of a card": (several(f"{LAUNCH} train.py", **GPU_MEMORY), 1),
    "a report": (several("paddleformers-cli train", reported=8), 8),
    "a report of another number": (several(f"{LAUNCH} --nproc_per_node 4 train.py", reported=2), 2),
}


@pytest.mark.parametrize(("state", "count"), COUNTS.values(), ids=COUNTS)
def test_the_number_of_processes_is_reported_or_in_the_spec(state, count):
    assert ranks.processes_per_pod(state) == count


FOUR = several(f"{LAUNCH} --nproc_per_node 4 train.py")
PLACES = {
    "0": ("worker-0", 0),
    "5": ("worker-1", 1),
    "worker-1": ("worker-1", None),
    "worker": ("worker", None),
    "all": ("all", None),
}


@pytest.mark.parametrize(("rank", "place"), PLACES.items())
def test_a_number_is_a_process_and_a_name_is_a_pod(rank, place):
    assert ranks.place_of(FOUR, rank) == place
    ranks.check(FOUR, rank)


def test_a_number_of_any_length_is_refused_with_a_sentence():
    with pytest.raises(
        ClientError, match=r"has no rank 9+; choose all, a rank from 0 to 7 or one of worker-0"
    ):
        ranks.check(FOUR, "9" * 5000)


def test_a_number_is_a_pod_if_each_has_one_process():
    one = several("python train.py")
    assert ranks.place_of(one, "1") == ("1", None)
    assert ranks.chosen(one, "1", ranks.wanted(one)) == {"demo-worker-1"}
    assert ranks.ranks_in(one, pod_of("Running")) == ""


def test_the_ranks_of_a_pod_are_consecutive():
    assert ranks.ranks_in(FOUR, pod_of("Running")) == "0-3"
    assert ranks.chosen(FOUR, "7", ranks.wanted(FOUR)) == {"demo-worker-1"}
    sentence = "demo has no rank 8; choose all, a rank from 0 to 7 or one of worker-0, worker-1"
    with pytest.raises(ClientError, match=sentence):
        ranks.check(FOUR, "8")
