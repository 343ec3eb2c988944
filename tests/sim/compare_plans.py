"""Compares the plans of two checkouts: `python tests/sim/compare_plans.py OTHER FIRST [LAST] [--exact]`.

Plays histories with the code of this checkout, and lets the other checkout decide on every snapshot too.
What is decided is compared: phases, reasons, attempts, actions and events; not the wording of messages, nor
fields of the status that only one of the two has. `--exact` compares everything, to prove that a refactoring
changes no decision.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import IO, Any

import msgspec

TESTS = Path(__file__).parents[1]
SHOWN_OF_EACH = 3


def main(other: Path, first: int, last: int, *, exact: bool) -> int:
    """Return 1 if a plan differs or a history fails."""
    sys.path[:0] = [str(TESTS), str(TESTS.parent)]
    from paddlejob.operator import reconciler
    from sim.simulation import play

    oracle = Oracle(other)
    compared, failed, differences = 0, 0, Counter[str]()

    def plan(snapshot: Any) -> Any:
        nonlocal compared
        decided = ours(snapshot)
        compared += 1
        here, there = described(decided), oracle.ask(snapshot)
        if not exact:
            here, there = decision(here, there), decision(there, here)
        if here != there:
            kind = _difference(there, here)
            differences[kind] += 1
            if differences[kind] <= SHOWN_OF_EACH:
                print(f"seed {seed} at {snapshot.now}, {kind}:\n  there {there}\n  here  {here}", flush=True)
        return decided

    ours, reconciler.plan = reconciler.plan, plan
    for seed in range(first, last + 1):
        try:
            play(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed} does not end as it should: {error}", flush=True)
    print(
        f"{compared} snapshots of {last - first + 1} histories ({failed} failed), "
        f"{differences.total()} differences"
    )
    print(*(f"{count} x {kind}" for kind, count in differences.most_common()), sep="\n")
    return bool(differences or failed)


class Oracle:
    """A process that runs the plan of another checkout."""

    def __init__(self, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        command = [sys.executable, __file__, "--answer"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def ask(self, snapshot: Any) -> dict[str, Any]:
        """Return the other plan as plain data."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        send(self._process.stdin, msgspec.json.encode(snapshot))
        return dict(msgspec.json.decode(receive(self._process.stdout)))


def answer() -> None:
    """Plan each snapshot that arrives."""
    from paddlejob.core.plan import plan
    from paddlejob.core.snapshot import Snapshot

    while question := receive(sys.stdin.buffer):
        snapshot = msgspec.json.decode(question, type=Snapshot)
        send(sys.stdout.buffer, msgspec.json.encode(described(plan(snapshot))))


def described(plan: Any) -> dict[str, Any]:
    """Return a plan as plain data."""
    stages = [
        [{"do": type(each).__name__, **msgspec.to_builtins(each)} for each in stage] for stage in plan.stages
    ]
    data = {field: getattr(plan, field) for field in plan.__struct_fields__} | {"stages": stages}
    described = dict(msgspec.json.decode(msgspec.json.encode(data)))
    known = [each.encode_name for each in msgspec.structs.fields(plan.status)]
    return described | {"status fields": sorted(known)}


def decision(plan: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a plan in a form that both checkouts share."""
    status = {
        field: value
        for field, value in plan["status"].items()
        if field in other["status fields"] and field != "message"
    }
    if failure := status.get("lastFailure"):
        status["lastFailure"] = {**failure, "message": ""}
    status["conditions"] = [(each["type"], each["status"]) for each in status.get("conditions", ())]
    return {
        "status": status,
        "stages": [
            sorted((each["do"], each.get("kind", ""), each.get("name", "")) for each in stage)
            for stage in plan["stages"]
        ],
        "events": [(each["type"], each["reason"]) for each in plan["events"]],
        **{field: plan[field] for field in plan if field == "requeue_after_seconds" and field in other},
    }


def send(stream: IO[bytes], data: bytes) -> None:
    """Write one message."""
    stream.write(struct.pack("!I", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Read one message, empty at the end."""
    head = stream.read(4)
    return stream.read(struct.unpack("!I", head)[0]) if head else b""


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    """Name a kind of difference: the fields, and their values if these are short."""
    fields = [field for field in here if here[field] != there.get(field)]
    if "status" in fields:
        old, new = there["status"], here["status"]
        parts = [_change(f"status.{field}", old, new, field) for field in sorted({**old, **new})]
        fields = [*(part for part in parts if part), *(field for field in fields if field != "status")]
    return ", ".join(fields)


def _change(path: str, old: dict[str, Any], new: dict[str, Any], field: str) -> str:
    before, after = old.get(field), new.get(field)
    if before == after:
        return ""
    return f"{path} {before} > {after}" if field in ("phase", "reason") else path


if __name__ == "__main__":
    if sys.argv[1:] == ["--answer"]:
        answer()
        sys.exit(0)
    parser = argparse.ArgumentParser(description="Compares the plans of two checkouts.")
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the last seed, by default the first")
    parser.add_argument("--exact", action="store_true", help="compare messages and manifests too")
    given = parser.parse_args()
    last = given.first if given.last is None else given.last
    sys.exit(main(given.other.resolve(), given.first, last, exact=given.exact))
