"""Orders for a live run from another process."""

from __future__ import annotations

import asyncio

import pytest

from local.jobs import job, role
from paddlejob.local import control
from paddlejob.local.control import Command, send
from paddlejob.local.errors import InputError
from paddlejob.local.store import run_directory

FOREVER = "while :; do sleep 60; done"


@pytest.fixture
async def live(start):
    run = await start(job(worker=role(1, FOREVER)))
    await run.phase("Running")
    async with control.serve_commands(run.runner, run.directory):
        yield run


async def order(run, verb, workers=0):
    return await asyncio.to_thread(send, run.directory, Command(verb, workers))


async def test_workers_are_added(live):
    assert await order(live, "scale", 2) == "scaling to 2 workers"
    assert live.runner.job.spec.worker.replicas == 2


async def test_a_run_is_suspended_resumed_and_deleted(live):
    assert await order(live, "suspend") == "suspending"
    await live.phase("Suspended")
    assert await order(live, "resume") == "resuming"
    await live.phase("Running")
    assert (await order(live, "stop")).startswith("stopping; logs and files are kept")
    assert str(await live.ended()) == "Stopped"


async def test_a_rejected_command_is_explained(live):
    with pytest.raises(InputError, match=r"spec\.worker\.replicas: Invalid value: -1"):
        await order(live, "scale", -1)
    with pytest.raises(InputError, match="unknown command dance"):
        await order(live, "dance")


async def test_an_invalid_command_gets_an_error(live):
    with pytest.raises(InputError, match="invalid command"):
        await asyncio.to_thread(send, live.directory, 5)


def test_a_run_that_has_ended_refuses_commands(tmp_path):
    run = run_directory.create(tmp_path / ("long" * 40), "job")
    with pytest.raises(InputError, match="is not running"):
        send(run, Command("stop"))
