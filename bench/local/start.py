"""How long `paddlejob run` takes from the command to all processes started.

python bench/local/start.py [PODS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PADDLEJOB = str(Path(sys.executable).with_name("paddlejob"))
ROUNDS = 10


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "job.yaml"
        file.write_text(json.dumps(job(pods)))
        environ = {**os.environ, "PADDLEJOB_RUNS": f"{directory}/runs"}
        seconds = sorted(measure(file, environ) for _ in range(ROUNDS))
    print(
        f"{pods} pods, command to all started, {ROUNDS} rounds: "
        f"median {statistics.median(seconds):.2f} s, best {seconds[0]:.2f} s, worst {seconds[-1]:.2f} s"
    )


def job(pods: int) -> dict[str, object]:
    container = {"name": "main", "image": "none", "command": ["true"]}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "start"},
        "spec": {"worker": {"replicas": pods, "template": template}},
    }


def measure(file: Path, environ: dict[str, str]) -> float:
    """Return the time until the last pod was first seen running."""
    began = time.perf_counter()
    last = 0.0
    command = [PADDLEJOB, "run", str(file), "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout
        for line in process.stdout:
            if b'"state":"Running"' in line:
                last = time.perf_counter() - began
    assert process.returncode == 0
    return last


if __name__ == "__main__":
    main()
