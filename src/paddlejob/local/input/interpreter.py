"""Finds the Python for the containers: by default the one that the user's shell would run."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from paddlejob.local.errors import InputError

PROBE_SECONDS = 60.0
ADVICE = "choose another with --python, or activate its environment"
_CHOSEN = "--python"
_SHIMS = "shims"
_PROBE = """
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
"""Reads Paddle's version file, because importing Paddle takes seconds."""


class Interpreter(msgspec.Struct, frozen=True):
    """The Python for the containers, and why it was chosen."""

    path: str
    origin: str
    paddle: str = ""
    """Version of its Paddle, if any."""
    is_cpu_only: bool = False
    """Whether that Paddle was built without CUDA."""
    defect: str = ""
    """Why it cannot run Paddle, such as `has no Paddle`."""

    def __str__(self) -> str:
        return f"{self.path} ({self.origin})"

    @property
    def advice(self) -> str:
        """A sentence that names the defect and the options."""
        return f"python is {self}, which {self.defect}; {ADVICE}"


def locate(chosen: str, environ: Mapping[str, str]) -> Interpreter:
    """Find the interpreter. Raises InputError if the chosen one does not exist."""
    search_path = environ.get("PATH")
    if chosen:
        found = shutil.which(chosen, path=search_path)
        if found is None:
            raise InputError(f"--python {chosen}: no such program")
        return Interpreter(str(Path(found).absolute()), _CHOSEN)
    return next(_candidates(environ, search_path), Interpreter(sys.executable, "paddlejob's own"))


def _candidates(environ: Mapping[str, str], search_path: str | None) -> Iterator[Interpreter]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(environ.get(variable) or "/nonexistent") / "bin" / "python"
        if active.exists():
            yield Interpreter(str(active), f"from ${variable}")
    for name in ("python3", "python"):
        if found := shutil.which(name, path=search_path):
            yield Interpreter(str(Path(found).absolute()), f"{name} on the PATH")


async def inspect(found: Interpreter, environ: Mapping[str, str]) -> Interpreter:
    """Run the interpreter to find its real path and its version of Paddle.

    Raises InputError if a chosen interpreter does not run; any other may not be needed.
    """
    try:
        answer = await asyncio.wait_for(_probe(found.path, environ), PROBE_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        broken = msgspec.structs.replace(found, defect=f"does not run: {str(error) or 'no answer'}")
        if found.origin == _CHOSEN:
            raise InputError(broken.advice) from error
        return broken
    if len(answer) != 3:
        return found  # a program that only resembles Python
    path, paddle, is_cpu_only = answer
    # A pyenv shim depends on variables and directories that containers do not have.
    is_shim = Path(found.path).parent.name == _SHIMS
    return Interpreter(
        path if is_shim else found.path,
        found.origin,
        paddle,
        is_cpu_only=is_cpu_only == "True",
        defect="" if paddle else "has no Paddle",
    )


async def _probe(path: str, environ: Mapping[str, str]) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        *(path, "-c", _PROBE),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
        cwd="/",  # a directory called paddle next to the job file must not be imported
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
