"""How fast containers may write while every byte reaches the disk and the reader.

    python bench/local/logs.py [MEGABYTES]

Measures the whole command including its start. The writer is `seq`: a missing number reveals a lost line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PADDLEJOB = str(Path(sys.executable).with_name("paddlejob"))
BYTES_A_LINE = 60
FIRST = 10 ** (BYTES_A_LINE - 2)


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    for pods, logs in ((1, "none"), (1, "all"), (4, "none"), (4, "all")):
        lines = megabytes * 1_000_000 // BYTES_A_LINE // pods
        seconds, whole = measure(pods, logs, lines)
        shown = "and shown with --logs all" if logs == "all" else "not shown"
        speed = pods * lines * BYTES_A_LINE / 1e6 / seconds
        verdict = "complete" if whole else "NOT COMPLETE"
        print(f"{pods} pod(s) write {megabytes} MB, {shown}: {seconds:.1f} s, {speed:.0f} MB/s, {verdict}")


def measure(pods: int, logs: str, lines: int) -> tuple[float, bool]:
    """Return the duration, and whether the log on disk and the output are complete."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "job.yaml"
        file.write_text(json.dumps(job(pods, lines)))
        environ = {**os.environ, "PADDLEJOB_RUNS": f"{directory}/runs"}
        command = f"{PADDLEJOB} run {file} --logs {logs} 2>/dev/null | wc -l"
        began = time.perf_counter()
        shown = subprocess.run(
            ["bash", "-c", command], env=environ, stdout=subprocess.PIPE, check=True
        ).stdout
        seconds = time.perf_counter() - began
        files = sorted(Path(directory).glob("runs/*/logs/*/main.log"))
        whole = all(same(log, lines) for log in files)
    return seconds, whole and len(files) == pods and int(shown) == (pods * lines if logs == "all" else 0)


def same(log: Path, lines: int) -> bool:
    compare = f"seq {FIRST} {FIRST + lines - 1} | cmp - {log}"
    return subprocess.run(["bash", "-c", compare], check=False).returncode == 0


def job(pods: int, lines: int) -> dict[str, object]:
    command = ["seq", str(FIRST), str(FIRST + lines - 1)]
    template = {"spec": {"containers": [{"name": "main", "image": "none", "command": command}]}}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "flood"},
        "spec": {"worker": {"replicas": pods, "template": template}},
    }


if __name__ == "__main__":
    main()
