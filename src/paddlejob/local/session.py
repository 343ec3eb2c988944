"""Prepares and runs one job: reads the file, checks this machine, reserves resources, records the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Event
from paddlejob.core.snapshot import Settings
from paddlejob.kubelet import FIRST_BACK_OFF_SECONDS
from paddlejob.local import admission
from paddlejob.local.admission import Machine
from paddlejob.local.errors import InputError
from paddlejob.local.input import accelerators, documents, images, interpreter
from paddlejob.local.input.accelerators import Provision
from paddlejob.local.input.documents import JobFile
from paddlejob.local.pod import capabilities, volumes
from paddlejob.local.pod.capabilities import Capabilities
from paddlejob.local.pod.context import RunContext, search_path, write_python_shims
from paddlejob.local.ports import reserve
from paddlejob.local.runner import Ending, LocalRunner, Observer
from paddlejob.local.store import outcome, run_directory
from paddlejob.local.store.logs import check_selection
from paddlejob.local.store.run_directory import Outcome, RunDirectory, RunRecord

RECORD_SECONDS = 0.2
"""Changes are collected for this long before the record is written."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `paddlejob run`, and a few that only tests set."""

    text: str
    """Content of the job file."""
    file: Path | None = None
    """Path of the job file, None for standard input."""
    workspace: Path | None = None
    """Working directory of containers of unknown images. Default: the directory of the file."""
    runs: Path
    name: str = ""
    namespace: str = ""
    python: str = ""
    images: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    logs: str = "all"
    """Pods to show the output of: all, none, a worker's rank, or a pod such as ps-1."""
    strict: bool = False
    back_off_seconds: float = FIRST_BACK_OFF_SECONDS
    environ: Mapping[str, str] = {}
    allowed: Capabilities | None = None
    """Sandbox features to use; None to probe the kernel."""
    settings: Settings = Settings()

    @property
    def directory(self) -> Path:
        """Working directory of containers of unknown images."""
        return (self.workspace or (self.file.parent if self.file else Path.cwd())).resolve()


class RunSession:
    """A run that is ready to start."""

    def __init__(self, runner: LocalRunner, directory: RunDirectory, recorder: RunRecorder) -> None:
        self.runner = runner
        self.directory = directory
        self.record = recorder.record
        self.outcome = Outcome()
        """Set when the run has ended."""
        self._recorder = recorder

    async def run(self) -> Ending:
        """Run the job. When this returns, all its processes have ended; logs and files remain."""
        self._recorder.start(self.runner)
        try:
            ending = await self.runner.run()
            with contextlib.suppress(OSError):  # the directory may have been removed during the run
                self.outcome = await asyncio.to_thread(outcome.read, self.directory, self.runner.job)
            self._recorder.finish(ending, self.outcome)
            return ending
        finally:
            shutil.rmtree(self.directory.path / "volumes", ignore_errors=True)


class CheckedJob(msgspec.Struct, frozen=True):
    """A job that can run on this machine."""

    job: PaddleJob
    file: JobFile
    machine: Machine
    provision: Provision
    notes: tuple[str, ...]


async def check(options: Options) -> CheckedJob:
    """Read the file and check this machine. Raises InputError if the job cannot run here."""
    source = str(options.file or "standard input")
    file = documents.read(options.text, name=options.name, namespace=options.namespace, source=source)
    check_selection(file.job, options.logs)
    machine = await _inspect_machine(options, file.job)
    admission.check(file, machine)
    provision = accelerators.provide(file.job, strict=options.strict, python=machine.python)
    # There is only one controller here, so managedBy has no effect.
    job = replace(provision.job, spec=replace(provision.job.spec, managed_by=""))
    notes = [*file.notes, *admission.notes(job, machine, options.directory), provision.note]
    return CheckedJob(job, file, machine, provision, tuple(filter(None, notes)))


@contextlib.asynccontextmanager
async def prepare(options: Options, observers: tuple[Observer, ...] = ()) -> AsyncIterator[RunSession]:
    """Check the job, reserve ports and create the run's directory.

    Raises InputError before anything is started.
    """
    checked = await check(options)
    with reserve() as ports, _new_run(options, checked.job) as run, run_directory.claim_memory(run) as memory:
        python = str(checked.machine.python)
        record = RunRecord(job=checked.job, base_port=ports.first, notes=checked.notes, python=python)
        recorder = RunRecorder(run, record)
        runner = LocalRunner(
            checked.job,
            _context(options, checked, run, memory),
            ports,
            config_maps=checked.file.config_maps,
            observers=(recorder, *observers),
            settings=options.settings,
        )
        yield RunSession(runner, run, recorder)


async def _inspect_machine(options: Options, job: PaddleJob) -> Machine:
    """Collect the features of this machine; the interpreter and the kernel are probed concurrently."""
    python = interpreter.locate(options.python, options.environ)
    with _explain_write_errors(options.runs):
        options.runs.mkdir(parents=True, exist_ok=True)
    probing = asyncio.create_task(_probe_kernel(options))
    try:
        python = await interpreter.inspect(python, options.environ)
    finally:
        allowed = await probing
    claims = volumes.claims_of(options.volumes, options.runs.parent / "volumes" / job.metadata.namespace)
    return Machine(images.collect(options.images, options.directory), allowed, claims, python)


async def _probe_kernel(options: Options) -> Capabilities:
    return options.allowed or await capabilities.probe(options.runs)


@contextlib.contextmanager
def _new_run(options: Options, job: PaddleJob) -> Iterator[RunDirectory]:
    run_directory.sweep_memory()
    with _explain_write_errors(options.runs):
        run = run_directory.create(options.runs, job.name)
        (run.path / "job.yaml").write_text(options.text)
        lock = run.lock()
    try:
        yield run
    finally:
        os.close(lock)


@contextlib.contextmanager
def _explain_write_errors(runs: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to {runs}: {error.strerror}; choose another directory with --run-dir"
        ) from error


def _context(options: Options, checked: CheckedJob, run: RunDirectory, memory: Path) -> RunContext:
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


class RunRecorder:
    """Writes the record and the events of a run to disk. A failed write costs only these."""

    def __init__(self, run: RunDirectory, record: RunRecord) -> None:
        self.record = record
        self._run = run
        self._pods: dict[str, Pod] = {}
        self._gone: set[str] = set()
        self._pids: Callable[[], dict[str, int]] = dict
        self._pending: asyncio.TimerHandle | None = None
        self._warn: Callable[[str], None] | None = None

    def start(self, runner: LocalRunner) -> None:
        """Write the first record."""
        self._pids = runner.pids
        self._warn = runner.warn
        self.on_job(runner.job)
        self._write()

    def finish(self, result: Ending, outcome: Outcome) -> None:
        """Write the last record."""
        self.record = replace(self.record, result=str(result), outcome=outcome)
        self._write()

    def on_job(self, job: PaddleJob) -> None:
        self.record = replace(self.record, job=job)
        self._write_soon()

    def on_pod(self, pod: Pod) -> None:
        self._pods[pod.metadata.name] = pod
        self._gone.discard(pod.metadata.name)
        self._write_soon()

    def on_pod_gone(self, name: str) -> None:
        self._gone.add(name)
        self._write_soon()

    def on_event(self, event: Event) -> None:
        stamped = {**msgspec.to_builtins(event), "time": datetime.now(UTC)}
        with self._warn_once():
            self._run.append_event(msgspec.json.encode(stamped))

    def _write_soon(self) -> None:
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(RECORD_SECONDS, self._write)

    def _write(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        pods = tuple(self._pods[name] for name in sorted(self._pods))
        self.record = replace(self.record, pods=pods, gone=tuple(sorted(self._gone)), pids=self._pids())
        with self._warn_once():
            self._run.write_record(self.record)

    @contextlib.contextmanager
    def _warn_once(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The warning is an event, which this class records too.
            warn, self._warn = self._warn, None
            if warn is not None:
                problem = f"cannot write to {self._run.path}: {error.strerror}"
                warn(f"{problem}; training continues, but other commands may show an old state")
