"""The jobs of the documents, created as they are written and played to the end that the documents show."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from behaviour.stage import Stage
from devcluster import ControlPlane
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import PODS, SERVICES, Resource
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.kubelet.outcomes import Exit
from tests.documents import files
from tests.operator.gang_stage import VolcanoStage
from tests.support.definitions import PADDLE_JOB_CRD, VOLCANO_CRD

ROOT = Path(__file__).parents[2]


class End(NamedTuple):
    """What `kubectl get pdj` prints at the end, and how many pods are left."""

    columns: dict[str, str]
    pods: int
    """All are left with cleanPodPolicy Never, none with OnCompletion, which is the default."""


SHOWN = {"Status": "Completed", "Mode": "PS", "PS": "2/2", "Worker": "0/2"}
"""As the guide shows it, and explains: two servers run, and no worker does, because both are done."""


PS_KEPT, PS_CLEANED = End(SHOWN, 4), End(SHOWN, 0)
COLLECTIVE = End({**SHOWN, "Mode": "Collective", "PS": "0/0"}, 2)

ENDS = {
    "000-overview-1-paddlejob": PS_CLEANED,
    "000-overview-2-paddlejob": COLLECTIVE,
    "001-design-1-paddlejob": PS_CLEANED,
    "001-design-2-paddlejob": COLLECTIVE,
    "002-tutorial-1-paddlejob": PS_KEPT,
    "002-tutorial-2-paddlejob": COLLECTIVE,
    "002-tutorial-3-paddlejob": PS_CLEANED,
    "002-tutorial-4-paddlejob-podgroup": PS_KEPT,
    "002-tutorial-6-paddlejob": PS_CLEANED,
    "003-guide-1-paddlejob": PS_CLEANED,
    "003-guide-2-paddlejob": COLLECTIVE,
    "003-guide-3-paddlejob-podgroup": PS_KEPT,
    "003-guide-4-paddlejob": PS_CLEANED,
    "003-guide-6-paddlejob": PS_CLEANED,
}

Act = Callable[[Any], Awaitable[None]]
Play = Callable[[Act, bool], None]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: whether Volcano is installed is a fact about a whole cluster."""
    with ControlPlane.start() as plane:
        plane.apply(PADDLE_JOB_CRD, VOLCANO_CRD)
        yield plane


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.apiserver)])
def play(request: pytest.FixtureRequest) -> Play:
    """Return what plays an act in a fresh namespace, with Volcano's scheduler if it has to."""
    if request.param == "memory":
        return _in_memory
    plane = request.getfixturevalue("plane")
    return lambda act, has_group: _on_a_real_one(plane, act, has_group=has_group)


def _in_memory(act: Act, has_group: bool) -> None:
    async def main() -> None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(PADDLE_JOB_CRD)
        server.install(VOLCANO_CRD)
        await _stage(Client(server.transport("all")), "default", has_group=has_group).play(act)

    virtual_loop.run(main(), seed=1)


def _on_a_real_one(plane: ControlPlane, act: Act, *, has_group: bool) -> None:
    made = plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "documents-"}})
    namespace = made["metadata"]["name"]
    plane.await_found(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")

    async def main() -> None:
        async with Client(HttpTransport(load_config(plane.kubeconfig))) as client:
            await _stage(client, namespace, has_group=has_group).play(act)

    asyncio.run(main())


def _stage(client: Client, namespace: str, *, has_group: bool) -> Stage:
    if has_group:
        return VolcanoStage(client, namespace, "", status_subresource=False)
    return Stage(client, namespace)


async def create(stage: Stage, documents: list[dict[str, Any]]) -> None:
    kinds = {"PaddleJob": PADDLE_JOBS, "PodGroup": VOLCANO_POD_GROUPS}
    for document in documents:
        with contextlib.suppress(errors.AlreadyExistsError):
            await stage.client.create(kinds[document["kind"]], stage.namespace, document, strict=True)


def columns(job: dict[str, Any]) -> dict[str, Any]:
    """Return what `kubectl get pdj` prints, but for the age, from the columns of the definition."""
    found = {}
    for column in PADDLE_JOB_CRD["spec"]["versions"][0]["additionalPrinterColumns"]:
        if column.get("priority") or column["type"] == "date":
            continue
        value: Any = job
        for part in column["jsonPath"].strip(".").split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found[column["name"]] = value
    return found


@pytest.mark.parametrize("name", ENDS)
def test_a_job_of_the_documents_ends_as_they_show(play: Play, name: str) -> None:
    documents, end = files.manifests()[name], ENDS[name]
    [job] = (each["metadata"]["name"] for each in documents if each["kind"] == "PaddleJob")

    async def act(stage: Stage) -> None:
        for index in range(2):
            stage.fates.set(f"{job}-worker-{index}", Exit(0, 0.3))
        await create(stage, documents)
        await stage.phase("Completed", job)

        async def cleaned() -> bool:
            return len(await stage.names(PODS)) == end.pods

        await stage.until(cleaned, f"{end.pods} pods are left")
        assert columns(await stage.job(job)) == end.columns

    play(act, len(documents) > 1)


WRITTEN_BY_THE_SERVER = ("namespace", "uid", "resourceVersion", "selfLink")
DEFAULTED_BY_THE_SERVER = ".valueFrom.fieldRef.apiVersion"
OTHER_PORT = [
    ".spec.ports[0].port: 2379, ours 36000",
    ".spec.ports[0].targetPort: 2379, ours 36000",
]
DIFFERENCES = {
    names.BASE_PORT: {"001-design-3-service": OTHER_PORT, "001-design-4-pod": [], "001-design-5-pod": []},
    2379: {"001-design-3-service": [], "001-design-4-pod": [], "001-design-5-pod": []},
}
"""By --base-port, as docs/install.md describes."""


def differences(sample: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Yield what of a sample is not so in an object of ours; that ours has more is no difference."""
    if isinstance(sample, dict) and isinstance(ours, dict):
        for key, value in sample.items():
            if key not in WRITTEN_BY_THE_SERVER:
                yield from differences(value, ours.get(key), f"{path}.{key}")
    elif isinstance(sample, list) and isinstance(ours, list):
        by_name = {each["name"]: each for each in ours if isinstance(each, dict) and "name" in each}
        for index, value in enumerate(sample):
            named = value.get("name") if isinstance(value, dict) else None
            other = by_name.get(named) if named else next(iter(ours[index : index + 1]), None)
            yield from differences(value, other, f"{path}[{named or index}]")
    elif sample != ours and not (path.endswith(DEFAULTED_BY_THE_SERVER) and ours is None):
        yield f"{path}: {sample!r}, ours {ours!r}"


@pytest.mark.parametrize("base_port", DIFFERENCES)
def test_objects_are_as_the_design_document_shows_them(play: Play, base_port: int) -> None:
    samples = files.manifests(wild=False)

    async def act(stage: Stage) -> None:
        await stage.stop_operator()
        stage.base_port = base_port
        stage.start_operator()
        documents = samples["001-design-1-paddlejob"]
        service = {**documents[0], "metadata": {"name": "wide-ande-deep-service"}}
        service["spec"] = {**documents[0]["spec"], "intranet": "Service"}
        await create(stage, [*documents, service])
        for name in ("wide-ande-deep", "wide-ande-deep-service"):
            await stage.phase("Running", name)
        found = {}
        for name in ("001-design-3-service", "001-design-4-pod", "001-design-5-pod"):
            [sample] = samples[name]
            resource: Resource = SERVICES if sample["kind"] == "Service" else PODS
            ours = await stage.client.get(resource, stage.namespace, sample["metadata"]["name"])
            found[name] = list(differences(sample, ours))
        assert found == DIFFERENCES[base_port]

    play(act, False)
