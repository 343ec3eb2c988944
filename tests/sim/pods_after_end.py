"""The pods that an ended job may still have, computed without the code of the core."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.meta import JsonObject

ENDED = ("Succeeded", "Failed")
DEADLINES = ("DeadlineExceeded", "StartupDeadlineExceeded")
KEEPS_NO_POD = {
    "Always": ("Completed", "Failed"),
    "OnFailure": ("Failed",),
    "OnCompletion": ("Completed",),
    "Never": (),
}


def what_is_wrong(ended: JsonObject, pods: list[JsonObject]) -> str:
    """Return which pod of an ended job should not be there, empty when all is well."""
    status, policy = ended["status"], ended["spec"].get("cleanPodPolicy", "OnCompletion")
    phase = status["phase"]
    is_readable = not isinstance(ended["spec"].get("restartPolicy"), str)
    if policy not in KEEPS_NO_POD or not is_readable:
        # Their end is not defined.
        return ""
    if phase in KEEPS_NO_POD[policy] and pods:
        return f"is {phase} and keeps {len(pods)} pods with cleanPodPolicy {policy}"
    active = [pod for pod in pods if pod["status"].get("phase") not in ENDED]
    if phase == "Failed" and active:
        return f"is {phase} ({status['reason']}) and {_names(active)} still run"
    beyond = [pod for pod in active if _is_beyond(ended["spec"], pod)]
    if beyond:
        return f"is {phase} and {_names(beyond)} still run beyond its size"
    waiting = [pod for pod in active if pod["status"].get("phase", "Pending") == "Pending"]
    return f"is {phase} and {_names(waiting)} may still start" if waiting else ""


def keeps_pods(ended: JsonObject) -> bool:
    """Return whether no pod of an ended job may be deleted."""
    policy = ended["spec"].get("cleanPodPolicy", "OnCompletion")
    return policy in KEEPS_NO_POD and ended["status"]["phase"] not in KEEPS_NO_POD[policy]


def miscounted(ended: JsonObject, pods: list[JsonObject]) -> str:
    """Return which count of an ended job is of pods that do not exist or run, empty if none is."""
    for role in ("ps", "worker", "heter"):
        counts = ended["status"].get(role)
        there = [
            pod["status"].get("phase")
            for pod in pods
            if pod["metadata"]["labels"][names.LABEL_ROLE] == role
            and not pod["metadata"].get("deletionTimestamp")
        ]
        if counts and counts["replicas"] != len(there):
            return f"counts {counts['replicas']} {role}s, and {len(there)} exist"
        if counts and counts["running"] > there.count("Running"):
            return f"counts {counts['running']} running {role}s, and {there.count('Running')} run"
    return ""


def _is_beyond(spec: JsonObject, pod: JsonObject) -> bool:
    """Return whether the job was scaled down to fewer pods than this pod's index."""
    labels = pod["metadata"]["labels"]
    size = spec.get(labels[names.LABEL_ROLE], {}).get("replicas", 0)
    return 0 < size <= int(labels[names.LABEL_INDEX])


def _names(pods: list[JsonObject]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]
