"""The files of an image as a container sees them: at their paths, and with no way to change the originals."""

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
"""Where a container of an unknown image finds the directory of the job's file."""


class Placed(msgspec.Struct, frozen=True):
    """A file or directory of this machine and its path in the image."""

    source: Path
    target: str


class Layer(msgspec.Struct):
    """A directory of a container that is its own; `upper` receives what it writes."""

    target: str
    upper: Path
    lower: list[Path]

    def mount(self) -> Mount:
        """Return how it is shown."""
        if not self.lower:
            return Bind(kind="bind", source=str(self.upper), target=self.target, read_only=False)
        work = self.upper.with_name(f"{self.upper.name}.work")
        work.mkdir(exist_ok=True)
        lower = [str(each) for each in self.lower]
        return Overlay(kind="overlay", lower=lower, upper=str(self.upper), work=str(work), target=self.target)


class Layers:
    """The own directories of one container; `scratch` holds what it writes into them."""

    def __init__(self, scratch: Path, *, can_overlay: bool) -> None:
        self._scratch = scratch
        self._can_overlay = can_overlay
        self._layers: dict[str, Layer] = {}
        self._files: list[Bind] = []

    def add_image(self, image: Image) -> None:
        """Lay out what the image's Dockerfile copies, and its working directory."""
        for copy in image.config.copies:
            for placed in placements(copy, image.directory):
                self.add(placed)
        self.ensure(image.config.workdir)

    def ensure(self, directory: str) -> None:
        """Give the container a directory that nothing else provides."""
        if self._layer_of(directory) is None and not Path(directory).exists():
            self._own(directory)

    def add(self, placed: Placed) -> None:
        """Lay out one file or directory."""
        if placed.source.is_dir():
            self._add_directory(placed)
        elif (layer := self._layer_of(placed.target)) or not Path(posixpath.dirname(placed.target)).exists():
            layer = layer or self._own(posixpath.dirname(placed.target))
            _copy_file(placed.source, layer.upper / posixpath.relpath(placed.target, layer.target))
        else:
            private = self._scratch / "files" / placed.target.lstrip("/")
            _copy_file(placed.source, private)
            bind = Bind(kind="bind", source=str(private), target=placed.target, read_only=False)
            self._files.append(bind)

    def mounts(self) -> list[Mount]:
        """Return how everything is shown."""
        return [*(layer.mount() for layer in self._layers.values()), *self._files]

    def outside(self, path: str) -> str:
        """Return where a path of the container is on this machine, for a container without own mounts."""
        layer = self._layer_of(path)
        return str(layer.upper / posixpath.relpath(path, layer.target)) if layer else path

    def _add_directory(self, placed: Placed) -> None:
        layer = self._layers.get(placed.target) or self._own(placed.target)
        if self._can_overlay:
            layer.lower.insert(0, placed.source)
        else:
            shutil.copytree(placed.source, layer.upper, dirs_exist_ok=True, symlinks=True)

    def _own(self, target: str) -> Layer:
        """Give the container a directory; what this machine has there stays visible below."""
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


def placements(copy: Copy, context: Path) -> Iterator[Placed]:
    """Yield what a COPY puts where: the contents of directories, and files by their names."""
    sources = [path for written in copy.sources for path in _matches(context, written)]
    into = copy.target.endswith("/") or len(sources) > 1
    target = copy.target.rstrip("/") or "/"
    for source in sources:
        if source.is_dir() and target == "/":
            yield from (Placed(each, f"/{each.name}") for each in sorted(source.iterdir()))
        elif source.is_dir():
            yield Placed(source, target)
        else:
            yield Placed(source, posixpath.join(target, source.name) if into else target)


def _matches(context: Path, written: str) -> list[Path]:
    """Return the files that a source names, inside the directory of the Dockerfile."""
    pattern = posixpath.normpath(posixpath.join("/", written)).lstrip("/")
    found = glob.glob(str(Path(glob.escape(str(context))) / pattern)) if pattern else [str(context)]  # noqa: PTH207
    return [Path(each).resolve() for each in sorted(found)]


def _copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
