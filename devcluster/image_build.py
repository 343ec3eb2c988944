"""Builds images from Dockerfiles, without a daemon and without a registry."""

from __future__ import annotations

import hashlib
import posixpath
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from devcluster import layers
from devcluster.archive import Image
from devcluster.base_images import base_for, ensure_base
from devcluster.build import Progress
from devcluster.cache import cache_directory, locked
from devcluster.copying import Context, Copy
from devcluster.dockerfile import Instruction, exec_form, parse, substitute, variables
from devcluster.layers import BuiltLayer
from devcluster.programs import DevclusterError
from devcluster.run_step import Step, perform

MEGABYTE = 10**6
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
WITHOUT_EFFECT = ("EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME")
"""Instructions that change nothing in a pod."""


@dataclass(frozen=True)
class State:
    """A stage of a build, after some of its instructions."""

    layers: tuple[BuiltLayer, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": DEFAULT_PATH})
    directory: str = "/"
    user: str = ""
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def trees(self) -> list[Path]:
        """The directories of its layers, from the base up."""
        return [layer.tree for layer in self.layers]

    def key(self, *parts: object) -> str:
        """Give the key of a layer on top of this state."""
        below = self.layers[-1].key if self.layers else ""
        return hashlib.sha256(repr((below, *parts)).encode()).hexdigest()[:24]

    def config(self) -> dict[str, Any]:
        """Give what a container starts with."""
        everything = {
            "Env": [f"{name}={value}" for name, value in self.environment.items()],
            "WorkingDir": self.directory,
            "User": self.user,
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
        }
        return {name: value for name, value in everything.items() if value}


def build_image(
    name: str,
    dockerfile: Path,
    context: Path,
    *,
    arguments: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Image:
    """Build an image; layers that were built before come from the cache.

    Raises: DevclusterError with the command's last lines when a step fails.
    """
    said = progress or Progress(sys.stderr)
    lock = cache_directory() / "images.lock"
    with locked(lock, on_wait=lambda: said.say("another process builds images, waiting for it")):
        layers.prune()
        said.say(f"image {name}")
        build = _Build(parse(dockerfile.read_text()), Context.of(context, dockerfile), arguments or {}, said)
        state = build.run()
    image = Image(name, tuple(layer.archived for layer in state.layers), state.config())
    said.say(f"image {name} has {len(image.layers)} layers, {image.size / MEGABYTE:.0f} MB")
    return image


class _Build:
    """One Dockerfile being followed."""

    def __init__(
        self,
        instructions: list[Instruction],
        context: Context,
        given: Mapping[str, str],
        progress: Progress,
    ) -> None:
        self._instructions = instructions
        self._context = context
        self._given = given
        self._progress = progress
        self._stages: dict[str, State] = {}
        self._global_arguments: dict[str, str] = {}
        self._arguments: dict[str, str] = {}

    def run(self) -> State:
        state: State | None = None
        name = ""
        for instruction in self._instructions:
            if instruction.name == "FROM":
                state, name = self._start(instruction)
            elif state is None:
                self._global_arguments |= self._declared(instruction, self._global_arguments)
            else:
                state = self._follow(instruction, state)
            if state is not None:
                self._stages[name] = state
        assert state is not None
        return state

    def _start(self, instruction: Instruction) -> tuple[State, str]:
        words = substitute(instruction.text, self._global_arguments).split()
        self._arguments = {}
        name = words[2] if len(words) > 2 else str(len(self._stages))
        if words[0] in self._stages:
            return self._stages[words[0]], name
        base = base_for(words[0])
        layer = self._timed(f"FROM {words[0]} ({base})", base.key, lambda: ensure_base(base))
        return State((layer,)), name

    def _follow(self, instruction: Instruction, state: State) -> State:
        values = {**self._arguments, **state.environment}
        text = substitute(instruction.text, values)
        match instruction.name:
            case "ARG":
                self._arguments |= self._declared(instruction, values)
            case "ENV":
                return replace(state, environment={**state.environment, **variables(text)})
            case "WORKDIR":
                return self._enter(posixpath.normpath(posixpath.join(state.directory, text)), state)
            case "USER":
                return replace(state, user=text)
            case "SHELL":
                return replace(state, shell=tuple(instruction.words()))
            case "ENTRYPOINT":
                # As in every build: a new entrypoint makes the base's command meaningless.
                return replace(state, entrypoint=_program(instruction, state), command=())
            case "CMD":
                return replace(state, command=_program(instruction, state))
            case "RUN":
                return self._run(instruction, state)
            case "ADD" | "COPY":
                return self._copy(replace(instruction, text=text), state)
            case name if name not in WITHOUT_EFFECT:
                raise DevclusterError(f"The instruction {name} is not understood.")
        return state

    def _declared(self, instruction: Instruction, values: Mapping[str, str]) -> dict[str, str]:
        if instruction.name != "ARG":
            raise DevclusterError(f"{instruction.name} cannot come before FROM.")
        name, _, default = substitute(instruction.text, values).partition("=")
        inherited = self._global_arguments.get(name, "")
        return {name: self._given.get(name, default.strip("\"'") or inherited)}

    def _enter(self, directory: str, state: State) -> State:
        state = replace(state, directory=directory)
        if layers.lookup(state.trees, layers.resolve(state.trees, directory)) is not None:
            return state
        key = state.key("WORKDIR", directory)
        target = layers.resolve(state.trees, directory).lstrip("/")
        return self._add(state, f"WORKDIR {directory}", key, lambda tree: (tree / target).mkdir(parents=True))

    def _run(self, instruction: Instruction, state: State) -> State:
        if instruction.flags:
            raise DevclusterError(f"`{instruction}`: the flags of RUN are not understood.")
        command = exec_form(instruction.text) or [*state.shell, instruction.text]
        environment = {"HOME": "/root", **self._arguments, **state.environment}
        uid, gid = _ids(state.user, state.trees)
        key = state.key("RUN", command, environment, state.directory, uid, gid)
        step = Step(tuple(command), environment, state.directory, uid, gid, tuple(state.trees))
        return self._add(state, str(instruction), key, lambda tree: perform(step, tree))

    def _copy(self, instruction: Instruction, state: State) -> State:
        *sources, target = instruction.words()
        if any("://" in source for source in sources):
            raise DevclusterError(f"`{instruction}`: only files of the context can be copied.")
        place = posixpath.join(state.directory, target)
        whole = layers.resolve(state.trees, posixpath.normpath(place))
        is_directory = place.endswith("/") or target == "." or layers.lookup(state.trees, whole) is not None
        context = self._source(instruction.flags.get("from"), sources)
        owner = instruction.flags.get("chown", "0:0")
        mode = instruction.flags.get("chmod")
        copy = Copy(
            context.select(sources, f"{whole.rstrip('/')}/" if is_directory else whole),
            _ids(owner, state.trees),
            int(mode, 8) if mode else None,
        )
        key = state.key("COPY", copy.digest())
        return self._add(state, str(instruction), key, copy.perform)

    def _source(self, stage: str | None, sources: list[str]) -> Context:
        if stage is None:
            return self._context
        if stage not in self._stages:
            raise DevclusterError(f"COPY --from={stage}: there is no such stage.")
        return Context(layers.merged(self._stages[stage].layers, posixpath.commonpath(sources)))

    def _add(self, state: State, label: str, key: str, fill: layers.Fill) -> State:
        layer = self._timed(label, key, lambda: layers.find(key) or layers.build(key, fill))
        return replace(state, layers=(*state.layers, layer))

    def _timed(self, label: str, key: str, make: layers.Make) -> BuiltLayer:
        shown = label if len(label) <= 70 else f"{label[:67]}..."
        cached = layers.find(key) is not None
        started = time.monotonic()
        if not cached and label.startswith(("FROM", "RUN")):
            self._progress.update(f"  {shown} ...")
        layer = make()
        took = "cached" if cached else f"{time.monotonic() - started:.1f} s"
        self._progress.say(f"  {shown}: {took}, {layer.archived.size / MEGABYTE:.1f} MB")
        return layer


def _program(instruction: Instruction, state: State) -> tuple[str, ...]:
    return tuple(exec_form(instruction.text) or (*state.shell, instruction.text))


def _ids(owner: str, trees: list[Path]) -> tuple[int, int]:
    """Give the numbers of `user`, `user:group`, `1000` or `1000:1000`, names as the image knows them."""
    user, _, group = owner.partition(":")
    uid, primary = _entry(user or "0", "/etc/passwd", trees)
    return uid, _entry(group, "/etc/group", trees)[0] if group else primary


def _entry(name: str, file: str, trees: list[Path]) -> tuple[int, int]:
    path = layers.lookup(trees, file)
    rows = [line.split(":") for line in path.read_text().splitlines()] if path is not None else []
    for row in rows:
        if name in (row[0], row[2]):
            return int(row[2]), int(row[3]) if row[3].isdigit() else 0
    if name.isdigit():
        return int(name), 0
    raise DevclusterError(f"The image has no {name!r} in {file}.")
