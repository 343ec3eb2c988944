"""Small file trees for tests of image layers."""

from __future__ import annotations

import tarfile

from devcluster.layers import BuiltLayer


def members(layer: BuiltLayer) -> list[str]:
    """Name what the layer's tar file holds."""
    with tarfile.open(layer.archived.path) as tar:
        return tar.getnames()


def fill(*paths):
    """Give a function that writes files, each with its own path as its content."""

    def write(tree):
        for path in paths:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(path)

    return write
