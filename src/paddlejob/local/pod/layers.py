"""Copy-on-write directories of a container, filled with the files of its image."""

from __future__ import annotations

import glob
import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from paddlejob.local.input.dockerfile import Copy
from paddlejob.local.input.images import Image
from paddlejob.local.sandbox.spec import Bind, Mount, Overlay

WORKSPACE = "/workspace"
"""Mount point of the job file's directory in containers of unknown images."""


class HostPath(msgspec.Struct, frozen=True):
    """A file or directory on this machine and its path in the image."""

    source: Path
    target: str


class Layer(msgspec.Struct):
    """A private directory of a container; `upper` receives its writes."""

    target: str
    upper: Path
    lower: list[Path]

    def mount(self) -> Mount:
        """Return the mount that shows this directory in the container."""
        if not self.lower:
            return Bind(kind="bind", source=str(self.upper), target=self.target, read_only=False)
        work = self.upper.with_name(f"{self.upper.name}.work")
        work.mkdir(exist_ok=True)
        lower = [str(each) for each in self.lower]
        return Overlay(kind="overlay", lower=lower, upper=str(self.upper), work=str(work), target=self.target)


class Layers:
    """The private directories of one container; `scratch` holds its writes."""

    def __init__(self, scratch: Path, *, can_overlay: bool) -> None:
        self._scratch = scratch
        self._can_overlay = can_overlay
        self._layers: dict[str, Layer] = {}
        self._files: list[Bind] = []

    def add_image(self, image: Image) -> None:
        """Add the files copied by the image's Dockerfile, and its working directory."""
        for copy in image.config.copies:
            for each in copied_paths(copy, image.directory):
                self.add(each)
        self.ensure(image.config.workdir)

    def ensure(self, directory: str) -> None:
        """Create a directory in the container unless it exists."""
        if self._layer_of(directory) is None and not Path(directory).exists():
            self._add_layer(directory)

    def add(self, path: HostPath) -> None:
        """Add one file or directory."""
        if path.source.is_dir():
            self._add_directory(path)
        elif (layer := self._layer_of(path.target)) or not Path(posixpath.dirname(path.target)).exists():
            layer = layer or self._add_layer(posixpath.dirname(path.target))
            _copy_file(path.source, layer.upper / posixpath.relpath(path.target, layer.target))
        else:
            private = self._scratch / "files" / path.target.lstrip("/")
            _copy_file(path.source, private)
            bind = Bind(kind="bind", source=str(private), target=path.target, read_only=False)
            self._files.append(bind)

    def mounts(self) -> list[Mount]:
        """Return the mounts of all directories and files."""
        return [*(layer.mount() for layer in self._layers.values()), *self._files]

    def host_path(self, path: str) -> str:
        """Return the path on this machine of a container's path, for containers without mounts."""
        layer = self._layer_of(path)
        return str(layer.upper / posixpath.relpath(path, layer.target)) if layer else path

    def _add_directory(self, path: HostPath) -> None:
        layer = self._layers.get(path.target) or self._add_layer(path.target)
        if self._can_overlay:
            layer.lower.insert(0, path.source)
        else:
            shutil.copytree(path.source, layer.upper, dirs_exist_ok=True, symlinks=True)

    def _add_layer(self, target: str) -> Layer:
        """Add a private directory; this machine's files at that path stay visible below it."""
        upper = self._scratch / (target.strip("/").replace("/", "-") or "root")
        upper.mkdir(parents=True, exist_ok=True)
        layer = Layer(target, upper, [])
        if self._can_overlay and Path(target).is_dir():
            layer.lower.append(Path(target).resolve())
        self._layers[target] = layer
        return layer

    def _layer_of(self, path: str) -> Layer | None:
        holders = (each for each in self._layers.values() if f"{path}/".startswith(f"{each.target}/"))
        return max(holders, key=lambda each: len(each.target), default=None)


def copied_paths(copy: Copy, context: Path) -> Iterator[HostPath]:
    """Yield the files and directories that a COPY adds to the image."""
    sources = [path for written in copy.sources for path in _matches(context, written)]
    into = copy.target.endswith("/") or len(sources) > 1
    target = copy.target.rstrip("/") or "/"
    for source in sources:
        if source.is_dir() and target == "/":
            yield from (HostPath(each, f"/{each.name}") for each in sorted(source.iterdir()))
        elif source.is_dir():
            yield HostPath(source, target)
        else:
            yield HostPath(source, posixpath.join(target, source.name) if into else target)


def _matches(context: Path, written: str) -> list[Path]:
    """Return the paths that match a source pattern, inside the directory of the Dockerfile."""
    pattern = posixpath.normpath(posixpath.join("/", written)).lstrip("/")
    found = glob.glob(str(Path(glob.escape(str(context))) / pattern)) if pattern else [str(context)]  # noqa: PTH207
    return [Path(each).resolve() for each in sorted(found)]


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
