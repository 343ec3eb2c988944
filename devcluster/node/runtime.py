"""Loads images into a running node."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from devcluster.cache import write_atomically
from devcluster.control_plane.readiness import seen_from_here
from devcluster.errors import DevclusterError
from devcluster.images.build import Image, archive, build_image
from devcluster.node.components import CONTAINERD_SOCKET, PAUSE_IMAGE
from devcluster.processes import PROCESS_RECORDS, read_records

PAUSE_DOCKERFILE = 'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'
IMPORTED = "images.json"
"""File in a cluster's directory with the images of its node and their names."""


class NodeRuntime:
    """The node of the cluster in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def import_images(self, images: Iterable[Image]) -> None:
        """Give images to the node's container runtime; those that it has cost nothing.

        Raises: DevclusterError when it refuses them.
        """
        had = self._had()
        for image in images:
            if had.get(image.name) != image.id:
                self._import(image)
                had[image.name] = image.id
                write_atomically(self._directory / IMPORTED, json.dumps(had))

    def _had(self) -> dict[str, str]:
        try:
            had: dict[str, str] = json.loads((self._directory / IMPORTED).read_text())
        except FileNotFoundError:
            return {}
        return had

    def _import(self, image: Image) -> None:
        command = self._ctr("images", "import", "--no-unpack=false", "-")
        with archive(image) as stream:
            result = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                raise DevclusterError(f"The node refused {image.name}: {result.stderr.strip()}")

    def image_names(self) -> set[str]:
        """Name the images that the node has."""
        answer = subprocess.run(
            self._ctr("images", "list", "--quiet"), capture_output=True, text=True, check=True
        )
        return set(answer.stdout.split())

    def _ctr(self, *arguments: str) -> list[str]:
        socket = seen_from_here(self.machine_pid(), CONTAINERD_SOCKET)
        return ["ctr", f"--address={socket}", "--namespace=k8s.io", *arguments]

    def machine_pid(self) -> int:
        """Give the first process of the node's machine.

        Raises: DevclusterError when it does not run.
        """
        for record in read_records(self._directory / PROCESS_RECORDS):
            if record.name == "machine" and record.alive():
                return record.pid
        raise DevclusterError(
            "The cluster has no running node; start one with `python -m devcluster up --node`."
        )


def install_pause_image(directory: Path, pause: Path) -> None:
    """Give the node the image that holds the namespaces of every pod."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        shutil.copy(pause, Path(scratch) / "pause")
        dockerfile = Path(scratch) / "Dockerfile"
        dockerfile.write_text(PAUSE_DOCKERFILE)
        NodeRuntime(directory).import_images([build_image(PAUSE_IMAGE, dockerfile, Path(scratch))])
