"""The API server stores JSON of 10,000 levels: such a job says so itself, and all others go on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from behaviour.stage import Stage
from devcluster import Cluster
from kube.deep_json import nested
from paddlejob.api.meta import ObjectMeta, View
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJobStatus
from paddlejob.kube import decoding
from paddlejob.kube.client import Client
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from simkube.build import job

CRD = Path(__file__).parents[2] / "deploy" / "v1" / "crd.yaml"


class Seen(View, frozen=True):
    metadata: ObjectMeta
    status: PaddleJobStatus = PaddleJobStatus()


def _manifest(namespace: str, levels: int) -> bytes:
    manifest = job("deep").worker(1).manifest
    manifest["metadata"] = {"name": "deep", "namespace": namespace}
    manifest["spec"]["worker"]["template"]["spec"]["x"] = "@"
    return json.dumps(manifest).encode().replace(b'"@"', nested(levels))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("levels", [900, 1100, 9900, 9980])
def test_a_job_that_is_nested_too_deeply_harms_no_other(control_plane: Cluster, namespace: str, levels: int):
    """Listed when the operator starts, watched when its status is written, and deleted."""
    control_plane.apply(CRD)

    async def act(stage: Stage) -> None:
        transport = HttpTransport(load_config(control_plane.kubeconfig))
        path = PADDLE_JOBS.path(namespace, "deep")

        async def seen() -> Seen:
            response = await transport.request("GET", path)
            return decoding.decode(msgspec.json.Decoder(Seen), response.body)

        async def is_told() -> bool:
            return "nested more than 100 levels deep" in (await seen()).status.message

        async with Client(transport) as client:
            await stage.stop_operator()
            collection = PADDLE_JOBS.path(namespace)
            created = await transport.request("POST", collection, body=_manifest(namespace, levels))
            assert created.status == 201, created.body[:300]
            stage.start_operator()
            await stage.submit(job().worker(1))
            await stage.phase("Running")
            await stage.until(is_told, "the job says what is wrong with it")
            await client.delete(PADDLE_JOBS, namespace, "deep")
            await stage.submit(job("after").worker(1))
            await stage.phase("Running", "after")
            assert await stage.names() == ["after-worker-0", "demo-worker-0"]

    async def play() -> None:
        async with Client(HttpTransport(load_config(control_plane.kubeconfig))) as client:
            await Stage(client, namespace).play(act)

    asyncio.run(play())
