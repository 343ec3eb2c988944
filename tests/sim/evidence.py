"""No job ends because of a pod that the platform took away; written without the predicates of the core."""

from __future__ import annotations

from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import PODS
from sim.pods_after_end import DEADLINES
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer


class LostEvidenceError(AssertionError):
    """A verdict blames a pod that the platform took away."""


class Evidence:
    """Remembers the pods of a server that the platform took away."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
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
        if write.resource != "pods" or write.identity != "kubelet" or write.subresource != "status":
            return
        pod = self._server.get(PODS, write.namespace, write.name)
        conditions = pod["status"].get("conditions") or () if pod else ()
        if pod and any(each["type"] == "DisruptionTarget" for each in conditions):
            metadata = pod["metadata"]
            attempt = int(metadata["labels"].get(names.LABEL_ATTEMPT, "0"))
            self._victims.add((metadata["ownerReferences"][0]["uid"], metadata["name"], attempt))
