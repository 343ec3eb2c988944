"""The processor time of the runner, compared with the training that it runs.

    python bench/local/cpu.py [FILE OPTIONS...]

Runs the job of `make demo` in a terminal, with the live view, and samples all its processes until the end.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PADDLEJOB = str(Path(sys.executable).with_name("paddlejob"))
LOOK_SECONDS = 0.2
START_SECONDS = 4.0
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    arguments = sys.argv[1:] or default_job()
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    with subprocess.Popen([PADDLEJOB, "run", *arguments], stdout=slave, stderr=slave, env=environ) as runner:
        os.close(slave)
        reader = threading.Thread(target=drain, args=(master,))
        reader.start()
        began, spent, at_start = time.monotonic(), {}, (0.0, 0.0)
        while runner.poll() is None:
            spent.update(processes(runner.pid))
            if time.monotonic() - began < START_SECONDS:
                at_start = totals(spent)
            time.sleep(LOOK_SECONDS)
    reader.join()
    ours, jobs = totals(spent)
    print(f"start: {at_start[0]:.2f} s of processor time for the runner and its supervisors")
    print(
        f"then: {ours - at_start[0]:.2f} s beside {jobs - at_start[1]:.1f} s of the job, "
        f"{100 * (ours - at_start[0]) / (jobs - at_start[1]):.1f} %"
    )


def totals(spent: dict[tuple[int, str], tuple[str, float]]) -> tuple[float, float]:
    """Return the CPU seconds of the runner and of the job."""
    ours = sum(seconds for kind, seconds in spent.values() if kind != "job")
    return ours, sum(seconds for kind, seconds in spent.values() if kind == "job")


def default_job() -> list[str]:
    script = str(ROOT / "scripts" / "paddle_env.py")
    python = subprocess.run(
        [sys.executable, script, "2.6.2"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return [str(ROOT / "deploy" / "examples" / "wide_and_deep.yaml"), "--python", python.strip()]


def processes(runner: int) -> dict[tuple[int, str], tuple[str, float]]:
    """Return all processes below the runner, each with its command and its CPU seconds."""
    found, waiting = {}, [(runner, "runner")]
    while waiting:
        process, kind = waiting.pop()
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        except OSError:
            continue
        if kind != "runner":
            kind = "keeper" if b"paddlejob.local.sandbox" in command else "job"
        found[process, fields[19]] = kind, (int(fields[11]) + int(fields[12])) / TICKS
        waiting += [(int(child), "other") for child in children]
    return found


def drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        os.close(terminal)


if __name__ == "__main__":
    main()
