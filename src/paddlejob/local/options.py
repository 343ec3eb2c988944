"""What a person may choose for a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from paddlejob.core.snapshot import Settings
from paddlejob.kubelet.restart import FIRST_BACK_OFF_SECONDS
from paddlejob.local.pod.capabilities import Capabilities


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `paddlejob run`, and what only tests choose."""

    text: str
    """The job's file."""
    file: Path | None = None
    """Where the text came from."""
    workspace: Path | None = None
    """What containers of unknown images work in; by default the directory of the file."""
    runs: Path
    name: str = ""
    namespace: str = ""
    python: str = ""
    images: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    logs: str = "all"
    """Pods whose output is shown: all, none, a worker's rank, or a pod such as ps-1."""
    strict: bool = False
    back_off_seconds: float = FIRST_BACK_OFF_SECONDS
    environ: Mapping[str, str] = {}
    allowed: Capabilities | None = None
    """What containers may use; None to find out."""
    settings: Settings = Settings()

    @property
    def directory(self) -> Path:
        """What containers of unknown images work in."""
        chosen = self.workspace or (self.file.parent if self.file else Path.cwd())
        return chosen.resolve()
