"""The process: what it finishes, what it gives up, and what it says when it ends."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from contextlib import closing, suppress
from functools import partial

import pytest
from aiohttp import web

from kube.https_server import serve
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.lease import LeaderElector, LeaseLostError
from paddlejob.kube.resource import LEASES, PODS
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator import manager
from paddlejob.operator.ports.server import new_event_loop
from paddlejob.operator.settings import HistorySettings, OperatorSettings, ProcessSettings
from simkube import virtual_loop
from simkube.apiserver import refusals
from simkube.build import job
from simkube.operator import Operator
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster


class Candidate(Operator):
    """One process of several, with a lease."""

    def __init__(self, cluster: SimulatedCluster, latency: float = 0.0) -> None:
        transport = cluster.server.transport("operator", latency_seconds=(latency, latency))
        client = Client(transport, rng=random.Random(0))
        elector = LeaderElector(
            client,
            namespace="default",
            name=manager.LEASE_NAME,
            identity="first",
            rng=random.Random(0),
            now=virtual_loop.now,
        )
        super().__init__(client, elector=elector)
        self.elector = elector

    def start(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.run())


def _steal_lease(cluster: SimulatedCluster) -> None:
    cluster.server.patch(LEASES, "default", manager.LEASE_NAME, {"spec": {"holderIdentity": "other"}})


@simulated
async def test_a_stolen_lease_ends_with_its_own_error(cluster):
    running = Candidate(cluster).start()
    await asyncio.sleep(5)
    _steal_lease(cluster)
    with pytest.raises(LeaseLostError, match="first has lost lease default/paddlejob-operator"):
        await running


@simulated
async def test_a_watch_that_ends_by_a_defect_ends_the_process(cluster, monkeypatch):
    operator = Candidate(cluster)

    async def fail() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    monkeypatch.setattr(operator.controller, "watch", fail)
    with pytest.raises(ZeroDivisionError):
        await operator.start()
    assert not operator.elector.is_leader


@simulated
async def test_a_worker_that_ends_by_a_defect_ends_the_process(cluster, monkeypatch):
    operator = Candidate(cluster)

    def fail(key) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(operator.controller.queue, "done", fail)
    cluster.submit(job().worker(1))
    with pytest.raises(ZeroDivisionError):
        await operator.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_ends_the_work_in_order_and_the_second_would_kill(number):
    started, handler = asyncio.Event(), None

    async def work() -> None:
        nonlocal handler
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            handler = signal.getsignal(number)

    running = asyncio.create_task(manager._until_signalled(work()))
    await started.wait()
    signal.raise_signal(number)
    await running
    assert handler is signal.SIG_DFL


def test_the_loop_is_uvloops_where_it_is_installed(monkeypatch):
    for installed in (True, False):
        if not installed:
            monkeypatch.setitem(sys.modules, "uvloop", None)
        with closing(new_event_loop()) as loop:
            assert (type(loop).__module__ == "uvloop") is installed


@simulated
async def test_running_reconciles_finish_when_the_process_is_stopped(cluster):
    """All pods of the job are created, its event is recorded, and only then is the lease given back."""

    operator = Candidate(cluster, latency=0.2)
    running = operator.start()
    await asyncio.sleep(3)
    cluster.submit(job().worker(20))
    while not cluster.server.objects(PODS):
        await asyncio.sleep(0.05)
    assert len(cluster.server.objects(PODS)) < 20
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert len(cluster.server.objects(PODS)) == 20
    assert cluster.server.get(LEASES, "default", manager.LEASE_NAME)["spec"]["holderIdentity"] == ""
    assert operator.controller.metrics.reconciles.labels("error")._value.get() == 0


@simulated
async def test_running_reconciles_are_dropped_when_the_lease_is_lost(cluster):
    operator = Candidate(cluster, latency=0.5)
    running = operator.start()
    await asyncio.sleep(8)
    cluster.submit(job().worker(200))
    while not cluster.server.objects(PODS):
        await asyncio.sleep(0.05)
    _steal_lease(cluster)
    with pytest.raises(LeaseLostError):
        await running
    created = len(cluster.server.objects(PODS))
    assert created < 200
    await asyncio.sleep(60)
    assert len(cluster.server.objects(PODS)) == created


@simulated
async def test_a_write_that_waited_to_be_repeated_is_not_sent_without_the_lease(cluster):
    refused = 0

    def busy(request) -> None:
        nonlocal refused
        if request.resource == PODS:
            refused += 1
            raise refusals.refusal(429, "TooManyRequests", "busy", retry_after_seconds=20)

    cluster.server.admission.append(busy)
    operator = Candidate(cluster)
    running = operator.start()
    cluster.submit(job().worker(1))
    await asyncio.sleep(5)
    assert refused == 1
    writing = asyncio.create_task(operator.client.create(PODS, "default", {"metadata": {}}))
    await asyncio.sleep(1)
    _steal_lease(cluster)
    with pytest.raises(errors.NotLeaderError, match="cannot create pods: this process is not the leader"):
        await writing
    with pytest.raises(LeaseLostError):
        await running
    assert refused == 2


async def test_a_lease_is_renewed_while_other_requests_hang(monkeypatch):
    """A renewal has a connection of its own, and does not wait behind the requests of jobs."""
    monkeypatch.setattr(manager, "HttpTransport", partial(HttpTransport, connection_limit=1))
    hanging, renewed = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            # As servers say that do not stream lists: then they are read page by page.
            return web.json_response({"reason": "Invalid"}, status=422)
        if "/leases" not in request.path:
            hanging.set()
            await asyncio.Event().wait()
        if request.method == "PUT" and hanging.is_set():
            renewed.set()
        exists = request.method != "GET"
        return web.json_response(await request.json() if exists else {}, status=200 if exists else 404)

    async with serve(handler) as server:
        process = ProcessSettings("0", "0", leader_election=True)
        running = asyncio.create_task(manager.run(server.config(), OperatorSettings(), process))
        try:
            async with asyncio.timeout(25):
                await renewed.wait()
        finally:
            running.cancel()
            await asyncio.wait([running])


@simulated
async def test_a_failed_background_task_is_logged(cluster, monkeypatch, caplog):
    operator = Operator(
        Client(cluster.server.transport("operator")), OperatorSettings(history=HistorySettings())
    )

    async def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(operator.controller.history, "run", fail)
    await operator.run_for(5)
    assert "bug in the operator: record history ended" in caplog.text
    assert "ZeroDivisionError" in caplog.text
