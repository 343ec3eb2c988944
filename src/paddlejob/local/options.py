"""What a person may choose for a run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob.core.snapshot import Settings
from paddlejob.kubelet.restart import FIRST_BACK_OFF_SECONDS
from paddlejob.local.errors import InputError
from paddlejob.local.pod.capabilities import Capabilities


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `paddlejob run`, and what only tests choose."""

    text: str
    """The job's file."""
    file: Path | None = None
    """Where the text came from; its directory is what containers of unknown images work in."""
    runs: Path
    name: str = ""
    namespace: str = ""
    python: str = ""
    images: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    logs: str = "all"
    """Whose output is shown: all, none, a worker's rank, or a pod such as ps-1."""
    strict: bool = False
    back_off_seconds: float = FIRST_BACK_OFF_SECONDS
    environ: Mapping[str, str] = {}
    allowed: Capabilities | None = None
    """What containers may use; None to find out."""
    settings: Settings = Settings()


class Interpreter(msgspec.Struct, frozen=True):
    """The Python that containers use, and why it was chosen."""

    path: str
    origin: str

    def __str__(self) -> str:
        return f"{self.path} ({self.origin})"


def find_python(options: Options) -> Interpreter:
    """Return the interpreter that `python` means in containers: the one that the person's shell would use.

    Raises InputError.
    """
    search_path = options.environ.get("PATH")
    if options.python:
        found = shutil.which(options.python, path=search_path)
        if found is None:
            raise InputError(f"--python {options.python}: no such program")
        return Interpreter(str(Path(found).absolute()), "--python")
    return next(_usual(options.environ, search_path), Interpreter(sys.executable, "paddlejob's own"))


def _usual(environ: Mapping[str, str], search_path: str | None) -> Iterator[Interpreter]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(environ.get(variable) or "/nonexistent") / "bin" / "python"
        if active.exists():
            yield Interpreter(str(active), f"from ${variable}")
    for name in ("python3", "python"):
        if found := shutil.which(name, path=search_path):
            yield Interpreter(str(Path(found).absolute()), f"{name} on the PATH")
