"""Translates a container's manifest into a process: command, directory, environment, mounts."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec

from paddlejob import recorder
from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.kubelet import Sources, expand, resolve
from paddlejob.local.errors import InputError
from paddlejob.local.input.images import Image
from paddlejob.local.pod.context import RunContext, base_environment
from paddlejob.local.pod.layers import WORKSPACE, HostPath, Layers
from paddlejob.local.pod.volumes import PodVolumes
from paddlejob.local.sandbox.spec import Bind, ContainerSpec, Mount
from paddlejob.local.store.run_directory import MEMORY
from paddlejob.recorder.sender import PROGRESS_FILE

RECORDER = str(Path(recorder.__file__).parent / "site")


class ContainerStart(msgspec.Struct, frozen=True):
    """One start of one container of a pod."""

    pod: str
    container: JsonObject
    is_training: bool
    """Whether this is the training container, which is the first."""
    sources: Sources
    volumes: PodVolumes
    hosts: Path


def spec_of(start: ContainerStart, context: RunContext) -> ContainerSpec:
    """Return the supervisor's specification of a container.

    Raises ConfigError if a referenced object does not exist yet, and InputError if this machine cannot
    run the container.
    """
    container, pod = start.container, start.pod
    image = context.images.find(str(container.get("image")))
    given = resolve(container, start.sources)
    layers = _layers(container, image, _new_scratch(context.run.files(pod), str(container["name"])), context)
    mounts = _mounts(start, layers, given, context)
    cwd = str(container.get("workingDir") or (image.config.workdir if image else WORKSPACE))
    return ContainerSpec(
        argv=command_of(container, image, given),
        env=_with_recorder(start, {**_default_environment(start, image, context), **given}, context),
        cwd=cwd if context.capabilities.can_mount else _host_cwd(cwd, layers, image, context),
        log=str(context.run.log(pod, str(container["name"]))),
        isolation=context.capabilities.isolation,
        hostname=pod[:63],
        mounts=mounts,
    )


def command_of(container: JsonObject, image: Image | None, values: dict[str, str]) -> list[str]:
    """Return the program and its arguments, from the manifest or the image. Raises InputError."""
    command, arguments = container.get("command"), container.get("args")
    config = image.config if image else None
    if command:
        words = [*command, *(arguments or ())]
    elif config is not None:
        words = [*config.entrypoint, *(arguments if arguments is not None else config.command)]
    else:
        words = []
    if not words:
        raise InputError(_missing_command(container, image))
    return [expand(str(word), values) for word in words]


def _missing_command(container: JsonObject, image: Image | None) -> str:
    """Return the error for a container without a command."""
    name = container.get("image")
    if image is not None:
        return f"the Dockerfile of {name} in {image.directory} has neither ENTRYPOINT nor CMD; add one"
    return (
        f"container {container.get('name')} has no command, and images are not pulled locally; "
        f"set a command, or pass --image {name}=DIR (DIR contains the Dockerfile)"
    )


def _layers(container: JsonObject, image: Image | None, scratch: Path, context: RunContext) -> Layers:
    layers = Layers(scratch, can_overlay=context.capabilities.can_overlay)
    workdir = container.get("workingDir")
    if image is not None:
        layers.add_image(image)
    elif not workdir and context.capabilities.can_overlay:
        layers.add(HostPath(context.job_directory, WORKSPACE))
    if workdir:
        layers.ensure(str(workdir))
    return layers


def _new_scratch(directory: Path, name: str) -> Path:
    """Return an unused directory: each start of a container begins with the files of its image."""
    paths = (directory / f"{name}-{number}" for number in itertools.count())
    return next(path for path in paths if not path.exists())


def _mounts(
    start: ContainerStart, layers: Layers, values: dict[str, str], context: RunContext
) -> list[Mount]:
    volumes = start.volumes.mounts(start.container, start.sources, values)
    if not context.capabilities.can_mount:
        return []
    own: list[Mount] = [Bind(kind="bind", source=str(start.hosts), target="/etc/hosts", read_only=False)]
    if MEMORY.is_dir():
        own.append(start.volumes.shared_memory())
    if not context.capabilities.can_overlay:
        own.append(Bind(kind="bind", source=str(context.job_directory), target=WORKSPACE, read_only=False))
    # Later mounts win, and the volumes of the manifest come last.
    by_target: dict[str, Mount] = {each["target"]: each for each in (*own, *layers.mounts(), *volumes)}
    return list(by_target.values())


def _host_cwd(cwd: str, layers: Layers, image: Image | None, context: RunContext) -> str:
    if image is None and cwd == WORKSPACE:
        return str(context.job_directory)
    return layers.host_path(cwd)


def _default_environment(start: ContainerStart, image: Image | None, context: RunContext) -> dict[str, str]:
    """Return the variables that apply unless the manifest sets them."""
    pod = start.pod
    env = {**base_environment(context.environ, context.search_path, context.threads), "HOSTNAME": pod}
    if pod in context.visible_devices:
        env["CUDA_VISIBLE_DEVICES"] = context.visible_devices[pod]
    for name, value in (image.config.environment if image else {}).items():
        env[name] = value if name != "PATH" else os.pathsep.join((context.search_path, value))
    return env


def _with_recorder(start: ContainerStart, env: dict[str, str], context: RunContext) -> dict[str, str]:
    """Add the progress recorder to the training container's PYTHONPATH."""
    if not start.is_training:
        return env
    path = os.pathsep.join(filter(None, (RECORDER, env.get("PYTHONPATH"))))
    if env.get(Env.LOG_DIR) == names.LAUNCHER_LOG_DIR:
        env = {**env, Env.LOG_DIR: str(context.run.launcher_logs(start.pod))}
    return {PROGRESS_FILE: str(context.run.progress(start.pod)), **env, "PYTHONPATH": path}
