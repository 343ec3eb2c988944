from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from aiohttp import web

from kube.https_server import serve, transport_to
from kube.scripted_transport import ScriptedTransport, ok, refusal
from paddlejob.kube import errors
from paddlejob.kube.client import Client, ServerClock
from paddlejob.kube.resource import PODS
from paddlejob.kube.transport import Response
from simkube.apiserver.server import ApiServer

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds):
    return NOON + timedelta(seconds=seconds)


def date_of(moment):
    """Return a Date header, which has whole seconds."""
    return format_datetime(moment.astimezone(UTC), usegmt=True)


def observe(clock, *, sent, offset, took=0.02):
    """Let a server whose clock shows noon and `offset` at our second 0 answer half-way."""
    clock.observe(date_of(after(sent + offset + took / 2)), sent, sent + took)


def offset_of(clock, seconds=0.0):
    """Return how far the server's time is from what it would be without an offset."""
    return (clock.now(seconds) - after(seconds)).total_seconds()


def test_unknown_until_a_response_came():
    assert ServerClock().now(0.0) is None


@pytest.mark.parametrize("offset", [600.0, -600.0, 3.0, -3.0, 0.4, -0.4, 0.0])
def test_one_response_gives_the_offset_to_within_a_second(offset):
    clock = ServerClock()
    observe(clock, sent=0.3, offset=offset)
    assert abs(offset_of(clock) - offset) <= 1.02


@pytest.mark.parametrize("seed", range(10))
def test_many_responses_narrow_it_down(seed):
    rng, clock = random.Random(seed), ServerClock()
    offset = rng.uniform(-700, 700)
    for number in range(200):
        observe(clock, sent=number + rng.random(), offset=offset, took=rng.uniform(0.001, 0.1))
    assert abs(offset_of(clock) - offset) < 0.1


def test_time_advances_between_responses():
    clock = ServerClock()
    observe(clock, sent=0.0, offset=600)
    assert clock.now(50.0) - clock.now(20.0) == timedelta(seconds=30)


def test_a_slow_response_changes_nothing():
    clock = ServerClock()
    observe(clock, sent=0.5, offset=600)
    known = offset_of(clock)
    observe(clock, sent=5, offset=600, took=29)
    assert offset_of(clock) == known


def test_a_change_of_the_server_clock_is_followed_immediately():
    clock = ServerClock()
    observe(clock, sent=0, offset=600)
    observe(clock, sent=1, offset=-30)
    assert offset_of(clock) == pytest.approx(-30, abs=1.02)


def test_a_drifting_clock_is_followed():
    clock = ServerClock()
    for number in range(1000):
        observe(clock, sent=float(number), offset=number / 100)
        assert offset_of(clock) == pytest.approx(number / 100, abs=1.02)


@pytest.mark.parametrize(
    "date", ["", "soon", "Sun, 99 Mar 2026 12:00:00 GMT", "Fri, 31 Dec 9999 12:00:00 GMT"]
)
def test_an_invalid_date_is_ignored(date):
    clock = ServerClock()
    observe(clock, sent=0, offset=600)
    known = offset_of(clock)
    clock.observe(date, 1.0, 1.0)
    assert offset_of(clock) == known


@pytest.mark.parametrize("offset", [600, -600, 0])
async def test_a_client_knows_the_clock_of_a_real_server(offset):
    async def handler(request):
        date = date_of(datetime.now(UTC) + timedelta(seconds=offset))
        return web.json_response({}, headers={"Date": date})

    async with serve(handler) as server, transport_to(server) as transport:
        client = Client(transport)
        assert client.server_now() is None
        await client.get(PODS, "default", "a")
        skew = client.server_now() - datetime.now(UTC)
        assert skew.total_seconds() == pytest.approx(offset, abs=2)


async def test_only_successes_of_a_server_count():
    elsewhere = {"date": date_of(NOON)}
    proxys = Response(404, refusal(404).body, elsewhere)
    client = Client(ScriptedTransport(proxys, ok(), Response(200, b"{}", elsewhere)))
    with pytest.raises(errors.NotFoundError):
        await client.get(PODS, "default", "a")
    assert client.server_now() is None
    await client.get(PODS, "default", "a")
    assert client.server_now() is None
    await client.get(PODS, "default", "a")
    assert abs(client.server_now() - NOON) < timedelta(seconds=2)


async def test_a_watch_updates_the_clock():
    server = ApiServer(now=lambda: NOON)
    client = Client(server.transport())
    async with client.watch_stream(PODS, None, {"watch": "1"}, idle_timeout_seconds=1):
        assert abs(client.server_now() - NOON) < timedelta(seconds=2)
