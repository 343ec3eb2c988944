"""How long `kubectl pdj` takes to start: for help, and for a list on a loopback API server.

PYTHONPATH=.:tests .venv/bin/python bench/pdj/start.py

With byte code, which an installed package has, and a source tree need not have.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.served_api import served_cluster

REPEATS = 15


def measure(*arguments: str, **environ: str) -> tuple[float, float]:
    """Return the median of the wall time and of the processor time, in milliseconds."""
    command = [sys.executable, "-c", "from paddlejob.cli.kubectl import main; main()", *arguments]
    environ = {**os.environ, **environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    run(command, environ)
    walls, processors = [], []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        run(command, environ)
        walls.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls) * 1000, statistics.median(processors) * 1000


def run(command: list[str], environ: dict[str, str]) -> None:
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, served_cluster(Path(directory)) as cluster:
        environ = {"KUBECONFIG": str(cluster.kubeconfig), "PYTHONPYCACHEPREFIX": f"{directory}/byte-code"}
        for name, arguments in (
            ("--help", ["--help"]),
            ("logs --help", ["logs", "--help"]),
            ("get", ["get"]),
        ):
            wall, processor = measure(*arguments, **environ)
            print(f"{name:12} {wall:6.0f} ms wall, {processor:6.0f} ms processor time (median of {REPEATS})")


if __name__ == "__main__":
    main()
