"""One run from the file to its end: reads, checks, reserves, then runs the job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from paddlejob.api.v1 import PaddleJob
from paddlejob.local import admission
from paddlejob.local.admission import Machine
from paddlejob.local.errors import InputError
from paddlejob.local.input import accelerators, documents, images, interpreter
from paddlejob.local.input.accelerators import Provision
from paddlejob.local.input.documents import JobFile
from paddlejob.local.input.interpreter import Interpreter
from paddlejob.local.options import Options
from paddlejob.local.pod import capabilities, volumes
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.context import RunContext, search_path, write_python_shims
from paddlejob.local.ports import reserve
from paddlejob.local.runner import Ending, LocalRunner, Observer
from paddlejob.local.store import outcome, run_directory, shm
from paddlejob.local.store.logs import check_selection
from paddlejob.local.store.recorder import Recorder
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord


class LocalRun:
    """A run that is ready to begin."""

    def __init__(
        self,
        runner: LocalRunner,
        run_directory: RunDirectory,
        recorder: Recorder,
        notes: tuple[str, ...],
        python: Interpreter,
    ) -> None:
        self.runner = runner
        self.run_directory = run_directory
        self.notes = notes
        self.python = python
        self.outcome = Outcome()
        """What came of the run, once it is over."""
        self._recorder = recorder

    async def run(self) -> Ending:
        """Run the job; when this returns, nothing of it is left but its logs and files."""
        self._recorder.start(self.runner.job, self.runner.pids, self.runner.warn)
        try:
            ending = await self.runner.run()
            with contextlib.suppress(OSError):  # the directory may have been removed meanwhile
                self.outcome = await asyncio.to_thread(outcome.read, self.run_directory, self.runner.job)
            self._recorder.finish(str(ending), self.outcome)
            return ending
        finally:
            shutil.rmtree(self.run_directory.path / "volumes", ignore_errors=True)


class Checked(msgspec.Struct, frozen=True):
    """A job that can run on this machine."""

    job: PaddleJob
    file: JobFile
    machine: Machine
    provision: Provision
    notes: tuple[str, ...]


async def check(options: Options) -> Checked:
    """Read the file and look at this machine. Raises InputError when the job cannot run here."""
    source = str(options.file or "standard input")
    read = documents.read(options.text, name=options.name, namespace=options.namespace, source=source)
    check_selection(read.job, options.logs)
    machine = await _machine(options, read.job)
    admission.check(read, machine)
    provision = accelerators.provide(read.job, strict=options.strict, python=machine.python)
    job = _taken_over(provision.job)
    notes = (
        *read.notes,
        *admission.notes(job, machine, options.directory),
        *((provision.note,) if provision.note else ()),
    )
    return Checked(job, read, machine, provision, notes)


@contextlib.asynccontextmanager
async def prepared(options: Options, observers: tuple[Observer, ...] = ()) -> AsyncIterator[LocalRun]:
    """Read the file and make everything ready; the run's ports and its name are held while this lasts.

    Raises InputError before anything was started.
    """
    checked = await check(options)
    with reserve() as ports, _new_run(options, checked.job) as run, shm.claim(run) as memory:
        python, notes = checked.machine.python, checked.notes
        fixed = RunRecord(job=checked.job, base_port=ports.first, notes=notes, python=str(python))
        recorder = Recorder(run, fixed)
        runner = LocalRunner(
            checked.job,
            _context(options, checked, run, memory),
            ports,
            config_maps=dict(checked.file.config_maps),
            observers=(recorder, *observers),
            settings=options.settings,
        )
        yield LocalRun(runner, run, recorder, notes, python)


async def _machine(options: Options, job: PaddleJob) -> Machine:
    """Look at this machine; the interpreter and the kernel are asked at the same time."""
    python = interpreter.locate(options.python, options.environ)
    with _writable(options.runs):
        options.runs.mkdir(parents=True, exist_ok=True)
    probing = asyncio.create_task(_allowed(options))
    try:
        python = await interpreter.ask(python, options.environ)
    finally:
        allowed = await probing
    claims = volumes.claims_of(options.volumes, options.runs.parent / "volumes" / job.metadata.namespace)
    return Machine(images.collect(options.images, options.directory), allowed, claims, python)


async def _allowed(options: Options) -> Capabilities:
    return options.allowed or await capabilities.probe(options.runs)


@contextlib.contextmanager
def _new_run(options: Options, job: PaddleJob) -> Iterator[RunDirectory]:
    shm.sweep()
    with _writable(options.runs):
        run = run_directory.create(options.runs, job.name)
        (run.path / "job.yaml").write_text(options.text)
        lock = run.lock()
    try:
        yield run
    finally:
        os.close(lock)


@contextlib.contextmanager
def _writable(runs: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to {runs}: {error.strerror}; choose another directory with --run-dir"
        ) from error


def _context(options: Options, checked: Checked, run: RunDirectory, memory: Path) -> RunContext:
    machine, provision, python = checked.machine, checked.provision, checked.machine.python.path
    shims = run.path / "bin"
    write_python_shims(shims, python)
    pods = sum(spec.replicas for _, spec in provision.job.spec.roles())
    return RunContext(
        name=os.uname().nodename,
        run=run,
        memory=memory,
        capabilities=machine.allowed,
        images=machine.images,
        claims=machine.claims,
        secrets=checked.file.secrets,
        job_directory=options.directory,
        search_path=search_path(shims, python, options.environ.get("PATH", os.defpath)),
        environ=options.environ,
        threads=max(1, (os.cpu_count() or 1) // pods),
        visible_devices=provision.visible,
        back_off_seconds=options.back_off_seconds,
    )


async def run(options: Options, observers: tuple[Observer, ...] = ()) -> Ending:
    """Run a job from beginning to end, without a person watching."""
    async with prepared(options, observers) as local_run:
        return await local_run.run()


def _taken_over(job: PaddleJob) -> PaddleJob:
    """Here is only one controller, whatever the job says about who manages it."""
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, managed_by=""))
