"""Probes which sandbox features the kernel allows this user, by trying them."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import msgspec

from paddlejob.local.pod.process import ContainerProcess, StartError
from paddlejob.local.sandbox.spec import Bind, ContainerSpec, Isolation, Mount, Overlay

_ISOLATIONS: tuple[Isolation, ...] = ("full", "mounts")

NO_NAMESPACES = (
    "this kernel does not let you create user namespaces; an administrator can allow it with "
    "`sysctl -w kernel.unprivileged_userns_clone=1` (Debian) or "
    "`sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu)"
)

NO_OVERLAYS = "this kernel does not let you mount overlay file systems"


class Capabilities(msgspec.Struct, frozen=True):
    """Sandbox features available to containers."""

    isolation: Isolation
    can_overlay: bool

    @property
    def can_mount(self) -> bool:
        """Whether containers can have their own mounts."""
        return self.isolation != "none"


NONE = Capabilities(isolation="none", can_overlay=False)


async def probe(directory: Path) -> Capabilities:
    """Return the best level of isolation with which a container starts. Creates files in the directory."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=".probe-", ignore_cleanup_errors=True) as place:
        for isolation, can_overlay in itertools.product(_ISOLATIONS, (True, False)):
            if await _works(Path(place), isolation, can_overlay=can_overlay):
                return Capabilities(isolation, can_overlay)
    return NONE


async def _works(place: Path, isolation: Isolation, *, can_overlay: bool) -> bool:
    lower, upper, work = (place / name for name in ("lower", "upper", "work"))
    for part in (lower, upper, work):
        part.mkdir(exist_ok=True)
    mounts: list[Mount] = [
        Bind(kind="bind", source=str(lower), target="/.paddlejob-probe/bind", read_only=False),
    ]
    if can_overlay:
        target = "/.paddlejob-probe/overlay"
        mounts.append(
            Overlay(kind="overlay", lower=[str(lower)], upper=str(upper), work=str(work), target=target)
        )
    spec = ContainerSpec(
        argv=["true"],
        env={"PATH": os.environ.get("PATH", os.defpath)},
        cwd="/",
        log=str(place / "log"),
        isolation=isolation,
        hostname="probe",
        mounts=mounts,
    )
    try:
        process = await ContainerProcess.start(spec)
    except StartError:
        return False
    return await process.wait() == 0
