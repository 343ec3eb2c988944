"""The images that this machine knows: a name and the directory with its Dockerfile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

import paddlejob
from paddlejob.local.errors import InputError
from paddlejob.local.input import dockerfile, yaml_text
from paddlejob.local.input.dockerfile import ImageConfig

REGISTRY = "images.yaml"
"""A file that maps image names to directories, relative to itself; the examples have one."""


class Image(msgspec.Struct, frozen=True):
    """A known image."""

    name: str
    directory: Path
    config: ImageConfig


class Images:
    """Finds images by name; each Dockerfile is read when it is asked for."""

    def __init__(self, directories: Mapping[str, Path], options: Iterable[str] = ()) -> None:
        self._directories = directories
        self.options = frozenset(options)
        """The images that were given as options."""
        self._found: dict[str, Image] = {}
        self._reading: set[str] = set()

    @property
    def names(self) -> Iterable[str]:
        """All known images."""
        return self._directories.keys()

    def find(self, name: str) -> Image | None:
        """Return an image, or None when its directory is unknown.

        Raises InputError when its Dockerfile cannot be read.
        """
        directory = self._directories.get(name)
        # One that is based on itself, perhaps through others, is not known yet when its base is looked for.
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
    """Return the images of `--image IMAGE=DIR` options and of the registries near a directory.

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
    """Yield registries, nearest first: in a directory and above it, then those of our own examples."""
    carried = Path(paddlejob.__file__).resolve().parent / "bundle"
    for parent in (directory, *directory.parents, carried):
        for place in (parent / REGISTRY, parent / "examples" / REGISTRY):
            if place.is_file():
                yield place


def _read_registry(path: Path) -> dict[str, Path]:
    try:
        listed = next(iter(yaml_text.load_all(path.read_text(), str(path))), None)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    images = listed.get("images", listed) if isinstance(listed, dict) else None
    if not isinstance(images, dict) or not all(_is_path(each) for each in images.values()):
        raise InputError(f"{path}: write one line per image: its name and its directory")
    return {str(name): (path.parent / directory).resolve() for name, directory in images.items()}


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()
