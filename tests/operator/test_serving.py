from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import aiohttp
import pytest

from paddlejob.api.resources import VOLCANO_POD_GROUPS
from paddlejob.kube.resource import PODS
from paddlejob.operator import serving
from paddlejob.operator.metrics import Metrics


def informer_with(age: float, *, synced: bool = True, error: str = "", resource=PODS):
    event = asyncio.Event()
    if synced:
        event.set()
    return SimpleNamespace(resource=resource, age_seconds=lambda: age, last_error=error, synced=event)


def state_with(age: float, **options):
    gangs = SimpleNamespace(informers=())
    return SimpleNamespace(informers=(informer_with(age, **options),), gangs=gangs)


def state_with_gangs(age: float, **options):
    gangs = SimpleNamespace(informers=(informer_with(age, resource=VOLCANO_POD_GROUPS, **options),))
    return SimpleNamespace(informers=(informer_with(0),), gangs=gangs)


def test_a_fresh_watch_is_healthy():
    assert serving.stale_watches(state_with(60)) == []


def test_a_silent_watch_is_unhealthy():
    assert serving.stale_watches(state_with(200, error="connection refused")) == [
        "the watch on pods has been silent for 200 s: connection refused"
    ]


def test_before_the_first_list_the_operator_is_not_ready():
    assert serving.unsynced_kinds(state_with(0, synced=False)) == ["pods have not been listed yet"]


def test_the_watch_of_a_gang_scheduler_counts_once_it_has_worked():
    assert serving.stale_watches(state_with_gangs(200)) == [
        "the watch on podgroups.scheduling.volcano.sh has been silent for 200 s"
    ]
    assert serving.stale_watches(state_with_gangs(200, synced=False, error="not allowed")) == []


def test_a_gang_scheduler_is_waited_for_while_it_is_being_listed_but_not_when_it_refuses():
    assert serving.unsynced_kinds(state_with_gangs(0, synced=False)) == [
        "podgroups.scheduling.volcano.sh have not been listed yet"
    ]
    assert serving.unsynced_kinds(state_with_gangs(200, synced=False, error="not allowed")) == []


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


async def test_requests_of_a_moment_share_one_rendering():
    rendered = []

    def render() -> bytes:
        rendered.append(None)
        return b"text"

    async with serving.serve("127.0.0.1:0", {"/metrics": serving.text(render)}) as port:
        urls = [f"http://127.0.0.1:{port}/metrics"] * 6
        answers = await asyncio.gather(*(asyncio.to_thread(get, url) for url in urls))
    assert answers == [(200, b"text")] * 6
    assert len(rendered) == 1


async def test_a_main_loop_that_does_not_respond_is_not_healthy(monkeypatch):
    monkeypatch.setattr(serving, "MAIN_LOOP_SECONDS", 0.1)
    routes = {"/healthz": serving.probe(list), "/metrics": serving.text(bytes)}
    with ThreadPoolExecutor() as pool:
        async with serving.serve("127.0.0.1:0", routes) as port:
            # Waiting for the results blocks the loop.
            answers = [pool.submit(get, f"http://127.0.0.1:{port}{path}").result(30) for path in routes]
            assert await asyncio.to_thread(get, f"http://127.0.0.1:{port}/healthz") == (200, b"ok\n")
    message = b"the event loop of the operator has not responded within 0.1 s\n"
    assert answers == [(503, message), (503, b"the operator is busy\n")]


def get(url: str) -> tuple[int, bytes]:
    try:
        with urlopen(url, timeout=30) as response:
            return response.status, response.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.parametrize("address", ["0", "", ":0"])
async def test_a_disabled_port_is_not_served(address):
    async with serving.serve(address, {}) as port:
        assert port == 0


async def test_metrics_are_in_prometheus_text_format():
    metrics = Metrics()
    metrics.leader.set(1)
    _, text = await answer_of({"/metrics": serving.text(metrics.render)}, "/metrics")
    assert "paddlejob_leader 1.0" in text
