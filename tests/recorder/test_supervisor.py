"""The supervisor with real processes in PID namespaces, and a real port that it asks for orders."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from paddlejob.operator.reports import certificate
from paddlejob.operator.reports.certificate import Certificate
from tests.recorder.supervised import Container, Operator, Run, mount, start

pytestmark = pytest.mark.timeout(120)

WAITS = """
import os, signal
print("begins", os.environ["PADDLEJOB_ATTEMPT"])
signal.pause()
"""


@pytest.fixture(scope="module")
def made() -> Certificate:
    return asyncio.run(certificate._make("127.0.0.1"))


@pytest.fixture
async def operator(made: Certificate) -> AsyncIterator[Operator]:
    operator = Operator(made)
    async with operator.serve():
        yield operator


@pytest.fixture
def run(tmp_path: Path, made: Certificate, operator: Operator) -> Iterator[Run]:
    started: list[Container] = []

    def run(
        program: str,
        *,
        url: str | None = None,
        constants: Mapping[str, float] = MappingProxyType({}),
        **more: str,
    ) -> Container:
        directory = tmp_path / str(len(started))
        place = mount(directory, made, "a", **constants)
        started.append(start(program, place, operator.url if url is None else url, directory, **more))
        return started[-1]

    yield run
    for each in started:
        each.destroy()


async def test_a_program_that_ends_well_ends_the_container(operator, run):
    pod = run("import os; print(os.getpid() > 1, os.getppid())")
    assert await pod.exit_code() == 0
    assert pod.log == "True 1\n"


async def test_a_program_that_fails_is_run_again_with_the_environment_of_the_order(operator, run):
    program = "import os, sys; print(os.environ['PADDLE_PORT'], os.environ['MINE']); sys.exit(3)"
    pod = run(program, PADDLE_PORT="61001", MINE="1", PADDLEJOB_KEEP_ENV="OTHER,MINE")
    for attempt in (3, 4):
        await operator.sees(attempt=attempt, state="down", code=3)
        operator.order(run=attempt + 1, env={"PADDLE_PORT": f"6100{attempt}", "MINE": "2"})
    await operator.sees(attempt=5, state="down", code=3)
    operator.order(exit=True)
    assert await pod.exit_code() == 3
    assert [line for line in pod.log.splitlines() if "starts" not in line] == [
        "61001 1",
        "61003 1",
        "61004 1",
    ]
    assert pod.has("paddlejob: attempt 4 starts in place")


async def test_a_killed_program_is_down_and_runs_again(operator, run):
    pod = run(WAITS)
    for attempt in (3, 4, 5):
        await pod.says(f"begins {attempt}")
        await operator.sees(attempt=attempt, state="running")
        os.kill(pod.program, signal.SIGKILL)
        await operator.sees(attempt=attempt, state="down", code=137)
        operator.order(run=attempt + 1, env={})
    await pod.says("begins 6")
