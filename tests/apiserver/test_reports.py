"""Pods report to an operator, with tokens that a real API server has made, and refuses or accepts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from devcluster import Cluster
from paddlejob.api import names
from paddlejob.core.recorder import TRAINJOB_PATH
from paddlejob.kube.client import Client
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job
from tests.apiserver import installed
from tests.support.reporting import Reporting

TRAINS = """
from paddlejob.recorder import report
for step in range(1, 4):
    report(step, total=30, epoch=1, loss=1 / step)
"""
UPDATES = """
import json, os, ssl
from urllib.request import Request, urlopen

status = {"lastUpdatedTime": "2026-01-01T00:00:00+00:00", "progressPercentage": 45,
          "estimatedRemainingSeconds": 200, "metrics": [{"name": "loss", "value": "0.2347"}]}
with open(os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]) as file:
    headers = {"Authorization": f"Bearer {file.read().strip()}", "Content-Type": "application/json"}
context = ssl.create_default_context(cafile=os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
body = json.dumps({"trainerStatus": status}).encode()
request = Request(os.environ["KUBEFLOW_TRAINER_SERVER_URL"], body, headers)
assert urlopen(request, context=context, timeout=5).status == 200
"""
"""What `kubeflow.trainer.update_trainjob_status` of Kubeflow's SDK 0.5 sends, and from where it knows how."""
OTHER = {"metadata": {"name": "other"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def play(control_plane: Cluster, namespace: str, tmp_path: Path) -> Callable[..., Awaitable[None]]:
    installed.apply(control_plane, installed.CRD)

    async def play(act: Callable[[Reporting], Awaitable[None]]) -> None:
        async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
            stage = Reporting(client, namespace, control_plane, tmp_path)
            await stage.play(act)  # type: ignore[arg-type]

    return play


async def test_a_program_that_is_not_changed_tells_its_step(play) -> None:
    async def act(stage: Reporting) -> None:
        await stage.submit(job().worker(2).spec(recorder=True))
        await stage.phase("Running")
        done = await stage.train("demo-worker-0", TRAINS)
        assert (done.returncode, done.stderr) == (0, "")

        async def is_there() -> bool:
            return (await stage.progress()).get("step") == 3

        await stage.until(is_there, "demo is at step 3")
        told = await stage.progress()
        assert (told["steps"], told["percent"], told["loss"], told["phase"]) == (30, 10, "0.3333", "training")
        token = await stage.token("demo-worker-0")
        assert await stage.post(token, b'{"step": 4, "phase": "\\u001b]0;x\\u0007"}') == 200

        async def has_moved() -> bool:
            return (await stage.progress()).get("step") == 4

        await stage.until(has_moved, "demo is at step 4")
        assert (await stage.progress())["phase"] == "other"

    await play(act)


async def test_a_program_made_for_kubeflow_tells_how_much_is_left(play) -> None:
    async def act(stage: Reporting) -> None:
        await stage.submit(job().worker(1).spec(recorder=True))
        await stage.submit(job("other").worker(1).spec(recorder=True))
        await stage.phase("Running")
        done = await stage.train("demo-worker-0", UPDATES)
        assert (done.returncode, done.stderr) == (0, "")

        async def is_there() -> bool:
            return (await stage.progress()).get("percent") == 45

        await stage.until(is_there, "demo is at 45 %")
        told = await stage.progress()
        assert (told["eta"], told["loss"]) == ("3m20s", "0.2347")
        token = await stage.token("demo-worker-0")
        path = TRAINJOB_PATH.format(namespace=stage.namespace, name="{}")
        body = b'{"trainerStatus": {"progressPercentage": 50}}'
        assert await stage.post(token, body, path=path.format("demo")) == 200
        assert await stage.post(token, body, path=path.format("other")) == 403
        assert await stage.post("abc", body, path=path.format("demo")) == 401
        assert await stage.post(token, b'{"trainerStatus": 5}', path=path.format("demo")) == 400

    await play(act)


async def test_only_a_pod_of_a_job_reports_and_only_for_itself(play) -> None:
    async def act(stage: Reporting) -> None:
        await stage.submit(job().worker(1).spec(recorder=True))
        await stage.submit(job("silent").worker(1))
        await stage.phase("Running")
        await stage.phase("Running", "silent")
        await stage.client.create(PODS, stage.namespace, OTHER)
        right = await stage.token("demo-worker-0")
        head, claims, signature = right.split(".")
        forged = ".".join((head, claims, signature[::-1]))
        assert await stage.post(right) == 200
        refused = {
            "not a token": "abc",
            "a signature of somebody else": forged,
            "another audience": await stage.token("demo-worker-0", audience="https://kubernetes.default.svc"),
            "not bound to a pod": await stage.token(),
            "a pod of nobody's job": await stage.token("other"),
            "a job that did not ask for it": await stage.token("silent-worker-0"),
        }
        assert {case: await stage.post(token) for case, token in refused.items()} == dict.fromkeys(
            refused, 401
        )
        assert await stage.post(forged) == 401
        bodies = {b"{": 400, b'{"step": -1}': 400, b'{"loss": "much"}': 400, b" " * 70000: 413}
        assert {body: await stage.post(right, body) for body in bodies} == bodies
        assert await stage.post(right, path="/elsewhere") == 404
        assert await stage.post(right) == 200
        await stage.client.delete(PODS, stage.namespace, "demo-worker-0", grace_seconds=0)

        async def is_replaced() -> bool:
            try:
                return await stage.token("demo-worker-0") != "" and await stage.post(right) == 401
            except NotFoundError:
                return False

        await stage.until(is_replaced, "the token of a pod that is gone is refused")

    await play(act)


async def test_pods_with_the_recorder_are_admitted_where_the_restricted_standard_is_enforced(
    play, control_plane: Cluster, namespace: str
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.request(
        "PATCH",
        f"/api/v1/namespaces/{namespace}",
        {"metadata": {"labels": labels}},
        content_type="application/merge-patch+json",
    )
    careful = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }

    async def act(stage: Reporting) -> None:
        await stage.submit(job().worker(1, securityContext=careful).spec(recorder=True))
        await stage.phase("Running")
        assert await stage.mount("demo-worker-0")

    await play(act)


async def test_the_next_job_brings_the_recorder_back_when_its_owner_is_deleted(play) -> None:
    async def act(stage: Reporting) -> None:
        await stage.submit(job("first").worker(1).spec(recorder=True))
        await stage.phase("Running", "first")
        [name] = [each for each in await stage.names(CONFIG_MAPS) if each.startswith(names.RECORDER)]
        old = (await stage.client.get(CONFIG_MAPS, stage.namespace, name))["metadata"]["uid"]
        await stage.client.delete(CONFIG_MAPS, stage.namespace, name)
        await stage.submit(job().worker(1).spec(recorder=True))
        await stage.phase("Running")
        new = (await stage.client.get(CONFIG_MAPS, stage.namespace, name))["metadata"]
        assert new["uid"] != old
        assert [owner["name"] for owner in new["ownerReferences"]] == ["demo"]

    await play(act)
