"""Runs jobs for real: every pod is processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

import msgspec
import pytest

from local.commands import PADDLEJOB
from local.jobs import text
from local.processes import fresh_mark, marked
from paddlejob.api.pod import Pod
from paddlejob.core.snapshot import Settings
from paddlejob.local.pod import capabilities
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.runner import Ending
from paddlejob.local.session import Options, prepare
from tests.support.waiting import eventually_async


class Notebook:
    """Writes down what a run tells, in order."""

    def __init__(self):
        self.phases = []
        self.events = []
        self.pods: dict[str, Pod] = {}
        self.gone = []

    def on_job(self, job):
        if job.status.phase and [str(job.status.phase)] != self.phases[-1:]:
            self.phases.append(str(job.status.phase))

    def on_pod(self, pod):
        self.pods[pod.metadata.name] = pod

    def on_pod_gone(self, name):
        self.gone.append(name)

    def on_event(self, event):
        self.events.append(event)


class Run:
    """A run that is going on, or has ended."""

    def __init__(self, session, notebook, mark):
        self.session = session
        self.runner = session.runner
        self.directory = session.directory
        self.notebook = notebook
        self.mark = mark
        self.task = asyncio.create_task(session.run())

    @property
    def status(self):
        return self.runner.job.status

    @property
    def pods(self):
        return self.notebook.pods

    def log(self, pod, container="main"):
        path = self.directory.log(f"{self.runner.job.name}-{pod}", container)
        return path.read_text(errors="replace") if path.exists() else ""

    def env(self, pod):
        lines = self.directory.env(f"{self.runner.job.name}-{pod}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def container(self, pod, index=0):
        return self.pods[f"{self.runner.job.name}-{pod}"].status.container_statuses[index]

    def pid(self, pod):
        pods = {each.name: each.pid for each in self.runner.pods}
        return pods.get(f"{self.runner.job.name}-{pod}")

    async def kill(self, pod):
        """Kill a pod's program; it may have spoken before its supervisor has."""
        await eventually_async(lambda: self.pid(pod) is not None)
        os.kill(self.pid(pod), signal.SIGKILL)

    async def said(self, pod, words, container="main"):
        await eventually_async(lambda: words in self.log(pod, container) or self.task.done())
        assert words in self.log(pod, container)

    async def phase(self, phase):
        await eventually_async(lambda: str(self.status.phase) == phase or self.task.done())
        assert str(self.status.phase) == phase

    async def ended(self) -> Ending:
        return await asyncio.wait_for(asyncio.shield(self.task), 300)


@pytest.fixture(scope="session")
def allowed(tmp_path_factory) -> Capabilities:
    return asyncio.run(capabilities.probe(tmp_path_factory.mktemp("probe")))


@pytest.fixture
async def start(tmp_path, allowed):
    """Start jobs; when the test is over, none of their processes may be left."""
    async with contextlib.AsyncExitStack() as stack:
        runs: list[Run] = []

        async def begin(*documents, **options) -> Run:
            mark, notebook = fresh_mark(), Notebook()
            chosen = Options(
                text=text(*documents),
                file=tmp_path / "job.yaml",
                runs=tmp_path / "runs",
                environ={**os.environ, "TZ": mark},
                allowed=options.pop("allowed", allowed),
                back_off_seconds=options.pop("back_off_seconds", 0.05),
                settings=options.pop("settings", Settings(server_exit_grace_seconds=0.3)),
            )
            session = await stack.enter_async_context(
                prepare(msgspec.structs.replace(chosen, **options), (notebook,))
            )
            runs.append(Run(session, notebook, mark))
            return runs[-1]

        yield begin
        for run in runs:
            run.runner.interrupt()
            run.runner.interrupt()
            await asyncio.wait((run.task,))
            assert not marked(run.mark)


@pytest.fixture
def finish(start):
    """Run a job to its end."""

    async def run(*documents, **options) -> Run:
        begun = await start(*documents, **options)
        await begun.ended()
        return begun

    return run


@pytest.fixture
def directory(tmp_path) -> Path:
    """A directory to put things into."""
    place = tmp_path / "place"
    place.mkdir()
    return place


@pytest.fixture
def command(tmp_path):
    """Run `paddlejob`; what it started is found by a mark in its environment."""
    mark = fresh_mark()
    environ = {**os.environ, "PADDLEJOB_RUNS": str(tmp_path / "runs"), "TZ": mark, "COLUMNS": "120"}

    def paddlejob(*arguments, **options):
        words = [*PADDLEJOB, *map(str, arguments)]
        return subprocess.run(words, env=environ, capture_output=True, check=False, text=True, **options)

    paddlejob.environ = environ
    paddlejob.mark = mark
    return paddlejob


@pytest.fixture
def file(tmp_path):
    def write(*documents):
        path = tmp_path / "job.yaml"
        path.write_text(text(*documents))
        return path

    return write


@pytest.fixture
def background(command, tmp_path):
    """Start `paddlejob run`, which writes into a file."""
    with contextlib.ExitStack() as stack:

        def start(path, *options):
            output = stack.enter_context((tmp_path / "output").open("wb"))
            process = subprocess.Popen(
                [*PADDLEJOB, "run", str(path), *options],
                env=command.environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def output(tmp_path):
    return (tmp_path / "output").read_text
