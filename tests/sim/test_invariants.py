"""The rules of the simulation, each broken on purpose."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

import msgspec
import pytest

from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.kube.resource import PODS
from sim.gangs import Gangs, Scheduler, users_group
from sim.invariants import BrokenInvariantError, Invariants, check_end, check_start
from sim.simulation import DEFINITION
from simkube.apiserver.server import ApiServer
from simkube.build import job
from simkube.kubelet.pod_worker import ContainerStart


def start(servers: str, host: str, *, own: str = "") -> ContainerStart:
    """Return the start of a job's first server, with the given list of servers and own address."""
    environment = {
        "TRAINING_ROLE": "PSERVER",
        "POD_IP": host,
        "PADDLE_PORT": "36000",
        "PADDLE_CURRENT_ENDPOINT": own or f"{host}:36000",
        "PADDLE_TRAINER_ID": "0",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.9:36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": servers,
    }
    return ContainerStart("default", "demo-ps-0", "uid", "paddle", 0, 0.0, host, environment)


@pytest.mark.parametrize("host", ["10.0.0.1", "demo-ps-0.default"])
def test_a_server_that_finds_itself_holds(host):
    check_start(start(f"{host}:36000", host))


BROKEN = {
    "brackets in the list alone": (start("[fd00::1]:36000", "fd00::1"), "is not number 0 of"),
    "brackets in the own endpoint alone": (
        start("fd00::1:36000", "fd00::1", own="[fd00::1]:36000"),
        r"\[fd00::1\]:36000 is not fd00::1:36000",
    ),
    "brackets everywhere": (start("[fd00::1]:36000", "[fd00::1]"), "cannot tell the hosts"),
    "no brackets anywhere": (start("fd00::1:36000", "fd00::1"), "cannot tell the hosts"),
    "a host twice": (start("10.0.0.1:36000,10.0.0.1:36001", "10.0.0.1"), "cannot tell the hosts"),
}


@pytest.mark.parametrize(("given", "complaint"), BROKEN.values(), ids=BROKEN.keys())
def test_it_breaks_with(given, complaint):
    with pytest.raises(BrokenInvariantError, match=complaint):
        check_start(given)


EXCUSES = {
    "of the second pod of a name in an attempt, which was deleted": (2, (0, 0), True, True),
    "of one operator alone": (1, (0, 0), True, False),
    "of a pod that stayed": (2, (0, 0), False, False),
    "of the first pod of a name": (2, (0,), True, False),
    "of the second pod of a name in another attempt": (2, (0, 1), True, False),
}


@pytest.mark.parametrize(("operators", "attempts", "deleted", "excused"), EXCUSES.values(), ids=EXCUSES)
async def test_the_excuse_for_an_address_that_does_not_fit(operators, attempts, deleted, excused):
    server = ApiServer()
    server.install(DEFINITION)
    rules = Invariants(server, operators=operators)
    uid = ""
    for number, attempt in enumerate(attempts, start=1):
        uid = server.create(PODS, pod(attempt), identity="operator-0")["metadata"]["uid"]
        if deleted or number < len(attempts):
            options = {"gracePeriodSeconds": 0}
            server.delete(PODS, "default", "demo-worker-0", options=options, identity="user")
    assert rules.excuses(msgspec.structs.replace(start("a:1", "a"), uid=uid)) is excused


def pod(attempt: int) -> dict:
    names = {"role": "worker", "index": "0", "attempt": str(attempt)}
    labels = {f"batch.paddlepaddle.org/{name}": value for name, value in names.items()}
    owner = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "name": "demo", "uid": "of-demo"}
    metadata = {"name": "demo-worker-0", "namespace": "default", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "paddle", "image": "paddle"}]}}


def with_volcano(**gangs: object) -> tuple[ApiServer, Gangs]:
    server, drawn = ApiServer(), Gangs("volcano", VOLCANO_POD_GROUPS, **gangs)
    server.install(DEFINITION)
    Scheduler(drawn, server, nodes=("node-0",))
    return server, drawn


@pytest.mark.parametrize("by", ["operator-0", "user"])
async def test_only_its_author_may_change_a_users_pod_group(by):
    server, drawn = with_volcano(users_groups=("demo",))
    Invariants(server, operators=1, users_groups=drawn.users_groups)
    server.create(VOLCANO_POD_GROUPS, users_group("demo"), identity="user")
    with pytest.raises(BrokenInvariantError, match="a user's PodGroup") if by != "user" else nullcontext():
        server.patch(VOLCANO_POD_GROUPS, "default", "demo", {"spec": {"minMember": 2}}, identity=by)


@pytest.mark.parametrize("users", [(), ("demo",)], ids=["the operator's", "its author's"])
async def test_a_job_that_has_ended_leaves_no_pod_group_of_the_operators(users):
    server, drawn = with_volcano(users_groups=users)
    server.create(PADDLE_JOBS, job().worker(1).metadata(uid="").manifest)
    ended = {"phase": "Completed", "completionTime": "2030-01-01T00:00:00Z"}
    server.patch(PADDLE_JOBS, "default", "demo", {"status": ended}, subresource="status")
    server.create(VOLCANO_POD_GROUPS, users_group("demo"))
    with nullcontext() if users else pytest.raises(BrokenInvariantError, match="still has PodGroup demo"):
        check_end(server, drawn)


@pytest.mark.parametrize(
    ("queued", "ended", "complaint"),
    [
        (60, "2030-01-01T00:01:00Z", ""),
        (59, "2030-01-01T00:01:00Z", "does not sum to 60.0 s"),
        (60, "2030-01-01T00:02:00Z", "was not counted up to the end"),
    ],
)
async def test_the_parts_of_a_jobs_time_sum_to_its_life(queued, ended, complaint):
    server = ApiServer(now=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    server.install(DEFINITION)
    Invariants(server, operators=1)
    server.create(PADDLE_JOBS, job().worker(1).metadata(uid="").manifest)
    spent = {"queuedSeconds": queued, "trainingSeconds": 0, "updated": "2030-01-01T00:01:00Z"}
    status = {"phase": "Failed", "completionTime": ended, "goodput": spent}
    with pytest.raises(BrokenInvariantError, match=complaint) if complaint else nullcontext():
        server.patch(PADDLE_JOBS, "default", "demo", {"status": status}, subresource="status")


@pytest.mark.parametrize(
    ("failure", "reason", "complaint"),
    [
        ("OutOfcpu", "BackoffLimitExceeded", "failed for good after OutOfcpu"),
        ("OutOfcpu", "DeadlineExceeded", ""),
        ("OOMKilled", "BackoffLimitExceeded", ""),
    ],
)
async def test_the_platform_fails_no_job_for_good(failure, reason, complaint):
    server = ApiServer()
    server.install(DEFINITION)
    Invariants(server, operators=1)
    server.create(PADDLE_JOBS, job().worker(1).metadata(uid="").manifest)
    status = {"phase": "Failed", "reason": reason, "message": "why", "lastFailure": {"reason": failure}}
    with pytest.raises(BrokenInvariantError, match=complaint) if complaint else nullcontext():
        server.patch(PADDLE_JOBS, "default", "demo", {"status": status}, subresource="status")
