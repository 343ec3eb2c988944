from __future__ import annotations

import asyncio
from types import SimpleNamespace

import aiohttp
import pytest

from paddlejob.kube.resource import PODS
from paddlejob.operator import serving
from paddlejob.operator.metrics import Metrics


def world_with(age: float, *, synced: bool = True, error: str = ""):
    event = asyncio.Event()
    if synced:
        event.set()
    informer = SimpleNamespace(resource=PODS, age_seconds=lambda: age, last_error=error, synced=event)
    return SimpleNamespace(informers=(informer,))


def test_a_fresh_watch_is_healthy():
    assert serving.stale_watches(world_with(60)) == []


def test_a_silent_watch_is_not_whatever_the_port_answers():
    assert serving.stale_watches(world_with(200, error="connection refused")) == [
        "the watch on pods has been silent for 200 s: connection refused"
    ]


def test_before_the_first_list_the_operator_is_not_ready():
    assert serving.unsynced(world_with(0, synced=False)) == ["pods are not listed yet"]


@pytest.mark.parametrize(("problems", "code", "text"), [([], 200, "ok\n"), (["a", "b"], 503, "a\nb\n")])
async def test_a_probe_answers(problems, code, text):
    routes = {"/healthz": serving.probe(lambda: problems)}
    assert await answer_of(routes, "/healthz") == (code, text)


async def answer_of(routes, path: str) -> tuple[int, str]:
    async with (
        serving.serve("127.0.0.1:0", routes) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.parametrize("address", ["0", "", ":0"])
async def test_nothing_is_served_where_nobody_wants_it(address):
    async with serving.serve(address, {}) as port:
        assert port == 0


async def test_metrics_are_told_in_prometheus_text():
    metrics = Metrics()
    metrics.leader.set(1)
    _, text = await answer_of({"/metrics": serving.text(metrics.render)}, "/metrics")
    assert "paddlejob_leader 1.0" in text
