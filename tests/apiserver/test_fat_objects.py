"""Fat objects of one tenant on a real API server: the operator serves others within its memory limit."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from devcluster import Client, ControlPlane
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import CONFIG_MAPS, Resource
from simkube.build import job
from tests.apiserver import installed
from tests.apiserver.test_hostile import Arena, a_tenant, complete, memory_limit
from tests.support.hostile import OWN_LABEL, config_map, fat_job, fat_record, many_labels

NAMESPACE = "mallory"


WIDE_TEXT = "\U0001f600" + "x" * 1_000_000
"""Python takes four bytes for each character of a text if one of them is wide."""


def wide_job(name: str) -> dict[str, Any]:
    built = job(name).worker(1, env=[{"name": "FAT", "value": WIDE_TEXT}]).spec(suspend=True)
    return {**built.manifest, "metadata": {"name": name}}


def wide_config_map(name: str) -> dict[str, Any]:
    return config_map(name, {"text": WIDE_TEXT}, {"labels": OWN_LABEL})[1]


# The number of values costs the server more time than their size. On a busy machine it stored a job with a
# megabyte of text in a second, but took more than 30 s for a ConfigMap with 75,000 keys.
FAT: dict[str, tuple[Resource, int, Callable[[int], dict[str, Any]]]] = {
    "jobs of text": (PADDLE_JOBS, 24, lambda number: wide_job(f"fat-{number}")),
    "jobs of many values": (PADDLE_JOBS, 1, lambda number: fat_job(f"many-{number}", size=280_000)),
    "jobs just below the limit": (PADDLE_JOBS, 2, lambda number: fat_job(f"below-{number}", size=250_000)),
    "jobs with labels": (
        PADDLE_JOBS,
        1,
        lambda number: fat_job(f"labelled-{number}", size=0, labels=many_labels(100_000)),
    ),
    "config maps": (CONFIG_MAPS, 80, lambda number: wide_config_map(f"fat-{number}")),
    "recorders": (
        CONFIG_MAPS,
        20,
        lambda number: wide_config_map(f"{names.RECORDER}-{number}") | {"immutable": True},
    ),
    "records": (CONFIG_MAPS, 60, lambda number: fat_record(f"record-{number}", NAMESPACE)),
}
"""Decoded they take more than the 512 MiB of the operator."""


@pytest.fixture
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with ControlPlane.start() as plane:
        installed.apply(plane, installed.CRD, installed.OPERATOR)
        client = Client(plane.url, ca_file=plane.ca_file, token=plane.token)
        arena = Arena(plane, client, tmp_path_factory.mktemp("logs"), False, None, "")  # type: ignore[arg-type]
        start(arena)
        try:
            yield arena
        finally:
            arena.operator.kill()


def start(arena: Arena) -> None:
    """Start an operator within the memory limit of the manifests."""
    arena.start()
    limit = memory_limit()
    resource.prlimit(arena.operator.process.pid, resource.RLIMIT_DATA, (limit, limit))


def store_fat(arena: Arena) -> None:
    def store(each: tuple[Resource, dict[str, Any]]) -> None:
        kind, body = each
        arena.client.send("POST", kind.path(NAMESPACE), json.dumps(body, ensure_ascii=False).encode())

    bodies = ((kind, body(number)) for kind, count, body in FAT.values() for number in range(count))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(store, bodies))


def said_by(arena: Arena, name: str) -> str:
    status = json.loads(arena.client.send("GET", PADDLE_JOBS.path(NAMESPACE, name), b"")).get("status") or {}
    return f"{status.get('phase')}: {status.get('message')}"


def await_said(arena: Arena, name: str, text: str) -> None:
    deadline = time.monotonic() + 120
    while text not in (said := said_by(arena, name)):
        assert time.monotonic() < deadline, said
        time.sleep(0.5)


async def check(arena: Arena, tenant: str) -> None:
    """Run a job of another tenant, and wait for the status of the fat ones."""
    async with a_tenant(arena, tenant) as stage:
        await complete(stage, "innocent")
    await_said(arena, "fat-23", "at most 256 KiB are allowed")
    await_said(arena, "many-0", "at most 256 KiB are allowed")
    await_said(arena, "below-1", "Suspended")
    await_said(arena, "labelled-0", "Suspended")
    async with a_tenant(arena, f"{tenant}-later") as stage:
        await complete(stage, "innocent")
    assert arena.operator.process.poll() is None, arena.operator.log.read_text()[-3000:]
    assert arena.is_healthy()
    print(f"{tenant}: peak {arena.peak_bytes() >> 20} MiB of {memory_limit() >> 20} MiB")
    assert arena.peak_bytes() < memory_limit()


@pytest.mark.timeout(600)
async def test_a_tenant_with_fat_objects_does_not_stop_the_operator_nor_its_successor(arena: Arena) -> None:
    arena.plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    arena.plane.await_found(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default")
    store_fat(arena)
    await check(arena, "while-stored")
    arena.operator.kill()
    start(arena)
    await check(arena, "after-restart")
