"""Builds images from Dockerfiles with buildah: without a daemon and without a registry."""

from __future__ import annotations

import re
import string
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from devcluster.build.compile import Progress
from devcluster.cache import cache_directory, locked
from devcluster.errors import DevclusterError
from devcluster.images import base
from devcluster.package_index import PIP_CONFIGURATION, index_files, pip_configuration
from devcluster.requirements import ISOLATED

MAX_IMAGES = 150
"""Every cached layer counts as one; beyond this, those that no named image needs are removed."""
TAIL_LINES = 20
_FROM = re.compile(r"^FROM\s+(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE | re.MULTILINE)
_ARGUMENT = re.compile(r"^ARG\s+(\w+)=(\S+)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Image:
    """An image in the cache; the id is a hash of its content."""

    name: str
    id: str
    size: str


def build_image(
    name: str,
    dockerfile: Path,
    context: Path,
    *,
    arguments: Mapping[str, str] | None = None,
    timestamp: int | None = None,
    progress: Progress | None = None,
) -> Image:
    """Build an image; layers that were built before come from the cache.

    With a `timestamp` all its times are this one and everything is made anew, so that the same files and the
    same Debian packages make the same image.

    Raises: DevclusterError with the last lines of the output when a step fails.
    """
    said = progress or Progress(sys.stderr)
    given = arguments or {}
    rules = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
    options = [f"--build-arg={key}={value}" for key, value in given.items()]
    options += [f"--ignorefile={rules}"] if rules.exists() else []
    options += _time_options(timestamp)
    with _storage(said) as buildah:
        for each in public_images(dockerfile.read_text(), given):
            _ensure_base(buildah, each, timestamp, said)
        started = time.monotonic()
        buildah.build(name, dockerfile, context, [*options, *buildah.index_options()], said)
        found = buildah.output("images", "--no-trunc", "--format={{.ID}} {{.Size}}", name)
        image_id, *size = found.splitlines()[0].split()
        image = Image(name, image_id, " ".join(size))
        buildah.prune()
    said.say(f"image {name}: {image.size}, {time.monotonic() - started:.1f} s")
    return image


@contextmanager
def archive(image: Image) -> Iterator[IO[bytes]]:
    """Stream an image in the format of `docker save`."""
    with _storage(Progress(sys.stderr)) as buildah:
        command = buildah.command("push", "--quiet", image.id, f"docker-archive:/dev/stdout:{image.name}")
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
    if process.returncode != 0:
        raise DevclusterError(f"The image {image.name} could not be read from the cache.")


def write_layout(image: Image, directory: Path) -> None:
    """Write an image to a directory in the OCI image layout, without compression."""
    with _storage(Progress(sys.stderr)) as buildah:
        buildah.output("push", "--quiet", "--disable-compression", image.id, f"oci:{directory}:latest")


def public_images(dockerfile: str, arguments: Mapping[str, str]) -> list[str]:
    """Name the images that a Dockerfile starts from and does not build itself."""
    values = {**dict(_ARGUMENT.findall(dockerfile)), **arguments}
    found: dict[str, None] = {}
    stages = {"scratch"}
    for name, stage in _FROM.findall(dockerfile):
        image = string.Template(name).safe_substitute(values)
        if image not in stages:
            found[image] = None
        stages.add(stage)
    return list(found)


class _Buildah:
    """buildah on the cache's own storage."""

    def __init__(self, run_directory: str) -> None:
        self._run_directory = run_directory

    def command(self, *arguments: str) -> list[str]:
        """Return a command line in new namespaces: a killed build leaves no mount behind."""
        home = cache_directory() / "buildah"
        storage = [f"--root={home}", f"--runroot={self._run_directory}", "--storage-driver=overlay"]
        return [*ISOLATED, "buildah", *storage, *arguments]

    def output(self, *arguments: str) -> str:
        result = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise DevclusterError(f"`buildah {' '.join(arguments)}` failed: {result.stderr.strip()}")
        return result.stdout

    def has(self, name: str) -> bool:
        command = self.command("inspect", "--type=image", name)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def build(
        self, name: str, dockerfile: Path, context: Path, options: list[str], progress: Progress
    ) -> None:
        fixed = ["--isolation=chroot", "--network=host", "--pull=never", "--layers"]
        command = self.command(
            "build", *fixed, *options, f"--file={dockerfile}", f"--tag={name}", str(context)
        )
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            for line in process.stdout or ():
                tail.append(line)
                if "STEP " in line[:12]:
                    progress.update(f"  {line.strip()[:100]}")
        if process.returncode != 0:
            raise DevclusterError(f"The image {name} could not be built:\n{''.join(tail).strip()}")

    def index_options(self) -> list[str]:
        """Let commands reach package indexes as this machine does; buildah itself passes on proxies.

        What such a command leaves in its layer are places to mount on, which another machine may not have.
        """
        pip = Path(self._run_directory, "pip.conf")
        pip.write_text(pip_configuration())
        volumes = {path: path for path in index_files()} | {PIP_CONFIGURATION: str(pip)}
        return [f"--volume={source}:{target}:ro" for target, source in volumes.items()]

    def prune(self) -> None:
        if len(self.output("images", "--all", "--quiet").split()) > MAX_IMAGES:
            self.output("rmi", "--prune")


@contextmanager
def _storage(progress: Progress) -> Iterator[_Buildah]:
    home = cache_directory()
    waiting = "another process builds images, waiting for it"
    with (
        locked(home / "images.lock", on_wait=lambda: progress.say(waiting)),
        tempfile.TemporaryDirectory(dir=home, prefix="buildah-") as run_directory,
    ):
        yield _Buildah(run_directory)


def _time_options(timestamp: int | None) -> list[str]:
    # buildah takes layers with another time from its cache.
    return [] if timestamp is None else [f"--timestamp={timestamp}", "--no-cache"]


def _ensure_base(buildah: _Buildah, name: str, timestamp: int | None, progress: Progress) -> None:
    """Give an image the name of the public one that it stands for, making it if it is not there.

    One that is to have a certain time is made each time: what lies in the cache has packages of another day.
    """
    if "/" in name and buildah.has(name):
        return  # Built here before. The names of stand-ins have no slash.
    stand_in = base.base_for(name)
    own_name = f"devcluster/base:{stand_in.key}" + ("" if timestamp is None else "-dated")
    if timestamp is not None or not buildah.has(own_name):
        progress.say(f"making {stand_in} for {name}")
        with tempfile.TemporaryDirectory(dir=cache_directory(), prefix="base-") as scratch:
            base.bootstrap(stand_in, Path(scratch) / "base.tar", timestamp=timestamp)
            dockerfile = Path(scratch) / "Dockerfile"
            dockerfile.write_text(base.dockerfile(stand_in))
            buildah.build(own_name, dockerfile, Path(scratch), _time_options(timestamp), progress)
    buildah.output("tag", own_name, name)
