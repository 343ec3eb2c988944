"""How soon the unchanged examples show STEP, LOSS and ETA on a real node, with the recorder and from logs.

PYTHONPATH=.:tests python bench/progress_delay.py [--rounds 5]      on a cluster with the operator installed:
python -m devcluster up --node --name e2e && make e2e

Programs do not print the end of their first step; it is extrapolated from the first two lines with steps.
An ETA cannot be known before the second of these lines.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from datetime import datetime

from devcluster.cache import cache_directory
from devcluster.control_plane.background import Background
from e2e.conftest import fresh_namespace
from e2e.jobs import Space, eventually, example, templates, with_environment, without_gpu

COLUMNS = ("step", "loss", "eta")
STEP_LINE = re.compile(r"^(\S+) epoch 1 step (\d+)/", re.MULTILINE)
PATIENCE_SECONDS = 180.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cluster = Background(cache_directory() / "clusters" / "e2e").connect()
    for space in fresh_namespace(cluster):
        for name in ("resnet", "wide_and_deep"):
            for has_recorder in (True, False):
                delays = [measure(space, name, has_recorder=has_recorder) for _ in range(rounds)]
                print(f"{name}, {'with the recorder' if has_recorder else 'from logs alone'}, {rounds} runs")
                for what in delays[0]:
                    every = [each[what] for each in delays]
                    print(f"  {what:<28} median {statistics.median(every):5.1f} s, max {max(every):5.1f} s")


def measure(space: Space, name: str, *, has_recorder: bool) -> dict[str, float]:
    """Run an example until it shows all columns; return how long each took."""
    body = with_environment(without_gpu(example(name)), {"EPOCHS": 50})
    body["spec"]["recorder"] = has_recorder
    for template in templates(body):
        template["terminationGracePeriodSeconds"] = 1
    job = space.submit(body)
    seen: dict[str, float] = {}

    def shows_all() -> bool:
        progress = job.status().get("progress") or {}
        seen.update({name: time.time() for name in COLUMNS if progress.get(name) and name not in seen})
        return len(seen) == len(COLUMNS)

    eventually(shows_all, within_seconds=PATIENCE_SECONDS, says=job.status)
    log = space.kubectl("logs", "--timestamps", f"{job.name}-worker-0")
    (first, first_step), (second, second_step), *_ = (
        (datetime.fromisoformat(moment).timestamp(), int(step)) for moment, step in STEP_LINE.findall(log)
    )
    space.kubectl("delete", "pdj", job.name)
    eventually(lambda: not job.pods(), within_seconds=PATIENCE_SECONDS)
    began = first - (first_step - 1) * (second - first) / (second_step - first_step)
    since_first_step = {f"{column.upper()} after the first step": seen[column] - began for column in COLUMNS}
    return {
        **since_first_step,
        "STEP after its line": seen["step"] - first,
        "ETA after the second line": seen["eta"] - second,
    }


if __name__ == "__main__":
    main()
