"""How fast the operator may write for a job, and how a job's attempts may follow each other."""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.kube.resource import PODS
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer

HOUR_SECONDS = 3600.0

ATTEMPTS_AN_HOUR = 32
"""How often all pods of a job may be created again in an hour.

A row of restarts waits 0, 10, 20, 40, 80, 160, 300, 300 ... seconds. The densest hour has rows that each end
in ten minutes of running: k restarts take 600 s and 0, 10, 30, 70, 150, 310 ... s, which is most for k = 5:
24 an hour. The row that came before may add its last 6, and a user who scales or suspends 2.
"""


def writes_an_hour(pods: int) -> int:
    """Return the maximum number of writes an hour for a job.

    An attempt costs each pod a Service, a creation, a wake and a deletion, a second one by force, and the
    status changes with what the pods report: pending, an address, running, ready, ended, gone. Add the
    ConfigMap and the status' own steps. Where workers are replaced one by one there are as many more
    attempts, each of one pod.
    """
    return ATTEMPTS_AN_HOUR * (11 * pods + 10)


class TooFastError(AssertionError):
    """A job caused too many writes, restarted too early, or repeated finished work."""


class Pace:
    """Watches the operators' writes, the refused ones too."""

    def __init__(self, server: ApiServer, *, operators: int = 1) -> None:
        self._server = server
        self._operators = operators
        self._writes: dict[str, deque[float]] = defaultdict(deque)
        self.most: dict[str, int] = defaultdict(int)
        """The most writes that a job has cost in an hour."""
        self._pods: dict[str, int] = defaultdict(int)
        """The most pods that a job was to have."""
        self._status: dict[str, PaddleJobStatus] = {}
        self._delay: dict[str, tuple[int, float]] = {}
        """How many restarts in a row the last whole one was, and how long it waited."""
        server.log.on_write.append(self._check)

    def _check(self, write: WriteRecord) -> None:
        if not write.identity.startswith("operator") or write.resource == "events":
            return
        name = next((each for each in self._jobs() if _concerns(write, each)), "")
        if name:
            self._count(write, name)
        if write.changed and write.resource == "paddlejobs":
            self._see_status(name)
        elif write.changed and write.resource == "pods" and write.verb == "create":
            self._check_finished(write, name)

    def _jobs(self) -> dict[str, JsonObject]:
        return {each["metadata"]["name"]: each for each in self._server.objects(PADDLE_JOBS)}

    def _count(self, write: WriteRecord, name: str) -> None:
        writes, spec = self._writes[name], self._jobs()[name]["spec"]
        writes.append(write.at_seconds)
        while writes[0] <= write.at_seconds - HOUR_SECONDS:
            writes.popleft()
        self.most[name] = max(self.most[name], len(writes))
        pods = sum(spec[role]["replicas"] for role in ("ps", "worker", "heter") if role in spec)
        self._pods[name] = max(self._pods[name], pods)
        bound = self._operators * writes_an_hour(self._pods[name])
        if len(writes) > bound:
            raise TooFastError(f"{name}: {len(writes)} writes in an hour are more than {bound}")

    def _see_status(self, name: str) -> None:
        stored = self._jobs().get(name)
        if stored is None:
            return
        uid = stored["metadata"]["uid"]
        status = msgspec.convert(stored.get("status") or {}, PaddleJobStatus, strict=False)
        before = self._status.get(uid)
        self._status[uid] = status
        restarts_all = status.phase == "Restarting" and status.base_attempt == status.attempt
        if before is not None and before.attempt < status.attempt and restarts_all:
            self._check_delay(uid, name, status)

    def _check_delay(self, uid: str, name: str, status: PaddleJobStatus) -> None:
        """Check that the restarts of a row wait longer and longer."""
        number, delay = status.consecutive_restarts, _seconds(status.attempt_time, status.retry_time)
        before, waited = self._delay.get(uid, (0, 0.0))
        if number > max(before, 1) and delay < waited:
            raise TooFastError(
                f"{name}: restart {number} in a row waits {delay} s, the one before {waited} s"
            )
        self._delay[uid] = number, delay

    def _check_finished(self, write: WriteRecord, name: str) -> None:
        """Check that no worker runs again that was seen to succeed, unless all do."""
        pod = self._server.get(PODS, write.namespace, write.name)
        job = self._jobs().get(name)
        if pod is None or job is None or self._operators > 1:
            return
        labels, status = pod["metadata"]["labels"], job.get("status") or {}
        done = msgspec.convert(status, PaddleJobStatus, strict=False).succeeded_workers
        if labels[names.LABEL_ROLE] == "worker" and labels[names.LABEL_INDEX] in _indexes(done):
            raise TooFastError(f"{write.name} had succeeded and runs again")


def _concerns(write: WriteRecord, job: str) -> bool:
    return write.name == job or write.name.startswith(f"{job}-")


def _indexes(text: str) -> set[str]:
    found: set[str] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found |= {str(index) for index in range(int(first), int(last or first) + 1)}
    return found


def _seconds(since: datetime | None, until: datetime | None) -> float:
    return (until - since).total_seconds() if since and until else 0.0
