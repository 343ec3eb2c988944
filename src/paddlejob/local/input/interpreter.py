"""The Python that containers use: the one that the person's shell would use."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob.local.errors import InputError

PATIENCE_SECONDS = 60.0
WAY_OUT = "choose another with --python, or activate its environment"
_CHOSEN = "--python"
_SHIMS = "shims"
_QUESTION = """
import importlib.metadata, importlib.util, os, re, sys
print(sys.executable)
names = "paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu"
found = importlib.util.find_spec("paddle") and [
    each.version for name in names for each in importlib.metadata.distributions(name=name)
]
print("" if found is None else (found or ["of an unknown version"])[0])
origin = getattr(importlib.util.find_spec("paddle"), "origin", None)
try:
    facts = open(os.path.join(os.path.dirname(origin or "/nonexistent/x"), "version", "__init__.py")).read()
except OSError:
    facts = ""
print(bool(re.search(r"^cuda_version *= *'False'", facts, re.M)))
"""
"""Paddle itself is not imported, which takes seconds; its version file says what it was built for."""


class Interpreter(msgspec.Struct, frozen=True):
    """The Python that containers use, and why it was chosen."""

    path: str
    origin: str
    paddle: str = ""
    """The version of Paddle that it has, if any."""
    is_cpu_only: bool = False
    """Whether that Paddle was built without CUDA."""
    defect: str = ""
    """Why it cannot run Paddle, if it cannot: `has no Paddle`."""

    def __str__(self) -> str:
        return f"{self.path} ({self.origin})"

    @property
    def advice(self) -> str:
        """What to do about its defect."""
        return f"python is {self}, which {self.defect}; {WAY_OUT}"


def locate(chosen: str, environ: Mapping[str, str]) -> Interpreter:
    """Return where the interpreter is. Raises InputError."""
    search_path = environ.get("PATH")
    if chosen:
        found = shutil.which(chosen, path=search_path)
        if found is None:
            raise InputError(f"--python {chosen}: no such program")
        return Interpreter(str(Path(found).absolute()), _CHOSEN)
    return next(_usual(environ, search_path), Interpreter(sys.executable, "paddlejob's own"))


def _usual(environ: Mapping[str, str], search_path: str | None) -> Iterator[Interpreter]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(environ.get(variable) or "/nonexistent") / "bin" / "python"
        if active.exists():
            yield Interpreter(str(active), f"from ${variable}")
    for name in ("python3", "python"):
        if found := shutil.which(name, path=search_path):
            yield Interpreter(str(Path(found).absolute()), f"{name} on the PATH")


async def ask(found: Interpreter, environ: Mapping[str, str]) -> Interpreter:
    """Let an interpreter tell where it really is, and which Paddle it has.

    Raises InputError when one that was chosen does not run; any other may not be needed at all.
    """
    try:
        answer = await asyncio.wait_for(_answer(found.path, environ), PATIENCE_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        broken = msgspec.structs.replace(found, defect=f"does not run: {str(error) or 'no answer'}")
        if found.origin == _CHOSEN:
            raise InputError(broken.advice) from error
        return broken
    if len(answer) != 3:
        return found  # something that passes for Python; who chose it knows why
    path, paddle, is_cpu_only = answer
    # A shim of pyenv decides by variables and directories that containers do not have.
    is_shim = Path(found.path).parent.name == _SHIMS
    return Interpreter(
        path if is_shim else found.path,
        found.origin,
        paddle,
        is_cpu_only=is_cpu_only == "True",
        defect="" if paddle else "has no Paddle",
    )


async def _answer(path: str, environ: Mapping[str, str]) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(path, "-c", _QUESTION),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
        cwd="/",  # so that no file beside the job is taken for Paddle
    )
    try:
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        words = errors.decode(errors="replace").strip().splitlines()
        raise ValueError(words[0] if words else f"exit code {process.returncode}")
    return output.decode(errors="replace").splitlines()[-3:]
