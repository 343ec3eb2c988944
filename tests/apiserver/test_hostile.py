"""The corpus of hostile objects, stored by a real API server and met by the real operator process."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from behaviour.stage import Stage
from devcluster import ApiError, Client, ControlPlane
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.apiserver import installed
from tests.apiserver.installed import OperatorProcess
from tests.support import hostile
from tests.support.hostile import Hostile

VOLCANO = Path(__file__).parents[1] / "schemas" / "volcano_podgroups.yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
GROUPS = {
    "depths": hostile.DEPTHS,
    "quantities": hostile.QUANTITIES,
    "shapes": hostile.SHAPES,
    "sizes": hostile.SIZES,
    "numbers": hostile.NUMBERS,
    "strangers": hostile.STRANGERS,
}
SLACK_SECONDS = 30.0
"""How much longer a job may take beside hostile ones.

A machine with two processors runs a control plane, a kubelet and an operator here: a tighter bound would
measure the machine.
"""
AT_ONCE = 10
"""Jobs under way at the same time, as in a cluster that is in use."""


@dataclass
class Arena:
    """A control plane on which an operator works in all namespaces."""

    plane: ControlPlane
    client: Client
    logs: Path
    has_volcano: bool
    operator: OperatorProcess
    health: str

    def put(self, namespace: str, case: Hostile) -> bool:
        """Store a case in a namespace of its own; tell whether the server takes it."""
        self.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.plane.await_found(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        try:
            answer = self.client.send("POST", PADDLE_JOBS.path(namespace), case.text())
        except ApiError as error:
            if error.code != 422:
                raise
            return False
        uid = re.search(r'"uid":"([^"]+)"', answer)
        assert uid
        for resource, text in case.texts_beside(uid[1]):
            self._put_beside(namespace, resource.path(namespace), text)
        if case.status:
            self._set_status(PADDLE_JOBS.path(namespace, hostile.NAME), case.status)
        return True

    def _put_beside(self, namespace: str, path: str, text: bytes) -> None:
        made = json.loads(text)
        try:
            self.client.send("POST", path, text)
        except ApiError as error:
            # The operator may have been faster; its object is changed then.
            if error.code != 409:
                raise
        if "status" in made:
            self._set_status(f"{path}/{made['metadata']['name']}", made["status"])

    def _set_status(self, path: str, status: JsonObject) -> None:
        patch = json.dumps({"status": status}).encode()
        self.client.send("PATCH", f"{path}/status", patch, **{"Content-Type": "application/merge-patch+json"})

    def said(self, namespace: str) -> str:
        """Give `phase: reason: message` of the hostile job, without reading its body."""
        path = f"{PADDLE_JOBS.path(namespace)}?includeObject=None"
        table = json.loads(self.client.send("GET", path, b"", Accept=TABLE))
        names = [column["name"].upper() for column in table["columnDefinitions"]]
        [row] = table["rows"]
        cells = dict(zip(names, row["cells"], strict=True))
        return ": ".join(str(cells[name]) for name in ("STATUS", "REASON", "MESSAGE"))

    def is_healthy(self) -> bool:
        """Tell what a kubelet would see."""
        with urllib.request.urlopen(self.health, timeout=5) as answer:
            return bool(answer.status == 200)

    def peak_bytes(self) -> int:
        """Give the most memory that the operator had."""
        lines = Path(f"/proc/{self.operator.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

    def start(self) -> None:
        """Start an operator, after the one before it."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        arguments = [f"--health-probe-bind-address=127.0.0.1:{port}"]
        log = self.logs / f"operator-{port}.log"
        self.operator = OperatorProcess(installed.account_kubeconfig(self.plane), arguments, log)
        self.health = f"http://127.0.0.1:{port}/healthz"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="without Volcano", marks=pytest.mark.thorough),
        pytest.param(True, id="with Volcano"),
    ],
)
def arena(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ControlPlane.start() as plane:
        installed.apply(plane, installed.CRD, installed.OPERATOR, *([VOLCANO] if request.param else []))
        client = Client(plane.url, ca_file=plane.ca_file, token=plane.token)
        logs = tmp_path_factory.mktemp("logs")
        arena = Arena(plane, client, logs, request.param, None, "")  # type: ignore[arg-type]
        arena.start()
        try:
            yield arena
        finally:
            arena.operator.kill()


@asynccontextmanager
async def a_tenant(arena: Arena, namespace: str) -> AsyncIterator[Stage]:
    """A namespace in which pods run."""
    arena.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    arena.plane.await_found(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    async with installed.simulated_node(arena.plane, namespace) as stage:
        yield stage


async def complete(stage: Stage, name: str) -> float:
    """Submit a job of a moment and give the seconds until it is Completed."""
    stage.fates.set(f"{name}-worker-0", Exit(0, 0.1))
    began = time.monotonic()
    await stage.submit(job(name).worker(1))
    await stage.phase("Completed", name)
    return time.monotonic() - began


async def slowest(stage: Stage, count: int, prefix: str) -> float:
    """Complete so many jobs and give the seconds of the slowest."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> float:
        async with limit:
            return await complete(stage, f"{prefix}-{number}")

    return max(await asyncio.gather(*(one(number) for number in range(count))))


@pytest.fixture(scope="module")
def baseline(arena: Arena) -> float:
    """What the slowest of some jobs takes while nothing hostile is there."""

    async def measure() -> float:
        async with a_tenant(arena, "alone") as stage:
            return await slowest(stage, AT_ONCE, "alone")

    return asyncio.run(measure())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(name, marks=pytest.mark.thorough) if name in ("shapes", "sizes") else name
        for name in GROUPS
    ],
)
async def test_a_job_beside_it_is_as_fast_and_it_says_what_is_wrong(
    arena: Arena, baseline: float, group: str
) -> None:
    cases = {
        f"{group}-{number}": case
        for number, case in enumerate(GROUPS[group].values())
        if arena.has_volcano or not case.needs_volcano
        if group != "shapes" or case.in_gang == arena.has_volcano
    }
    async with a_tenant(arena, f"beside-{group}") as stage:
        storing = asyncio.create_task(asyncio.to_thread(store, arena, cases))
        taken = await slowest(stage, len(cases), "good")
        stored = await storing
        assert len(stored) > len(cases) / 2
        # Once more, with all of them stored.
        taken = max(taken, await slowest(stage, AT_ONCE, "later"))
        assert arena.operator.process.poll() is None, arena.operator.log.read_text()[-3000:]
        assert arena.is_healthy()
        assert taken < baseline + SLACK_SECONDS
        unsaid = await silent(arena, GROUPS[group], stored)
    assert unsaid == {}
    assert arena.peak_bytes() < memory_limit()


def store(arena: Arena, cases: dict[str, Hostile]) -> dict[str, Hostile]:
    """Store the cases and give those that the server took: what it refuses can harm nobody."""
    return {namespace: case for namespace, case in cases.items() if arena.put(namespace, case)}


async def silent(
    arena: Arena, names: dict[str, Hostile], cases: dict[str, Hostile], *, within_seconds: float = 60
) -> dict[str, str]:
    """Give the cases whose status does not say what is wrong, with what it says, after some patience."""
    by_case = {id(case): name for name, case in names.items()}
    deadline = time.monotonic() + within_seconds
    while True:
        heard = {namespace: await asyncio.to_thread(arena.said, namespace) for namespace in cases}
        unsaid = {
            by_case[id(case)]: heard[namespace]
            for namespace, case in cases.items()
            if not tells(heard[namespace], case)
        }
        if not unsaid or time.monotonic() > deadline:
            return unsaid
        await asyncio.sleep(0.5)


def tells(said: str, case: Hostile) -> bool:
    return bool(re.search(case.says, said)) if case.says else not said.startswith(("None:", ":"))


def memory_limit() -> int:
    deployment = next(each for each in installed.objects(installed.OPERATOR) if each["kind"] == "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    limit = container["resources"]["limits"]["memory"]
    assert limit.endswith("Mi")
    return int(limit.removesuffix("Mi")) * 2**20


@pytest.mark.timeout(300)
async def test_an_operator_that_starts_among_all_of_them_works_and_ends_in_time(
    arena: Arena, baseline: float
) -> None:
    assert arena.operator.stop() == 0
    arena.start()
    async with a_tenant(arena, "afterwards") as stage:
        # The first lists take longer with all that is there.
        await complete(stage, "first")
        assert await slowest(stage, AT_ONCE, "later") < baseline + SLACK_SECONDS
    assert arena.is_healthy()
    assert arena.peak_bytes() < memory_limit()
    assert arena.operator.stop() == 0
