"""Images as archives that container runtimes import: layers, a configuration and a list of both."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BLOCK = 2**20


@dataclass(frozen=True)
class Layer:
    """A tar file with the digest of its content."""

    path: Path
    digest: str

    @classmethod
    def of(cls, path: Path) -> Layer:
        """Read a tar file and give it as a layer."""
        with path.open("rb") as handle:
            return cls(path, hashlib.file_digest(handle, "sha256").hexdigest())

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.path.stat().st_size


@dataclass(frozen=True)
class Image:
    """A named image; `config` is what a container starts with: Env, Entrypoint, Cmd, WorkingDir, User."""

    name: str
    layers: tuple[Layer, ...]
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The size of all layers in bytes."""
        return sum(layer.size for layer in self.layers)

    @property
    def digest(self) -> str:
        """What the image is known by: a hash of its configuration, which names its layers."""
        return hashlib.sha256(self.description()).hexdigest()

    def description(self) -> bytes:
        """Give the image's configuration file."""
        machine = platform.machine()
        text = {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": dict(self.config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]},
        }
        return json.dumps(text, sort_keys=True).encode()


def write_archive(images: Iterable[Image], stream: IO[bytes]) -> None:
    """Write images as one archive in the format of `docker save`; layers they share are written once."""
    listing, written = [], set()
    with tarfile.open(fileobj=stream, mode="w|", bufsize=BLOCK) as tar:
        for image in images:
            description, config = image.description(), f"{image.digest}.json"
            if config not in written:
                _add(tar, config, io.BytesIO(description), len(description))
            for layer in image.layers:
                if layer.digest not in written:
                    with layer.path.open("rb") as handle:
                        _add(tar, _member(layer), handle, layer.size)
            written |= {config, *(layer.digest for layer in image.layers)}
            layers = [_member(layer) for layer in image.layers]
            listing.append({"Config": config, "RepoTags": [image.name], "Layers": layers})
        manifest = json.dumps(listing).encode()
        _add(tar, "manifest.json", io.BytesIO(manifest), len(manifest))


def _member(layer: Layer) -> str:
    return f"{layer.digest}/layer.tar"


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    tar.addfile(entry, content)
