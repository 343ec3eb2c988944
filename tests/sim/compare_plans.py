"""Compares the plans of two checkouts: `python tests/sim/compare_plans.py OTHER_CHECKOUT FIRST [LAST]`.

Plays histories with the code of this checkout, and lets the other checkout decide on every snapshot too. For
a change that is to change no decision: the other one is the commit before it. The two must agree on the types
of a snapshot.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any

import msgspec

TESTS = Path(__file__).parents[1]


def main(other: Path, first: int, last: int) -> int:
    """Return 1 where a plan differs or a history does not end as it should."""
    sys.path.insert(0, str(TESTS))
    from paddlejob.operator import reconciler
    from sim.simulation import play

    oracle = Oracle(other)
    compared, differences = 0, Counter[str]()

    def plan(snapshot: Any) -> Any:
        nonlocal compared
        decided = ours(snapshot)
        compared += 1
        if (here := described(decided)) != (there := oracle.ask(snapshot)):
            kind = _difference(there, here)
            differences[kind] += 1
            if differences[kind] <= 3:
                print(f"seed {seed} at {snapshot.now}, {kind}:\n  there {there}\n  here  {here}", flush=True)
        return decided

    ours, reconciler.plan = reconciler.plan, plan
    for seed in range(first, last + 1):
        try:
            play(seed)
        except Exception as error:
            print(f"seed {seed} does not end as it should: {error}", flush=True)
    print(f"{compared} snapshots of {last - first + 1} histories, {differences.total()} differences")
    print(*(f"{count} x {kind}" for kind, count in differences.most_common()), sep="\n")
    return bool(differences)


class Oracle:
    """A process that runs the plan of another checkout."""

    def __init__(self, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, __file__, "--answer"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ask(self, snapshot: Any) -> dict[str, Any]:
        """Return what the other plan is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        send(self._process.stdin, pickle.dumps(snapshot))
        return dict(msgspec.json.decode(receive(self._process.stdout)))


def answer() -> None:
    """Decide on snapshots until there are no more."""
    from paddlejob.core.plan import plan

    while question := receive(sys.stdin.buffer):
        # What is unpickled was pickled by the parent process.
        send(sys.stdout.buffer, msgspec.json.encode(described(plan(pickle.loads(question)))))


def described(plan: Any) -> dict[str, Any]:
    """Return a plan as plain data."""
    stages = [
        [{"do": type(each).__name__, **msgspec.to_builtins(each)} for each in stage] for stage in plan.stages
    ]
    data = {field: getattr(plan, field) for field in plan.__struct_fields__} | {"stages": stages}
    return dict(msgspec.json.decode(msgspec.json.encode(data)))


def send(stream: IO[bytes], data: bytes) -> None:
    """Write one message."""
    stream.write(struct.pack("!I", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Read one message, empty at the end."""
    head = stream.read(4)
    return stream.read(struct.unpack("!I", head)[0]) if head else b""


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    fields = [field for field in here if here[field] != there.get(field)]
    if fields == ["status"]:
        old, new = there["status"], here["status"]
        fields = [f"status.{field}" for field in {**old, **new} if old.get(field) != new.get(field)]
    return ", ".join(fields)


if __name__ == "__main__":
    if sys.argv[1] == "--answer":
        answer()
    else:
        numbers = [int(argument) for argument in sys.argv[2:]]
        sys.exit(main(Path(sys.argv[1]).resolve(), numbers[0], numbers[-1]))
