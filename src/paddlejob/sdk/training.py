"""`train`: submits a script or a function as a job."""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from paddlejob.client.errors import NameTakenError
from paddlejob.client.job import Job as ClientJob
from paddlejob.client.manifest import check
from paddlejob.sdk.background import BACKGROUND
from paddlejob.sdk.errors import JobError
from paddlejob.sdk.job import Job, open_jobs
from paddlejob.sdk.manifest import Shape, manifests_of, title_of, unique_name
from paddlejob.sdk.program import Arguments, Function, Program, program_of
from paddlejob.sdk.snapshot import LAPTOP

DEFAULT_IMAGE = "paddlepaddle/paddle:3.0.0"
_HAS_PADDLE = "import importlib.util, sys; sys.exit(importlib.util.find_spec('paddle') is None)"


def train(
    program: str | Path | Function | None = None,
    *,
    args: Arguments = (),
    workers: int = 1,
    ps: int = 0,
    where: str = LAPTOP,
    image: str = DEFAULT_IMAGE,
    command: Sequence[str] = (),
    files: Iterable[str | Path] = (),
    resources: Mapping[str, str | int | float] | None = None,
    env: Mapping[str, str] | None = None,
    volumes: Mapping[str, str] | None = None,
    name: str = "",
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, object] | None = None,
    python: str = "",
) -> Job:
    """Submit a script or a function and return the job without waiting for it to start.

    program: a script (.py or .sh), or a function, which is shipped as source with the globals it uses. It
        runs on every worker and parameter server. Without a program, `command` runs.
    args: command-line arguments of a script, or a dict of keyword arguments of a function.
    where: "laptop", "cluster" for the current context, or the name of a kubeconfig context.
    image: image of the pods. A laptop does not pull it and runs `python` instead.
    command: runs instead of `python PROGRAM`, e.g. ["python", "-m", "paddle.distributed.launch",
        "train.py"].
    files: additional files and directories, up to 1 MiB with the program. They appear in /workspace under
        their paths relative to the current directory.
    resources: requests and limits of each pod: {"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": 1}.
    volumes: PersistentVolumeClaim name or absolute node path by mount path.
    name: name of the job; by default the name of the program with a unique suffix.
    spec: additional fields of the job's spec, as in YAML: {"backoffLimit": 0}.
    python: interpreter on a laptop; by default the interpreter of this process.

    Raises JobError.
    """
    found = program_of(program, args, command, files)
    shape = Shape(
        image=image,
        workers=workers,
        ps=ps,
        resources=resources or {},
        env=env or {},
        volumes=volumes or {},
        labels=labels or {},
        spec=spec or {},
    )
    if where == LAPTOP:
        _check_paddle(found, python or sys.executable)
    jobs = open_jobs(where, namespace, python=python)
    # A laptop appends a suffix to the job name to name the run.
    title = name or title_of(found.title)
    job_name = title if name or where == LAPTOP else unique_name(title)
    manifest, owned = manifests_of(job_name, found, shape)

    async def submit() -> ClientJob:
        check(manifest)
        try:
            return await jobs.submit(manifest, owned=owned)
        except NameTakenError:
            raise JobError(
                f"job {job_name} already exists; choose another name=, or delete it with "
                f"Job.get({job_name!r}, where={where!r}).delete()"
            ) from None

    return Job(BACKGROUND.call(submit), where)


def _check_paddle(program: Program, python: str) -> None:
    """Raise JobError if the program needs Paddle and the interpreter does not have it."""
    user = next((path for path, content in program.files.items() if _imports_paddle(path, content)), None)
    if user is not None and not _has_paddle(python):
        raise JobError(
            f"{user} imports paddle, which {python} does not have; install it there with "
            f"`{python} -m pip install paddlepaddle`, or choose another interpreter with python="
        )


def _imports_paddle(path: str, content: bytes) -> bool:
    if not path.endswith(".py"):
        return False
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):
        # Python reports the error when the job runs.
        return False
    imported = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    imported += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return any(each.partition(".")[0] == "paddle" for each in imported)


def _has_paddle(python: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec("paddle") is not None
    program = shutil.which(python)
    if program is None:
        raise JobError(f"python={python!r}: program not found")
    return subprocess.run([program, "-c", _HAS_PADDLE], check=False, capture_output=True).returncode == 0
