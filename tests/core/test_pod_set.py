from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import Role
from paddlejob.core.pod_set import PodState, Replica, ending_of, has_ended, pod_set_of, replica_of
from simkube.build import job, snapshot


def pod(phase: str = "", **fields) -> Pod:
    status = {"phase": phase, **fields.pop("status", {})}
    metadata = {
        "name": "demo-worker-0",
        "labels": {"paddle-res-type": "worker"},
        **fields.pop("metadata", {}),
    }
    return msgspec.convert({"metadata": metadata, "spec": fields, "status": status}, Pod)


def container(name: str = "paddle", ready: bool = False, **state) -> dict:
    return {"name": name, "ready": ready, "state": state}


STATES = {
    "no phase yet is pending": (pod(), PodState.PENDING),
    "not scheduled is pending": (pod("Pending"), PodState.PENDING),
    "with an address it is starting": (pod("Pending", status={"podIP": "10.0.0.1"}), PodState.STARTING),
    "running without container statuses is starting": (pod("Running"), PodState.STARTING),
    "a container that is not ready is starting": (
        pod("Running", status={"containerStatuses": [container(running={})]}),
        PodState.STARTING,
    ),
    "all ready is running": (
        pod("Running", status={"containerStatuses": [container(ready=True, running={})]}),
        PodState.RUNNING,
    ),
    "a sidecar that is not ready holds it up": (
        pod(
            "Running", status={"containerStatuses": [container(ready=True, running={}), container("sidecar")]}
        ),
        PodState.STARTING,
    ),
    "training ended well beside a sidecar is success": (
        pod(
            "Running",
            restartPolicy="Never",
            status={"containerStatuses": [container(terminated={"exitCode": 0}), container("s", running={})]},
        ),
        PodState.SUCCEEDED,
    ),
    "training failed beside a sidecar is failure": (
        pod(
            "Running",
            restartPolicy="Never",
            status={"containerStatuses": [container(terminated={"exitCode": 3}), container("s", running={})]},
        ),
        PodState.FAILED,
    ),
    "a failed container that will be restarted is starting": (
        pod(
            "Running",
            restartPolicy="OnFailure",
            status={"containerStatuses": [container(terminated={"exitCode": 3})]},
        ),
        PodState.STARTING,
    ),
    "training failed before the phase said that it ran is failure": (
        pod(
            "Pending",
            restartPolicy="Never",
            status={"containerStatuses": [container(terminated={"exitCode": 3})]},
        ),
        PodState.FAILED,
    ),
    "succeeded": (pod("Succeeded"), PodState.SUCCEEDED),
    "failed": (pod("Failed"), PodState.FAILED),
    "a silent node is unknown": (pod("Unknown"), PodState.UNKNOWN),
}


@pytest.mark.parametrize(("observed", "expected"), STATES.values(), ids=STATES.keys())
def test_a_pod_counts_as(observed, expected):
    pod_set = pod_set_of("demo", tuple(job().worker(1).build().spec.roles()), (observed,))
    assert pod_set.active[0].state is expected


def ended(policy: str, *codes: int, phase: str = "Running", **fields) -> Pod:
    """Return a pod of terminated containers whose phase has not followed."""
    containers = [container(f"c{number}", terminated={"exitCode": code}) for number, code in enumerate(codes)]
    status = {"containerStatuses": containers, **fields.pop("status", {})}
    return pod(phase, restartPolicy=policy, status=status, **fields)


IS_LEAVING = {"deletionTimestamp": "2026-01-01T12:00:00Z"}
ENDED = {
    "the phase is Succeeded": (pod("Succeeded"), True),
    "the phase is Failed and no container is known": (pod("Failed"), True),
    "a container runs": (pod("Running", status={"containerStatuses": [container(running={})]}), False),
    "no container is known yet": (pod("Pending"), False),
    "the node is silent": (pod("Unknown"), False),
    "exit 0 with Never": (ended("Never", 0), True),
    "exit 3 with Never": (ended("Never", 3), True),
    "exit 3 before the phase was Running": (ended("Never", 3, phase="Pending"), True),
    "exit 0 with OnFailure": (ended("OnFailure", 0, 0), True),
    "one of two exits 3 with OnFailure": (ended("OnFailure", 0, 3), False),
    "exit 0 with Always": (ended("Always", 0), False),
    "exit 3 with Always of a pod that is being deleted": (ended("Always", 3, metadata=IS_LEAVING), True),
    "a second container runs": (
        pod(
            "Running",
            restartPolicy="Never",
            status={"containerStatuses": [container(terminated={"exitCode": 1}), container("s", running={})]},
        ),
        False,
    ),
    "a sidecar among the init containers still runs": (
        ended("Never", 1, status={"initContainerStatuses": [container("proxy", running={})]}),
        True,
    ),
    "an init container failed": (
        pod(
            "Pending",
            restartPolicy="Never",
            status={
                "initContainerStatuses": [container("load", terminated={"exitCode": 1})],
                "containerStatuses": [container(waiting={"reason": "PodInitializing"})],
            },
        ),
        False,
    ),
}


@pytest.mark.parametrize(("observed", "expected"), ENDED.values(), ids=ENDED.keys())
def test_a_pod_has_ended_when(observed, expected):
    assert has_ended(observed) is expected


REPLICAS = {
    "its replica": ("demo-worker-12", "worker", Replica(Role.WORKER, 12)),
    "another role's": ("demo-ps-0", "ps", Replica(Role.PS, 0)),
    "no index": ("demo-worker-", "worker", None),
    "not a number": ("demo-worker-x", "worker", None),
    "a digit that is not ASCII": ("demo-worker-²", "worker", None),
    "a longer job's pod": ("demo-two-worker-0", "worker", None),
    "an unknown role": ("demo-master-0", "master", None),
    "no label": ("demo-worker-0", "", None),
}


@pytest.mark.parametrize(("name", "label", "replica"), REPLICAS.values(), ids=REPLICAS.keys())
def test_a_pod_name_is_read_as(name, label, replica):
    assert replica_of("demo", pod(metadata={"name": name, "labels": {"paddle-res-type": label}})) == replica


def test_pods_of_no_replica_are_not_looked_at():
    other = pod(metadata={"name": "demo-master-0", "labels": {"paddle-res-type": "master"}})
    found = pod_set_of("demo", snapshot(job().worker(1)).spec.roles, (pod(), other))
    assert [member.replica for member in found.active] == [Replica(Role.WORKER, 0)]


def test_pods_beyond_the_replicas_are_surplus():
    pod_set = pod_set_of(
        "demo", tuple(job().worker(1).build().spec.roles()), snapshot(job().worker(3)).pods().build().pods
    )
    assert [member.replica.index for member in pod_set.excess] == [1, 2]
    assert pod_set.to_create == ()


def test_a_leaving_pod_holds_its_name_but_does_not_count():
    built = snapshot(job().worker(2)).pods_running().leaving("worker", 1)
    pod_set = pod_set_of("demo", built.spec.roles, built.build().pods)
    assert [member.replica.index for member in pod_set.active] == [0]
    assert pod_set.to_create == ()


def test_replicas_come_in_the_order_of_creation():
    built = snapshot(job().heter(1).worker(1).ps(1))
    assert [str(replica) for replica in pod_set_of("demo", built.spec.roles, ()).to_create] == [
        "ps-0",
        "worker-0",
        "heter-0",
    ]


def test_the_failed_container_tells_the_ending():
    observed = pod(
        "Failed",
        status={
            "containerStatuses": [
                container(terminated={"exitCode": 0}),
                container("b", terminated={"exitCode": 9}),
            ]
        },
    )
    pod_set = pod_set_of("demo", tuple(job().worker(1).build().spec.roles()), (observed,))
    ending = ending_of(pod_set.active[0])
    assert ending is not None
    assert ending.exit_code == 9
