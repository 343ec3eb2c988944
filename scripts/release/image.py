"""The operator's image as an archive, built by buildah from the pinned Dockerfile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from devcluster.images.build import archive, build_image


def missing() -> str:
    """Return why no image can be built here, empty where one can."""
    if os.geteuid() != 0:
        return "building one needs root"
    absent = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    return f"{' and '.join(absent)} is not installed" if absent else ""


def build(name: str, source: Path, target: Path, epoch: int) -> Path:
    """Build the image and write it as `docker save` does; its times are those of the commit."""
    built = build_image(
        name,
        source / "deploy" / "docker" / "Dockerfile",
        source,
        arguments={"SOURCE_DATE_EPOCH": str(epoch)},
        timestamp=epoch,
    )
    with archive(built) as stream, target.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return target
