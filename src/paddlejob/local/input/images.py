"""Maps image names to directories with a Dockerfile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

import paddlejob
from paddlejob.local.errors import InputError
from paddlejob.local.input import dockerfile
from paddlejob.local.input.dockerfile import ImageConfig
from paddlejob.local.input.documents import load_yaml

REGISTRY = "images.yaml"
"""A file that maps image names to directories relative to itself, as in the examples."""


class Image(msgspec.Struct, frozen=True):
    """An image with a Dockerfile on this machine."""

    name: str
    directory: Path
    config: ImageConfig


class Images:
    """Finds images by name. Dockerfiles are read on demand."""

    def __init__(self, directories: Mapping[str, Path], options: Iterable[str] = ()) -> None:
        self._directories = directories
        self.options = frozenset(options)
        """The images given by --image."""
        self._found: dict[str, Image] = {}
        self._reading: set[str] = set()

    @property
    def names(self) -> Iterable[str]:
        return self._directories.keys()

    def find(self, name: str) -> Image | None:
        """Return an image, or None if its directory is unknown.

        Raises InputError if its Dockerfile cannot be read.
        """
        directory = self._directories.get(name)
        # An image based on itself, perhaps indirectly, is unknown while it is being read.
        if directory is None or name in self._reading:
            return None
        if name not in self._found:
            self._found[name] = self._read(name, directory)
        return self._found[name]

    def _read(self, name: str, directory: Path) -> Image:
        path = directory / "Dockerfile"
        self._reading.add(name)
        try:
            config = dockerfile.parse(path.read_text(), self._config)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot read {path}, the Dockerfile of image {name}: {reason}") from error
        finally:
            self._reading.discard(name)
        return Image(name, directory, config)

    def _config(self, name: str) -> ImageConfig | None:
        image = self.find(name)
        return image.config if image else None


def collect(options: Iterable[str], directory: Path) -> Images:
    """Return the images of `--image IMAGE=DIR` options and of images.yaml files near a directory.

    Raises InputError.
    """
    known: dict[str, Path] = {}
    given: list[str] = []
    for registry in reversed(list(_registries(directory))):
        known.update(_read_registry(registry))
    for option in options:
        name, separator, chosen = option.rpartition("=")
        if not separator or not name or not chosen:
            raise InputError(
                f"--image {option}: write IMAGE=DIR, where DIR contains the Dockerfile of the image"
            )
        known[name] = Path(chosen).resolve()
        given.append(name)
    return Images(known, given)


def _registries(directory: Path) -> Iterator[Path]:
    """Yield images.yaml files, nearest first: in the directory and above it, then the bundled one."""
    bundled = Path(paddlejob.__file__).resolve().parent / "bundle"
    for parent in (directory, *directory.parents, bundled):
        for place in (parent / REGISTRY, parent / "examples" / REGISTRY):
            if place.is_file():
                yield place


def _read_registry(path: Path) -> dict[str, Path]:
    try:
        listed = next(iter(load_yaml(path.read_text(), str(path))), None)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    images = listed.get("images", listed) if isinstance(listed, dict) else None
    if not isinstance(images, dict) or not all(_is_path(each) for each in images.values()):
        raise InputError(f"{path}: write one line per image: its name and its directory")
    return {str(name): (path.parent / directory).resolve() for name, directory in images.items()}


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()
