"""The cost of the recorder for a training program: processor time of the example with and without it.

    python bench/recorder_cost.py [--runs 20]

Runs pairs with alternating order, so that other load of the machine affects both programs. The time that
the hooks add to a step is measured separately: it is far below the noise of a run.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from paddlejob.recorder.hooks import _Hooks
from paddlejob.recorder.progress import Progress
from paddlejob.recorder.sender import Sender

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "src" / "paddlejob" / "recorder" / "site"
STEPS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    print(f"hooks: {1e6 * hooks_seconds():.1f} us a step")
    python, data = script("paddle_env.py", "3.3.1"), script("example_data.py", "resnet")
    pairs = []
    for number in range(runs):
        order = (False, True) if number % 2 else (True, False)
        spent = {recorded: cpu_seconds(python, data, recorded=recorded) for recorded in order}
        pairs.append((spent[False], spent[True]))
    without, beside = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"example: {without:.2f} s of processor time without, {beside:.2f} s with it (medians)")
    costs = sorted(100 * (beside / without - 1) for without, beside in pairs)
    low, high = interval(costs)
    print(f"{runs} pairs: median {statistics.median(costs):+.2f} %")
    print(f"with 95 % confidence it is between {low:+.2f} % and {high:+.2f} %")


def interval(ordered: list[float]) -> tuple[float, float]:
    """Return a 95 % confidence interval of the median, for any distribution."""
    number, outside, cut = len(ordered), 0.0, 0
    while (outside := outside + math.comb(number, cut) / 2**number) <= 0.025:
        cut += 1
    return ordered[max(0, cut - 1)], ordered[number - max(1, cut)]


def hooks_seconds() -> float:
    """Return the time that the hooks of `backward`, `step` and `_apply_optimize` inside it add to a step."""
    os.environ.pop("PADDLEJOB_PROGRESS_FILE", None)
    progress = Progress()
    hooks = _Hooks(progress, Sender(progress))
    began = time.process_time()
    for _ in range(STEPS):
        hooks._timed(_nothing, (), {})  # noqa: SLF001
        hooks._timed(hooks._timed, (_nothing, (), {}), {"steps": 1}, steps=1)  # noqa: SLF001
    return (time.process_time() - began) / STEPS


def _nothing() -> None:
    pass


def cpu_seconds(python: str, data: str, *, recorded: bool) -> float:
    """Run one epoch of the example, and return the processor time that it took."""
    with tempfile.TemporaryDirectory() as directory:
        extra = {"PYTHONPATH": str(SITE), "PADDLEJOB_PROGRESS_FILE": f"{directory}/progress"}
        env = {**os.environ, "DATA_DIR": data, "EPOCHS": "1", **(extra if recorded else {})}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program = ROOT / "examples" / "resnet" / "train_fleet.py"
        subprocess.run([python, str(program)], env=env, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def script(name: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()
