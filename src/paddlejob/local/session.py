"""One run from the file to its end: reads, checks, reserves, then lets the world turn."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob.api.v1 import PaddleJob
from paddlejob.core.snapshot import Settings
from paddlejob.local import (
    accelerators,
    admission,
    capabilities,
    documents,
    images,
    run_directory,
    shm,
    volumes,
)
from paddlejob.local.accelerators import Provision
from paddlejob.local.admission import Machine
from paddlejob.local.capabilities import Capabilities
from paddlejob.local.errors import InputError
from paddlejob.local.logs import check_selection
from paddlejob.local.node import BACK_OFF_SECONDS, Node, search_path, write_python_shims
from paddlejob.local.ports import reserve
from paddlejob.local.recorder import Recorder
from paddlejob.local.run_directory import RunDirectory
from paddlejob.local.volumes import Claims
from paddlejob.local.world import Ending, Observer, World


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
    logs: str = "all"
    """Whose output is shown: all, none, a worker's rank, or a pod such as ps-1."""
    strict: bool = False
    back_off_seconds: float = BACK_OFF_SECONDS
    environ: Mapping[str, str] = {}
    allowed: Capabilities | None = None
    """What containers may use, where it is not to be found out."""
    settings: Settings = Settings()


class Session:
    """A run that is ready to begin."""

    def __init__(self, world: World, node: Node, recorder: Recorder, notes: tuple[str, ...]) -> None:
        self.world = world
        self.run_directory = node.run
        self.notes = notes
        self._node = node
        self._recorder = recorder

    async def run(self) -> Ending:
        """Run the job; when this returns, nothing of it is left but its traces."""
        self._recorder.attach(self.world)
        try:
            ending = await self.world.run()
            self._recorder.finish(str(ending))
            return ending
        finally:
            shutil.rmtree(self.run_directory.path / "volumes", ignore_errors=True)


@contextlib.asynccontextmanager
async def prepared(options: Options, observers: tuple[Observer, ...] = ()) -> AsyncIterator[Session]:
    """Read the file and make everything ready; the run's ports and its name are held while this lasts.

    Raises InputError before anything was started.
    """
    source = str(options.file or "standard input")
    read = documents.read(options.text, name=options.name, namespace=options.namespace, source=source)
    check_selection(read.job, options.logs)
    python = find_python(options)
    with _writable(options.runs):
        options.runs.mkdir(parents=True, exist_ok=True)
    allowed = options.allowed or await capabilities.probe(options.runs)
    machine = Machine(images.collect(options.images, options.file), allowed, _claims(options, read.job))
    admission.check(read, machine)
    provision = accelerators.provide(read.job, strict=options.strict)
    job = _taken_over(provision.job)
    notes = (
        *read.notes,
        *admission.notes(job, machine),
        *((provision.note,) if provision.note else ()),
    )
    with reserve() as ports, _new_run(options, job) as run, shm.claim(run) as memory:
        node = _node(options, machine, provision, run, memory, python=python, secrets=read.secrets)
        recorder = Recorder(run, ports.first)
        world = World(
            job,
            node,
            ports,
            config_maps=dict(read.config_maps),
            observers=(recorder, *observers),
            settings=options.settings,
        )
        yield Session(world, node, recorder, notes)


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


def _claims(options: Options, job: PaddleJob) -> Claims:
    return volumes.claims_of(options.volumes, options.runs.parent / "volumes" / job.metadata.namespace)


def _node(
    options: Options,
    machine: Machine,
    provision: Provision,
    run: RunDirectory,
    memory: Path,
    *,
    python: str,
    secrets: Mapping[str, documents.Contents],
) -> Node:
    shims = run.path / "bin"
    write_python_shims(shims, python)
    pods = sum(spec.replicas for _, spec in provision.job.spec.roles())
    return Node(
        name=os.uname().nodename,
        run=run,
        memory=memory,
        capabilities=machine.allowed,
        images=machine.images,
        claims=machine.claims,
        secrets=secrets,
        job_directory=options.file.resolve().parent if options.file else Path.cwd(),
        search_path=search_path(shims, python, options.environ.get("PATH", os.defpath)),
        environ=options.environ,
        threads=max(1, (os.cpu_count() or 1) // pods),
        visible_devices=provision.visible,
        back_off_seconds=options.back_off_seconds,
    )


async def run(options: Options, observers: tuple[Observer, ...] = ()) -> Ending:
    """Run a job from beginning to end, without a person watching."""
    async with prepared(options, observers) as session:
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
