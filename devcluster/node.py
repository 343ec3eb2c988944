"""What one can do with a running node beyond the Kubernetes API: give it images."""

from __future__ import annotations

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from devcluster.archive import Image, Layer, write_archive
from devcluster.cache import write_atomically
from devcluster.node_components import CONTAINERD_SOCKET, PAUSE_IMAGE
from devcluster.processes import PROCESS_RECORDS, read_records
from devcluster.programs import DevclusterError
from devcluster.readiness import seen_from_here

IMPORTED = "images.json"
"""In a cluster's directory: the images that its node was given, and what they are known by."""


class Node:
    """The node of the cluster in a directory, whoever started it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def import_images(self, images: Iterable[Image]) -> None:
        """Give images to the node's container runtime; those that it has cost nothing.

        Raises: DevclusterError when it refuses them.
        """
        had = self._had()
        fresh = [image for image in images if had.get(image.name) != image.digest]
        if fresh:
            self._import(fresh)
            given = {image.name: image.digest for image in fresh}
            write_atomically(self._directory / IMPORTED, json.dumps({**had, **given}))

    def _had(self) -> dict[str, str]:
        try:
            had: dict[str, str] = json.loads((self._directory / IMPORTED).read_text())
        except FileNotFoundError:
            return {}
        return had

    def _import(self, images: list[Image]) -> None:
        command = self._ctr("images", "import", "--no-unpack=false", "-")
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as ctr:
            assert ctr.stdin is not None
            assert ctr.stdout is not None
            try:
                write_archive(images, ctr.stdin)
            except BrokenPipeError:
                pass
            else:
                ctr.stdin.close()
            answer = ctr.stdout.read().decode(errors="replace")
        if ctr.returncode != 0:
            raise DevclusterError(f"The node refused the images: {answer.strip()}")

    def image_names(self) -> set[str]:
        """Name the images that the node has."""
        answer = subprocess.run(
            self._ctr("images", "list", "--quiet"), capture_output=True, text=True, check=True
        )
        return set(answer.stdout.split())

    def _ctr(self, *arguments: str) -> list[str]:
        socket = seen_from_here(self._machine_pid(), CONTAINERD_SOCKET)
        return ["ctr", f"--address={socket}", "--namespace=k8s.io", *arguments]

    def _machine_pid(self) -> int:
        for record in read_records(self._directory / PROCESS_RECORDS):
            if record.name == "machine" and record.alive():
                return record.pid
        raise DevclusterError(
            "The cluster has no running node; start one with `python -m devcluster up --node`."
        )


def install_pause_image(directory: Path, pause: Path) -> None:
    """Give the node the image that holds the namespaces of every pod."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        layer = Path(scratch) / "layer.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(pause, "pause")
        image = Image(PAUSE_IMAGE, (Layer.of(layer),), {"Entrypoint": ["/pause"], "User": "65535:65535"})
        Node(directory).import_images([image])
