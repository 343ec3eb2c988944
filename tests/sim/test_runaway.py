"""Permanent faults: a job causes a bounded number of writes, and its message has the reason."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest

from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.kube.resource import PODS
from sim.pace import HOUR_SECONDS, Pace, TooFastError, writes_an_hour
from sim.persistent_fault import Kind, PersistentFault
from sim.scenario import Scenario
from sim.simulation import DEFINITION, Simulation
from simkube import virtual_loop
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer
from simkube.build import JobBuilder, job
from simkube.faults.transport import FaultRates

HOURS = 2


def play_with(of: JobBuilder, persistent_fault: PersistentFault) -> tuple[Simulation, PaddleJobStatus]:
    """Let a job suffer for hours; return its history and its last status. The rules of pace are watched."""
    of.manifest["metadata"].pop("uid", None)
    scenario = Scenario(
        seed=0,
        jobs=(of.manifest,),
        deeds=(),
        rates=FaultRates(),
        operators=1,
        crashes=(),
        heal_after_seconds=0.0,
        trouble=0.0,
        ip_family="IPv4",
        streaming_list=True,
        persistent_fault=persistent_fault,
    )

    async def main() -> Simulation:
        simulation = Simulation(scenario)
        await simulation.suffer(HOURS * HOUR_SECONDS)
        return simulation

    simulation = virtual_loop.run(main(), seed=0, max_steps=3_000_000)
    stored = simulation.server.get(PADDLE_JOBS, "default", "demo")
    assert stored is not None
    return simulation, msgspec.convert(stored["status"], PaddleJobStatus, strict=False)


def of(name: str) -> JobBuilder:
    return {
        "collective": job().worker(2),
        "PS without gloo": job().ps(1).worker(2).spec(withGloo=0),
        "called by name": job().worker(2).spec(intranet="Service"),
        "elastic": job().worker(3).spec(elastic=1),
        "without a delay": job().worker(2).spec(restartPolicy={"delaySeconds": 0, "maxDelaySeconds": 0}),
        "forgiving": job().worker(2).spec(restartPolicy={"ignoredExitCodes": [42]}),
    }[name]


JOBS = ("collective", "PS without gloo", "called by name", "elastic", "without a delay")


@pytest.mark.parametrize(("name", "code"), [*((name, 143) for name in JOBS), (JOBS[0], 15), (JOBS[0], 101)])
def test_a_program_that_always_exits_as_if_it_were_planned_fails(name, code):
    simulation, status = play_with(of(name), PersistentFault(Kind.EXIT, exit_code=code))
    assert (status.phase, status.reason) == ("Failed", "BackoffLimitExceeded")
    assert max(simulation.pace.most.values()) < 600


ENDLESS = {
    "evicted at once": PersistentFault(Kind.EVICTION, after_seconds=0.0),
    "evicted after a while": PersistentFault(Kind.EVICTION, after_seconds=30.0),
    "rejected by kubelets": PersistentFault(Kind.REJECTION),
    "lost by nodes": PersistentFault(Kind.REBOOT),
    "not started by nodes": PersistentFault(Kind.START_ERROR),
    "deleted at once": PersistentFault(Kind.DELETION, after_seconds=0.0),
    "deleted when they run": PersistentFault(Kind.DELETION, after_seconds=4.0),
}
TOLD = r"(restarting|creating \S+ again) at \d\d:\d\d:\d\dZ \((attempt|try) \d+\): \S+ .+"


QUICK = {*zip(itertools.cycle((*JOBS[2:], *JOBS[:2])), ENDLESS, strict=False)}
"""Every job and every fault, but not all pairs, and only one of a job without a delay, which takes longer."""
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in itertools.product(JOBS, ENDLESS)
]


@pytest.mark.parametrize(
    ("name", "persistent_fault"), [*CASES, ("forgiving", "a code that the user ignores")]
)
def test_what_nobody_is_to_blame_for_goes_on_slowly_and_says_when(name, persistent_fault):
    simulation, status = play_with(
        of(name), ENDLESS.get(persistent_fault, PersistentFault(Kind.EXIT, exit_code=42))
    )
    assert status.phase not in ("Completed", "Failed")
    assert status.restarts == 0
    last_hour = _writes(simulation, since=(HOURS - 1) * HOUR_SECONDS)
    assert 0 < last_hour < 1000, last_hour
    assert status.reason != "WaitingToRestart" or re.fullmatch(TOLD, status.message)


def test_a_pod_that_outlives_its_own_deadline_again_and_again_ends_the_job():
    _, status = play_with(job().worker(2), PersistentFault(Kind.POD_DEADLINE, after_seconds=20.0))
    assert (status.phase, status.reason) == ("Failed", "BackoffLimitExceeded")
    assert status.last_failure is not None
    assert status.last_failure.reason == "DeadlineExceeded"
    assert "longer than the specified deadline" in status.message


def _writes(simulation: Simulation, *, since: float) -> int:
    writes = simulation.server.log.writes
    return sum(
        each.at_seconds >= since and each.identity.startswith("operator") and each.resource != "events"
        for each in writes
    )


class TestTheRulesCanBeBroken:
    """The rule can be broken."""

    def server(self, status: JsonObject) -> ApiServer:
        server = ApiServer()
        server.install(DEFINITION)
        manifest = job().worker(2).manifest
        server.create(PADDLE_JOBS, {**manifest, "metadata": {"name": "demo", "namespace": "default"}})
        self.report(server, status)
        return server

    def report(self, server: ApiServer, status: JsonObject) -> None:
        server.patch(
            PADDLE_JOBS, "default", "demo", {"status": status}, subresource="status", identity="operator"
        )

    def write(self, at_seconds: float) -> WriteRecord:
        return WriteRecord(
            at_seconds, "operator", "create", "pods", "", "default", "demo-worker-0", 403, False
        )

    async def test_by_one_write_too_many(self):
        server = self.server({})
        Pace(server)
        for number in range(writes_an_hour(2)):
            server.log.add(self.write(number / 10))
        with pytest.raises(TooFastError, match="writes in an hour"):
            server.log.add(self.write(HOUR_SECONDS - 1))

    async def test_by_a_restart_that_waits_too_little(self):
        status = {"phase": "Restarting", "attemptTime": "2030-01-01T00:00:00Z"}
        row = [
            {"attempt": 1, "baseAttempt": 1, "consecutiveRestarts": 1},
            {"attempt": 2, "baseAttempt": 2, "consecutiveRestarts": 2, "retryTime": "2030-01-01T00:00:10Z"},
            {"attempt": 3, "baseAttempt": 3, "consecutiveRestarts": 3, "retryTime": "2030-01-01T00:00:05Z"},
        ]
        server = self.server({"phase": "Running"})
        Pace(server)
        for each in row[:2]:
            self.report(server, status | each)
        with pytest.raises(TooFastError, match=r"restart 3 in a row waits 5\.0 s"):
            self.report(server, status | row[2])

    async def test_by_a_finished_worker_that_runs_again(self):
        server = self.server({"phase": "Running", "succeededWorkers": "0-1"})
        Pace(server)
        labels = {"batch.paddlepaddle.org/role": "worker", "batch.paddlepaddle.org/index": "1"}
        metadata = {"name": "demo-worker-1", "namespace": "default", "labels": labels}
        pod = {"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "b"}]}}
        with pytest.raises(TooFastError, match="had succeeded"):
            server.create(PODS, pod, identity="operator")
