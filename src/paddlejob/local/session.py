"""One run from the file to its end: reads, checks, reserves, then lets the world turn."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import Event
from paddlejob.core.snapshot import Settings
from paddlejob.local import accelerators, admission, capabilities, documents, images, run_directory, volumes
from paddlejob.local.capabilities import Capabilities
from paddlejob.local.errors import InputError
from paddlejob.local.node import BACK_OFF_SECONDS, Node, search_path, write_python_shims
from paddlejob.local.run_directory import Record, RunDirectory
from paddlejob.local.slot import Slot, reserve
from paddlejob.local.world import Ending, Observer, World

RECORD_SECONDS = 0.2
"""How long changes are gathered before the record is written again."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a person may choose."""

    text: str
    """The job's file."""
    file: Path | None = None
    """Where the text came from; its directory is what containers of unknown images work in."""
    runs: Path
    name: str = ""
    namespace: str = ""
    python: str = ""
    images: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    strict: bool = False
    back_off_seconds: float = BACK_OFF_SECONDS
    environ: Mapping[str, str] = {}
    allowed: Capabilities | None = None
    """What containers may use, where it is not to be found out."""
    settings: Settings = Settings()


class Session:
    """A run that is ready to begin. Close it, or run it."""

    def __init__(self, world: World, run: RunDirectory, recorder: Recorder, notes: tuple[str, ...]) -> None:
        self.world = world
        self.run_directory = run
        self.notes = notes
        self._recorder = recorder

    async def run(self) -> Ending:
        """Run the job; when this returns, nothing of it is left but its traces."""
        lock = self.run_directory.lock()
        try:
            self._recorder.attach(self.world)
            ending = await self.world.run()
            self._recorder.finish(str(ending))
        finally:
            shutil.rmtree(self.run_directory.path / "volumes", ignore_errors=True)
            if lock is not None:
                os.close(lock)
        return ending


async def prepare(options: Options, slot: Slot, observers: tuple[Observer, ...] = ()) -> Session:
    """Read the file and make everything ready. Raises InputError before anything was started."""
    read = documents.read(options.text, name=options.name, namespace=options.namespace)
    known = images.collect(options.images, options.file)
    claims = volumes.claims_of(options.volumes, options.runs.parent / "volumes" / read.job.metadata.namespace)
    options.runs.mkdir(parents=True, exist_ok=True)
    allowed = options.allowed or await capabilities.probe(options.runs)
    admission.check(read.job, known, allowed)
    provision = accelerators.provide(read.job, strict=options.strict)
    job = _taken_over(provision.job)
    run = run_directory.create(options.runs, job.name)
    (run.path / "job.yaml").write_text(options.text)
    python = find_python(options)
    write_python_shims(run.path / "bin", python)
    pods = sum(spec.replicas for _, spec in job.spec.roles())
    node = Node(
        name=os.uname().nodename,
        run=run,
        capabilities=allowed,
        images=known,
        claims=claims,
        secrets=read.secrets,
        job_directory=options.file.resolve().parent if options.file else Path.cwd(),
        search_path=search_path(run.path / "bin", python, options.environ.get("PATH", os.defpath)),
        environ=options.environ,
        threads=max(1, (os.cpu_count() or 1) // pods),
        visible_devices=provision.visible,
        back_off_seconds=options.back_off_seconds,
    )
    recorder = Recorder(run, slot.base_port)
    world = World(
        job,
        node,
        slot,
        config_maps=dict(read.config_maps),
        observers=(recorder, *observers),
        settings=options.settings,
    )
    notes = (*read.notes, *admission.notes(job, known), *((provision.note,) if provision.note else ()))
    return Session(world, run, recorder, notes)


async def run(options: Options, observers: tuple[Observer, ...] = ()) -> Ending:
    """Run a job from beginning to end, without a person watching."""
    with reserve() as slot:
        session = await prepare(options, slot, observers)
        return await session.run()


def find_python(options: Options) -> str:
    """Return the interpreter that `python` means to containers: chosen, of the active virtualenv, or ours."""
    if options.python:
        found = shutil.which(options.python, path=options.environ.get("PATH"))
        if found is None:
            raise InputError(f"--python {options.python}: there is no such program")
        return str(Path(found).absolute())
    if environment := options.environ.get("VIRTUAL_ENV"):
        active = Path(environment) / "bin" / "python"
        if active.exists():
            return str(active)
    return sys.executable


def _taken_over(job: PaddleJob) -> PaddleJob:
    """Here is only one controller, whatever the job says about who manages it."""
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, managed_by=""))


class Recorder:
    """Keeps the run's record and events on disk."""

    def __init__(self, run: RunDirectory, base_port: int) -> None:
        self._run = run
        self._base_port = base_port
        self._job: PaddleJob | None = None
        self._pods: dict[str, Pod] = {}
        self._pids: Callable[[], dict[str, int]] = dict
        self._pending: asyncio.TimerHandle | None = None

    def attach(self, world: World) -> None:
        """Begin to keep a world's record."""
        self._pids = lambda: {pod.name: pod.pid for pod in world.pods if pod.pid}
        self.job_changed(world.job)
        self._write("")

    def finish(self, result: str) -> None:
        """Write the last record."""
        self._write(result)

    def job_changed(self, job: PaddleJob) -> None:
        """Write soon."""
        self._job = job
        self._soon()

    def pod_changed(self, pod: Pod) -> None:
        """Write soon; of a pod that is gone, the last of its states stays."""
        self._pods[pod.metadata.name] = pod
        self._soon()

    def told(self, event: Event) -> None:
        """Keep what was told."""
        self._run.append_event(msgspec.json.encode(event))

    def _soon(self) -> None:
        if self._pending is None:
            self._pending = asyncio.get_running_loop().call_later(RECORD_SECONDS, self._write, "")

    def _write(self, result: str) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        assert self._job is not None
        pods = tuple(self._pods[name] for name in sorted(self._pods))
        self._run.write_record(
            Record(job=self._job, pods=pods, pids=self._pids(), base_port=self._base_port, result=result)
        )
