"""`train`: a script or a function as a job."""

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
from paddlejob.sdk.job import Job
from paddlejob.sdk.manifest import Shape, generated, manifests_of, title_of
from paddlejob.sdk.places import LAPTOP, open_jobs
from paddlejob.sdk.program import Arguments, Function, Program, program_of

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
    """Train a script or a function, and return the job at once, while it starts.

    program: a script (.py or .sh), or a function, which is shipped as source with the globals it uses. It
        runs on every worker and parameter server. Without one, `command` runs what is in the image.
    args: words for a script, or a dict of keyword arguments for a function.
    where: "laptop", "cluster" for the current context, or the name of a kubeconfig context.
    image: what the pods run; on a laptop it is not pulled, and `python` is used.
    command: what to run in place of `python PROGRAM`, e.g. ["python", "-m", "paddle.distributed.launch",
        "train.py"].
    files: more files and directories to ship, up to 1 MiB with the program. They appear in /workspace under
        the same paths as from the current directory.
    resources: what each pod asks for and may use: {"cpu": 2, "memory": "4Gi", "nvidia.com/gpu": 1}.
    volumes: by mount path, the name of a PersistentVolumeClaim or an absolute path of the node.
    name: of the job; by default that of the program, completed so that it is unique.
    spec: more fields of the job's spec as in YAML: {"backoffLimit": 0}.
    python: on a laptop, the interpreter; by default that of this process.

    Raises JobError, which says in a sentence what is missing.
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
    # A run on a laptop gets a name of its own, which begins with that of the job.
    title = name or title_of(found.title)
    job_name = title if name or where == LAPTOP else generated(title)
    manifest, owned = manifests_of(job_name, found, shape)

    async def submitted() -> ClientJob:
        check(manifest)
        try:
            return await jobs.submit(manifest, owned=owned)
        except NameTakenError:
            raise JobError(
                f"there is a job {job_name} already; choose another name=, or delete it with "
                f"Job.get({job_name!r}, where={where!r}).delete()"
            ) from None

    return Job(BACKGROUND.call(submitted), where)


def _check_paddle(program: Program, python: str) -> None:
    """Say that Paddle is missing before a job fails for it."""
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
        # The program will say so itself, and better.
        return False
    imported = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    imported += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return any(each.partition(".")[0] == "paddle" for each in imported)


def _has_paddle(python: str) -> bool:
    if python == sys.executable:
        return importlib.util.find_spec("paddle") is not None
    program = shutil.which(python)
    if program is None:
        raise JobError(f"python={python!r}: there is no such program")
    return subprocess.run([program, "-c", _HAS_PADDLE], check=False, capture_output=True).returncode == 0
