"""How fast `kubectl pdj logs -f` follows many ranks, and that no line is lost or doubled.

PYTHONPATH=.:tests .venv/bin/python bench/pdj/logs.py --ranks 100 --rate 1000 --seconds 10
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from simkube.build import job
from tests.support import served_api
from tests.support.served_api import served_cluster

PAUSE_SECONDS = 0.05


class FloodingFront(served_api.Front):
    """Serves logs that grow at a rate, as long as a kubelet would: until the container ends."""

    rate = 1000
    seconds = 10.0
    began: float | None = None

    async def _stream(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return await super()._stream(request, query)
        response = web.StreamResponse()
        await response.prepare(request)
        if query.get("follow") != "true" or "sinceTime" in query:
            return response
        FloodingFront.began = FloodingFront.began or time.monotonic()
        written, total = 0, int(self.rate * self.seconds)
        while written < total:
            due = min(total, int((time.monotonic() - FloodingFront.began) * self.rate))
            if due > written:
                stamp = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}000Z "
                lines = "".join(
                    f"{stamp}step {number} loss 0.1234 some more words of a training program\n"
                    for number in range(written, due)
                )
                await response.write(lines.encode())
                written = due
            await asyncio.sleep(PAUSE_SECONDS)
        return response


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=100)
    parser.add_argument("--rate", type=int, default=1000, help="lines a second of each rank")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    FloodingFront.rate, FloodingFront.seconds = options.rate, options.seconds
    served_api.Front = FloodingFront
    with tempfile.TemporaryDirectory() as directory, served_cluster(Path(directory)) as cluster:
        cluster.do(lambda scene: scene.submit(job().worker(options.ranks)))
        cluster.do(lambda scene: scene.runs(*(f"demo-worker-{rank}" for rank in range(options.ranks))))
        for rank in range(options.ranks):
            cluster.scene.hold(f"demo-worker-{rank}")
        path = Path(directory) / "out"
        began = time.monotonic()
        command = [sys.executable, "-m", "paddlejob.cli.kubectl", "logs", "demo", "-f"]
        with path.open("wb") as out:
            follower = subprocess.Popen(
                command, stdout=out, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
            )
            expected = options.ranks * int(options.rate * options.seconds)
            while sum(1 for _ in path.open("rb")) < expected and time.monotonic() - began < 300:
                time.sleep(1)
            took = time.monotonic() - (FloodingFront.began or began)
            follower.terminate()
            follower.wait()
        check(path, options.ranks, int(options.rate * options.seconds))
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{expected} lines of {options.ranks} ranks in {took:.1f} s: {expected / took:.0f} lines/s")
    print(
        f"processor time {usage.ru_utime + usage.ru_stime:.1f} s, largest memory {usage.ru_maxrss >> 10} MiB"
    )


def check(path: Path, ranks: int, lines: int) -> None:
    """Fail unless every line of every rank is there once, in order."""
    seen: collections.Counter[bytes] = collections.Counter()
    for line in path.open("rb"):
        rank, _, text = line.partition(b" |")
        rank = rank.rstrip()
        number = int(text.split()[1])
        assert number == seen[rank], f"{rank!r} has line {number} in place of {seen[rank]}"
        seen[rank] += 1
    assert len(seen) == ranks, f"{len(seen)} ranks"
    assert set(seen.values()) == {lines}, seen


if __name__ == "__main__":
    main()
