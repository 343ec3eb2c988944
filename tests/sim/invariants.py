"""Rules that hold after every write."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.validation.job import MAX_SPEC_BYTES
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from sim import mistakes, pods_after_end
from sim.gangs import Gangs
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer
from simkube.kubelet.pod_worker import ContainerStart

TERMINAL = ("Completed", "Failed")
PLATFORM_FAULTS = ("Evicted", "OutOfcpu", "UnexpectedAdmissionError", "ContainerStatusUnknown", "StartError")
"""Reasons of failures that the simulated platform causes, and no program of a scenario."""


class BrokenInvariantError(AssertionError):
    """A rule was broken; the message has the rule, the write and the time."""


class Invariants:
    """Watches a server's writes."""

    def __init__(self, server: ApiServer, *, operators: int, users_groups: tuple[str, ...] = ()) -> None:
        self._server = server
        self._users_groups = users_groups
        self._alone = operators == 1
        self._phase: dict[str, str] = {}
        self._attempt: dict[str, int] = defaultdict(int)
        self.late_pods: set[str] = set()
        """Pods that one of two operators created after the other had ended, shrunk or restarted the job.

        Neither sees the last write of the other immediately; such a pod has to be removed later.
        """
        self._owner: dict[str, str] = {}
        self._replaced: set[str] = set()
        """Pods that were deleted before their job had ended."""
        self._heirs: set[str] = set()
        """Pods with the name of an earlier pod of the same attempt, which was deleted."""
        self._held: set[tuple[str, str, int]] = set()
        """Job, pod name and attempt of every pod."""
        self._latest: dict[str, str] = {}
        """The UID of the last pod of each name."""
        server.log.on_write.append(self._check)

    def excuses(self, start: ContainerStart) -> bool:
        """Return whether a container may have started with a wrong environment.

        A user deletes a pod before all pods of its attempt have an address, and one of two operators creates
        it again in the same attempt. The other operator may already see the status of that round while its
        watch of pods still shows the old pod: it writes the old address to the ConfigMap, under the attempt's
        key, and the new pod starts with it. No precondition prevents this: status, pods and ConfigMap are
        three objects, and the changed UID belongs to none that is written. A key for every round of creations
        would prevent it; but with intranet Service each new pod would then change the ConfigMap that its
        peers are marked with, and restart them. So the job has to notice and replace the pod, unless it is
        deleted first. With a lease one operator writes at a time, and one operator waits until its caches
        have its own writes.
        """
        is_misled = not self._alone and start.uid in self._heirs & self._replaced
        return start.uid in self.late_pods or is_misled

    def _check(self, write: WriteRecord) -> None:
        if not write.changed:
            return
        if write.resource == "paddlejobs":
            self._check_jobs(write)
        elif write.resource == "podgroups" and write.name in self._users_groups:
            if write.identity.startswith("operator"):
                self._fail(write, "a user's PodGroup was changed")
        elif write.resource == "pods" and write.verb == "create" and not write.subresource:
            self._check_pod(write)
        elif write.resource == "pods" and write.verb == "delete" and write.identity != "kubelet":
            by_operator = write.identity.startswith("operator")
            uid = write.decoded()["preconditions"]["uid"] if by_operator else self._latest[write.name]
            if self._phase.get(self._owner[uid]) not in TERMINAL:
                self._replaced.add(uid)
            elif by_operator:
                self._check_delete(write, uid)

    def _check_delete(self, write: WriteRecord, uid: str) -> None:
        """An operator that acts alone deletes no pod of an ended job that keeps its pods.

        It completes the deletions of others, if their nodes are gone.
        """
        is_forced = write.decoded().get("gracePeriodSeconds") == 0
        for each in self._server.objects(PADDLE_JOBS):
            is_owner = each["metadata"]["uid"] == self._owner[uid]
            if is_owner and self._alone and not is_forced and pods_after_end.keeps_pods(each):
                policy = each["spec"].get("cleanPodPolicy", "OnCompletion")
                self._fail(write, f"deleted a pod of a {self._phase[self._owner[uid]]} job with {policy}")

    def _check_jobs(self, write: WriteRecord) -> None:
        for each in self._server.objects(PADDLE_JOBS):
            uid, status = each["metadata"]["uid"], each.get("status") or {}
            phase, attempt = status.get("phase", ""), status.get("attempt", 0)
            before = self._phase.get(uid, "")
            if before in TERMINAL and phase not in (before, "Terminating"):
                self._fail(write, f"{before} became {phase}")
            if attempt < self._attempt[uid]:
                self._fail(write, f"attempt {self._attempt[uid]} became {attempt}")
            budget = each["spec"].get("backoffLimit", 3)
            if budget >= 0 and status.get("restarts", 0) > budget:
                self._fail(write, f"{status['restarts']} restarts are more than the budget")
            least = each["spec"].get("worker", {}).get("requests") or 1
            if 0 < status.get("workers", 0) < least:
                self._fail(write, f"{status['workers']} workers are fewer than {least}")
            if phase == "Running" and before != "Running":
                self._check_attempts(write, each)
            if phase == "Failed" and before != phase:
                self._check_verdict(write, status)
            self._check_time(write, each)
            self._phase[uid], self._attempt[uid] = phase, attempt
        self._check_ports(write)

    def _check_verdict(self, write: WriteRecord, status: JsonObject) -> None:
        """No job fails for good because of the platform, unless a deadline passes.

        Start errors that repeat before a job has run count, because its template may cause them.
        """
        failure = status.get("lastFailure", {}).get("reason", "")
        # The end of a job that has never run sets its start time too.
        never_ran = status.get("startTime", "9") >= status.get("lastFailure", {}).get("time", "")
        may_be_template = failure == "StartError" and never_ran
        is_late = status.get("reason", "").endswith("DeadlineExceeded")
        if failure in PLATFORM_FAULTS and not is_late and not may_be_template:
            self._fail(write, f"failed for good after {failure}: {status['message']}")

    def _check_time(self, write: WriteRecord, of: JsonObject) -> None:
        """The parts of a job's time sum to its life, and of one that has ended they are all of it."""
        status, created = of.get("status") or {}, of["metadata"]["creationTimestamp"]
        spent = status.get("goodput")
        if spent is None:
            return
        parts = [seconds for part, seconds in spent.items() if part.endswith("Seconds")]
        life = datetime.fromisoformat(spent["updated"]) - datetime.fromisoformat(created)
        if sum(parts) != life.total_seconds() or min(parts) < 0:
            self._fail(write, f"{spent} does not sum to {life.total_seconds()} s since {created}")
        if status["phase"] in TERMINAL and spent["updated"] < status["completionTime"]:
            self._fail(write, f"{spent} was not counted up to the end at {status['completionTime']}")

    def _check_attempts(self, write: WriteRecord, of: JsonObject) -> None:
        base = of["status"].get("baseAttempt", 0)
        for pod in self._server.objects(PODS):
            metadata = pod["metadata"]
            owner = metadata.get("ownerReferences", [{}])[0].get("uid")
            if owner == of["metadata"]["uid"] and not metadata.get("deletionTimestamp"):
                attempt = int(metadata["labels"].get(names.LABEL_ATTEMPT, "0"))
                if attempt < base and self._alone:
                    self._fail(write, f"{metadata['name']} of attempt {attempt} lives on in attempt {base}")

    def _check_ports(self, write: WriteRecord) -> None:
        taken: dict[int, str] = {}
        for each in self._server.objects(PADDLE_JOBS):
            status = each.get("status") or {}
            port = status.get("hostPort", 0)
            if port and status.get("phase") not in TERMINAL and self._alone:
                if port in taken:
                    self._fail(write, f"{each['metadata']['name']} and {taken[port]} share port {port}")
                taken[port] = each["metadata"]["name"]

    def _check_pod(self, write: WriteRecord) -> None:
        pod = self._server.get(PODS, write.namespace, write.name)
        if pod is None:
            return
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        self._owner[pod["metadata"]["uid"]] = owner
        self._latest[write.name] = pod["metadata"]["uid"]
        if self._phase.get(owner) in (*TERMINAL, "Terminating"):
            if self._alone:
                self._fail(write, f"a pod was created for a job that is {self._phase[owner]}")
            self.late_pods.add(pod["metadata"]["uid"])
        attempt = int(pod["metadata"]["labels"].get(names.LABEL_ATTEMPT, "0"))
        if (owner, write.name, attempt) in self._held:
            self._heirs.add(pod["metadata"]["uid"])
        self._held.add((owner, write.name, attempt))
        if not self._alone and (attempt < self._attempt[owner] or self._has_shrunk(owner, pod)):
            self.late_pods.add(pod["metadata"]["uid"])
        replicas = [
            each["metadata"]["name"]
            for each in self._server.objects(PODS)
            if each["metadata"].get("ownerReferences", [{}])[0].get("uid") == owner
            and _seat(each) == _seat(pod)
        ]
        if len(replicas) > 1:
            self._fail(write, f"{replicas} share one replica")

    def _has_shrunk(self, owner: str, pod: JsonObject) -> bool:
        """Return whether the job has been scaled down to fewer replicas than the pod's index."""
        role, index = _seat(pod)
        specs = [
            each["spec"] for each in self._server.objects(PADDLE_JOBS) if each["metadata"]["uid"] == owner
        ]
        spares = {"worker": max((spec.get("spares", 0) for spec in specs), default=0)}
        wanted = [spec.get(role, {}).get("replicas", 0) + spares.get(role, 0) for spec in specs]
        return any(int(index) >= each for each in wanted)

    def _fail(self, write: WriteRecord, what: str) -> None:
        raise BrokenInvariantError(
            f"at {write.at_seconds:.2f} s, {write.identity} {write.verb} {write.resource}/{write.name}: "
            f"{what}"
        )


def check_start(start: ContainerStart) -> None:
    """Check that a container's environment agrees with itself, read as Paddle reads it: as plain text."""
    env = start.environment
    index = int(env["PADDLE_TRAINER_ID"])
    own = f"{env['POD_IP']}:{env['PADDLE_PORT']}"
    if env["PADDLE_CURRENT_ENDPOINT"] != own:
        raise BrokenInvariantError(f"{start.pod}: {env['PADDLE_CURRENT_ENDPOINT']} is not {own}")
    workers = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
    if len(workers) != int(env["PADDLE_TRAINERS_NUM"]):
        raise BrokenInvariantError(f"{start.pod}: {env['PADDLE_TRAINERS_NUM']} workers, but {workers}")
    role = env["TRAINING_ROLE"]
    listed = {
        "TRAINER": workers,
        "PSERVER": env.get("PADDLE_PSERVERS_IP_PORT_LIST", "").split(","),
        "HETER_TRAINER": env.get("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST", "").split(","),
    }[role]
    if index >= len(listed) or listed[index] != own:
        raise BrokenInvariantError(f"{start.pod}: {own} is not number {index} of {listed}")
    _check_split(start)
    if "PADDLE_GLOO_HTTP_ENDPOINT" in env:
        host, _, port = env["PADDLE_GLOO_HTTP_ENDPOINT"].rpartition(":")
        first, _, base = env["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")[0].rpartition(":")
        if host != first or int(port) != int(base) + names.GLOO_PORT_OFFSET:
            raise BrokenInvariantError(
                f"{start.pod}: gloo at {host}:{port}, the first server at {first}:{base}"
            )


def _check_split(start: ContainerStart) -> None:
    """Paddle splits an endpoint at every colon, and its launcher counts the distinct first parts as nodes."""
    for name, value in start.environment.items():
        if name.endswith(("_LIST", "_ENDPOINTS", "_ENDPOINT", "_MASTER")) and value:
            hosts = [each.split(":")[0] for each in value.split(",") if each.count(":") == 1]
            if len(set(hosts)) != value.count(",") + 1:
                raise BrokenInvariantError(
                    f"{start.pod}: Paddle cannot tell the hosts of {name}={value} apart"
                )


def check_end(server: ApiServer, gangs: Gangs) -> None:
    """Check the final state of the cluster."""
    jobs = {each["metadata"]["uid"]: each for each in server.objects(PADDLE_JOBS)}
    for resource in (PODS, SERVICES, CONFIG_MAPS, *((gangs.resource,) if gangs.resource else ())):
        for each in server.objects(resource):
            for owner in each["metadata"].get("ownerReferences", ()):
                if owner["uid"] not in jobs:
                    raise BrokenInvariantError(f"{resource.kind} {each['metadata']['name']} is an orphan")
    for uid, each in jobs.items():
        _check_rest(server, uid, each)
        _check_gang(server, gangs, each)


def check_records(server: ApiServer) -> None:
    """Check that every ended job has a record with its result."""
    kept = {}
    for each in server.objects(CONFIG_MAPS):
        if text := each["metadata"].get("annotations", {}).get(names.ANNOTATION_SUMMARY):
            summary = json.loads(text)
            kept[summary["uid"]] = summary["result"]
    for each in server.objects(PADDLE_JOBS):
        phase, uid = (each.get("status") or {}).get("phase", ""), each["metadata"]["uid"]
        if phase in TERMINAL and kept.get(uid) != phase:
            raise BrokenInvariantError(f"{each['metadata']['name']} is {phase}, its record {kept.get(uid)}")


def _check_gang(server: ApiServer, gangs: Gangs, each: JsonObject) -> None:
    """Check that a job without pods has no PodGroup."""
    name, phase = each["metadata"]["name"], (each.get("status") or {}).get("phase", "")
    namespace = each["metadata"]["namespace"]
    group = server.get(gangs.resource, namespace, name) if gangs.resource else None
    if group and name not in gangs.users_groups and phase in (*TERMINAL, "Suspended"):
        raise BrokenInvariantError(f"{name} is {phase} and still has {gangs.resource.kind} {name}")


def _check_rest(server: ApiServer, uid: str, each: JsonObject) -> None:
    name, status, spec = each["metadata"]["name"], each.get("status") or {}, each["spec"]
    phase = status.get("phase", "")
    pods = [
        pod
        for pod in server.objects(PODS)
        if pod["metadata"].get("ownerReferences", [{}])[0].get("uid") == uid
    ]
    if spec.get("suspend") and phase not in TERMINAL:
        if phase != "Suspended" or pods:
            raise BrokenInvariantError(f"{name} is to be suspended but is {phase} with {len(pods)} pods")
        return
    is_refused = mistakes.is_wrong(spec) or len(json.dumps(spec)) > MAX_SPEC_BYTES
    if phase not in TERMINAL and is_refused and status.get("reason") == "InvalidSpec":
        return
    if phase not in TERMINAL:
        raise BrokenInvariantError(f"{name} came to rest as {phase or 'nothing'}: {status.get('message')}")
    if broken := pods_after_end.what_is_wrong(each, pods) or pods_after_end.miscounted(each, pods):
        raise BrokenInvariantError(f"{name}: {broken}")
    ended = status["completionTime"]
    late = [pod["metadata"]["name"] for pod in pods if pod["metadata"]["creationTimestamp"] > ended]
    if late:
        raise BrokenInvariantError(f"{name} ended at {ended} and got {late} after that")


def _seat(pod: JsonObject) -> tuple[str, str]:
    labels = pod["metadata"]["labels"]
    return labels[names.LABEL_ROLE], labels[names.LABEL_INDEX]
