"""Two rules about ended jobs, written without the predicates of the core.

No job ends because of a pod that the platform took away.
The pod that failed first is kept as cleanPodPolicy says.
"""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.kube.resource import PODS
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.apiserver.fake_log import WriteRecord
from sim.pods_after_end import DEADLINES

KEEPS_ENDED_PODS = ("OnCompletion", "Never")
"""Policies of a failed job."""


class LostEvidenceError(AssertionError):
    """The pod that failed first was deleted, or a verdict blames a pod that the platform took away."""


class Evidence:
    """Remembers how the pods of a server ended."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._ended: set[str] = set()
        """UIDs of pods all of whose containers have terminated for good."""
        self._first_failures: set[str] = set()
        """UIDs of pods that had ended and failed first when their jobs failed, and are to be kept."""
        self._judged: set[str] = set()
        self._latest: dict[str, str] = {}
        """The UID of the last pod of each name."""
        self._victims: set[tuple[str, str, int]] = set()
        """UID of the job, name and attempt of each pod that the platform took away."""
        server.log.on_write.append(self._check)

    def check_end(self) -> None:
        """Check that no job failed for good, or completed, because of a pod that the platform took away."""
        for job in self._server.objects(PADDLE_JOBS):
            status, uid = job.get("status") or {}, job["metadata"]["uid"]
            failure = status.get("lastFailure") or {}
            victim = (uid, failure.get("pod", ""), failure.get("attempt", 0))
            by_failure = status.get("phase") == "Failed" and status["reason"] not in DEADLINES
            if by_failure and victim[2] == status.get("attempt", 0) and victim in self._victims:
                raise LostEvidenceError(f"{victim[1]} was evicted, and {status['message']}")
            if status.get("phase") == "Completed" and status["message"] == "the worker succeeded":
                first = (uid, f"{job['metadata']['name']}-worker-0", status.get("attempt", 0))
                if first in self._victims:
                    raise LostEvidenceError(f"{first[1]} was evicted, and the job is Completed")

    def _check(self, write: WriteRecord) -> None:
        if write.resource == "paddlejobs" and write.changed:
            self._see_verdict(self._server.get(PADDLE_JOBS, write.namespace, write.name))
        elif write.resource == "pods" and write.identity == "kubelet" and write.subresource == "status":
            self._remember(self._server.get(PODS, write.namespace, write.name))
        elif write.resource == "pods" and write.identity.startswith("operator") and write.verb == "delete":
            self._check_delete(write)

    def _check_delete(self, write: WriteRecord) -> None:
        if write.decoded()["preconditions"]["uid"] in self._first_failures:
            raise LostEvidenceError(f"{write.name} failed first, had ended, and was deleted with its log")

    def _remember(self, pod: JsonObject | None) -> None:
        if pod is None:
            return
        metadata, status = pod["metadata"], pod["status"]
        self._latest[metadata["name"]] = metadata["uid"]
        ends = [each["state"].get("terminated") for each in status.get("containerStatuses") or ()]
        stays = pod["spec"].get("restartPolicy") == "Never"
        if ends and all(end and (stays or end["exitCode"] == 0) for end in ends):
            self._ended.add(metadata["uid"])
        if any(each["type"] == "DisruptionTarget" for each in status.get("conditions") or ()):
            owner = metadata["ownerReferences"][0]["uid"]
            attempt = int(metadata["labels"].get(names.LABEL_ATTEMPT, "0"))
            self._victims.add((owner, metadata["name"], attempt))

    def _see_verdict(self, job: JsonObject | None) -> None:
        """Note the pod that failed first, unless the job is not readable or its policy keeps no pod."""
        status = (job or {}).get("status") or {}
        failure = status.get("lastFailure") or {}
        uid = self._latest.get(failure.get("pod", ""), "")
        is_last = failure.get("attempt", 0) == status.get("attempt", 0)
        if job and status.get("phase") == "Failed" and is_last and status["reason"] not in DEADLINES:
            keeps = job["spec"].get("cleanPodPolicy", "OnCompletion") in KEEPS_ENDED_PODS
            is_readable = not isinstance(job["spec"].get("restartPolicy"), str)
            if keeps and is_readable and uid in self._ended and uid not in self._judged:
                self._first_failures.add(uid)
            self._judged.add(uid)
