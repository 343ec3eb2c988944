from __future__ import annotations

import pytest

from paddlejob.api.v1 import RestartPolicy
from paddlejob.core.attempts.causes import Cause, cause_of, first_failure
from paddlejob.core.pod_set import pod_set_of
from simkube.build import job, snapshot

DEFAULT = RestartPolicy()


def failed(**status):
    return snapshot(job().worker(1)).pod("worker", 0, {"phase": "Failed", **status})


def exited(code: int, reason: str = "Error", message: str = ""):
    return snapshot(job().worker(1)).failed("worker", 0, code=code, reason=reason, message=message)


def stopped(code: int, reason: str, message: str, **status):
    """Return a pod that its kubelet stopped, with its containers."""
    built = exited(code)
    next(iter(built._pods.values()))["status"] |= {"reason": reason, "message": message, **status}
    return built


OUTLIVED = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
LOST = "The container could not be located when the pod was terminated"
CREATE = "failed to create shim task: OCI runtime create failed"
START = f"{CREATE}: runc create failed: unable to start container process"
INIT = f"{START}: error during container init"
HOOK = f"{INIT}: error running hook #0: error running hook: exit status 1, stdout: , stderr: "


def disrupted(reason: str) -> list[dict]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


PREEMPTED, BY_KUBELET = disrupted("PreemptionByScheduler"), disrupted("TerminationByKubelet")
LOST_CONTAINERS = [
    {"name": "paddle", "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}
]
LOW = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 91Mi. "

CAUSES = {
    "an error of the program ends the job": (exited(1), DEFAULT, Cause.PERMANENT),
    "so does the last of the small codes": (exited(127), DEFAULT, Cause.PERMANENT),
    "an abort is worth another try": (exited(134), DEFAULT, Cause.RETRYABLE),
    "so is running out of memory": (exited(137, "OOMKilled"), DEFAULT, Cause.RETRYABLE),
    "so is an abort under the launcher": (exited(250), DEFAULT, Cause.RETRYABLE),
    "SIGTERM is nobody's fault": (exited(143), DEFAULT, Cause.PLANNED),
    "nor under the launcher": (exited(15), DEFAULT, Cause.PLANNED),
    "Fleet's planned exit is planned": (exited(101), DEFAULT, Cause.PLANNED),
    "the user calls it permanent": (exited(137), RestartPolicy(permanent_exit_codes=(137,)), Cause.PERMANENT),
    "the user calls it retryable": (exited(1), RestartPolicy(retryable_exit_codes=(1,)), Cause.RETRYABLE),
    "the user forgives it": (exited(42), RestartPolicy(ignored_exit_codes=(42,)), Cause.IGNORED),
    "the user counts even SIGTERM": (
        exited(143),
        RestartPolicy(retryable_exit_codes=(143,)),
        Cause.RETRYABLE,
    ),
    "a preemption, whatever the exit code": (failed(conditions=PREEMPTED), DEFAULT, Cause.IGNORED),
    "an eviction is the platform's before any rule": (
        stopped(137, "Evicted", LOW, conditions=BY_KUBELET),
        RestartPolicy(permanent_exit_codes=(137,)),
        Cause.IGNORED,
    ),
    "a pod that outlived its own deadline, whose containers got SIGTERM": (
        stopped(143, *OUTLIVED),
        DEFAULT,
        Cause.RETRYABLE,
    ),
    "the user calls that permanent": (
        stopped(143, *OUTLIVED),
        RestartPolicy(permanent_exit_codes=(143,)),
        Cause.PERMANENT,
    ),
}

SHORT = "Node didn't have enough resource"
REJECTIONS = {
    "UnexpectedAdmissionError": "Allocate failed due to no healthy devices present, which is unexpected",
    "OutOfcpu": f"{SHORT}: cpu, requested: 4000, used: 30100, capacity: 32000",
    "OutOfmemory": f"{SHORT}: memory, requested: 8, used: 4, capacity: 8",
    "OutOfephemeral-storage": f"{SHORT}: ephemeral-storage, requested: 8, used: 4, capacity: 8",
    "OutOfpods": f"{SHORT}: pods, requested: 1, used: 110, capacity: 110",
    "OutOfnvidia.com/gpu": f"{SHORT}: nvidia.com/gpu, requested: 8, used: 1, capacity: 8",
    "TopologyAffinityError": "Resources cannot be allocated with Topology locality",
    "SMTAlignmentError": "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2",
    "NodeAffinity": "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    "NodePorts": "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    "NodeShutdown": "Pod was rejected as the node is shutting down.",
    "Evicted": "The node had condition: [DiskPressure]. ",
    "VolumeAttachmentLimitExceeded": "volume attachment limit exceeded",
    "InvalidNodeInfo": "Kubelet cannot get node info.",
    "PodFeatureUnsupported": "Pod requires node features that are not available: x",
    "SysctlForbidden": 'forbidden sysctl: "kernel.msgmax" not allowlisted',
    "": "",
}
"""Reasons and messages with which kubelets 1.30 to 1.35 reject a pod; no container has started."""

STOPS = {
    "an eviction for the node's sake": ("Evicted", LOW, BY_KUBELET, Cause.IGNORED),
    "the same by a kubelet before 1.26": ("Evicted", LOW, [], Cause.IGNORED),
    "a container above its storage limit": (
        "Evicted",
        'Container paddle exceeded its local ephemeral storage limit "1Gi". ',
        [],
        Cause.RETRYABLE,
    ),
    "a pod above its storage limit": (
        "Evicted",
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        [],
        Cause.RETRYABLE,
    ),
    "a volume above its limit": (
        "Evicted",
        'Usage of EmptyDir volume "cache" exceeds the limit "1Gi". ',
        [],
        Cause.RETRYABLE,
    ),
    "a limit that no kubelet has yet": ("Evicted", "Pod used too much swap. ", [], Cause.RETRYABLE),
    "room for a critical pod": (
        "Preempting",
        "Preempted in order to admit critical pod",
        BY_KUBELET,
        Cause.IGNORED,
    ),
    "the end of the node": (
        "Terminated",
        "Pod was terminated in response to imminent node shutdown.",
        BY_KUBELET,
        Cause.IGNORED,
    ),
    "the end of the node, by a kubelet before 1.26": (
        "Terminated",
        "Pod was terminated in response to imminent node shutdown.",
        [],
        Cause.IGNORED,
    ),
}

NOT_FOUND = "executable file not found in $PATH: unknown"
STARTS = {
    "no such program": (
        f'{START}: exec: "pyton": {NOT_FOUND}',
        Cause.PERMANENT,
    ),
    "no such file": (
        f'{INIT}: exec: "/app/train.sh": stat /app/train.sh: no such file or directory: unknown',
        Cause.PERMANENT,
    ),
    "no permission": (f'{START}: exec: "/app/train.py": permission denied: unknown', Cause.PERMANENT),
    "an older runc": (
        f'{CREATE}: container_linux.go:380: starting container process caused: exec: "pyton": {NOT_FOUND}',
        Cause.PERMANENT,
    ),
    "a runc of Docker's": (
        rf'{CREATE}: container_linux.go:349: starting container process caused "exec: \"pyton\": {NOT_FOUND}',
        Cause.PERMANENT,
    ),
    "crun": (
        "container create failed: executable file `pyton` not found in $PATH: No such file or directory",
        Cause.PERMANENT,
    ),
    "crun, a file that is not executable": (
        "the path `/app/train.py` exists but it is not executable: Operation not permitted",
        Cause.PERMANENT,
    ),
    "gVisor": (
        f'{CREATE}: starting container: error finding executable "pyton" in PATH [/usr/bin]: no such file',
        Cause.PERMANENT,
    ),
    "Kata": (f"failed to create shim task: the file pyton was not found: {NOT_FOUND}", Cause.PERMANENT),
    "a shim that runs the command": (
        f'failed to create shim task: exec: "pyton": {NOT_FOUND}',
        Cause.PERMANENT,
    ),
    "a shim that is not installed": (
        f'failed to start shim: start failed: exec: "containerd-shim-kata-v2": {NOT_FOUND}',
        Cause.NODE,
    ),
    "no such working directory": (
        f'{START}: chdir to cwd ("/data/run") set in config.json failed: no such file or directory: unknown',
        Cause.RETRYABLE,
    ),
    "a directory mounted over a file": (
        f'{INIT}: error mounting "/volumes/conf" to rootfs at "/app/train.py": not a directory: unknown',
        Cause.RETRYABLE,
    ),
    "too little memory to start": (
        f"{START}: container init was OOM-killed (memory limit too low?): unknown",
        Cause.RETRYABLE,
    ),
    "a GPU driver": (
        f"{HOOK}nvidia-container-cli: initialization error: driver rpc error: timed out: unknown",
        Cause.NODE,
    ),
    "a hook that is not installed": (
        f'{HOOK}exec: "nvidia-smi": {NOT_FOUND}',
        Cause.NODE,
    ),
    "a volume that is gone": (
        f'{INIT}: error mounting "kubernetes.io~projected/token" to rootfs: no such file or directory',
        Cause.NODE,
    ),
    "a full disk": (
        "failed to create container loggers: failed to create and open log file: no space left on device",
        Cause.NODE,
    ),
    "a node without the runtime": (
        f'{CREATE}: unable to retrieve OCI runtime error: exec: "nvidia-container-runtime": {NOT_FOUND}',
        Cause.NODE,
    ),
    "no reason at all": ("", Cause.NODE),
}

CAUSES |= {
    f"rejected: {reason}": (
        failed(reason=reason, message=message and f"Pod was rejected: {message}"),
        DEFAULT,
        Cause.NODE,
    )
    for reason, message in REJECTIONS.items()
}
CAUSES |= {
    f"stopped by its kubelet: {name}, exit code {code}": (
        stopped(code, reason, message, conditions=conditions),
        DEFAULT,
        cause,
    )
    for name, (reason, message, conditions, cause) in STOPS.items()
    for code in (1, 137, 143)
}
CAUSES |= {
    f"not started: {name}, {reason}": (exited(128, reason, message), DEFAULT, cause)
    for name, (message, cause) in STARTS.items()
    for reason in ("StartError", "ContainerCannotRun")
}
CAUSES |= {
    "a rebooted node, by its kubelet": (exited(137, "ContainerStatusUnknown", LOST), DEFAULT, Cause.NODE),
    "a rebooted node, by containerd": (exited(255, "Unknown"), DEFAULT, Cause.NODE),
    "a reboot is no matter of the user's rules": (
        exited(255, "Unknown"),
        RestartPolicy(permanent_exit_codes=(255,)),
        Cause.NODE,
    ),
    "a program that exits with 255": (exited(255), DEFAULT, Cause.RETRYABLE),
    "containers that the kubelet forgot after it evicted the pod for its own excess": (
        stopped(137, "Evicted", "Usage of EmptyDir volume", containerStatuses=LOST_CONTAINERS),
        DEFAULT,
        Cause.RETRYABLE,
    ),
}


@pytest.mark.parametrize(("built", "policy", "cause"), CAUSES.values(), ids=CAUSES.keys())
def test_a_failure_counts_as(built, policy, cause):
    member = pod_set_of("demo", built.spec.roles, built.build().pods).active[0]
    assert cause_of(member, policy) is cause


FIRST = {
    "the earlier one": ([(1, 5), (2, 9)], 1),
    "in the same second, the kill before the error it led to": ([(1, 5), (137, 5)], 1),
    "in the same second, the error before the abort it led to": ([(134, 5), (1, 5)], 1),
    "in the same second, a planned end before all": ([(137, 5), (143, 5)], 0),
}


@pytest.mark.parametrize(("endings", "first"), FIRST.values(), ids=FIRST.keys())
def test_the_failure_that_explains_the_others(endings, first):
    built = snapshot(job().worker(2))
    for index, (code, seconds_ago) in enumerate(endings):
        built.failed("worker", index, code=code, seconds_ago=seconds_ago)
    members = list(pod_set_of("demo", built.spec.roles, built.build().pods).active)
    assert first_failure(members, DEFAULT, built.build()).replica.index == first
