"""How long a job takes from the death of a rank to its next step, with real PaddlePaddle on a real node.

PYTHONPATH=.:tests python bench/recovery.py [--rounds 5] [--only CASE] [--write]      or: make bench-recovery

A program is killed with SIGKILL, or its pod is deleted without grace. The table has medians of

- the time until *all* ranks have made a step again, by the timestamps of their logs;
- the operator's writes of that time, without events, leases and reviews of tokens;
- the parts of status.lastRecovery, which end with the first step that no earlier attempt had made.

The job of parameter servers prints a line only after a file of its data, so its figures are too high by that.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from devcluster import Cluster
from devcluster.cache import cache_directory
from devcluster.control_plane.background import Background
from devcluster.node.runtime import NodeRuntime
from devcluster.requirements import require_node
from e2e.conftest import build_everything, fresh_namespace, install_operator, running
from e2e.jobs import Body, Job, Space, eventually, templates
from e2e.test_in_place import KILL, recorded, step_in
from paddlejob.api.training import RECOVERY_PARTS
from scripts.proof_page import table, write_section

COMMAND = "make bench-recovery"
PATIENCE_SECONDS = 180.0
WORKERS = 2
"""Of both examples."""
PARKED = {"parked": True}
PARKED_SECONDS = 25.0
"""A process is parked 15 seconds after the program began, and then imports Paddle."""
KILL_RANK = "set -- $(cat /proc/1/task/1/children); set -- $(cat /proc/$1/task/*/children); kill -9 $1"
"""Kills the first rank of the launcher, which is the first child of the supervisor."""
BORDER = " starts in place"
STEP_LINE = re.compile(r"^(\S+) epoch \d+ step \d+/", re.MULTILINE)
EVERY_STEP = "sed -i 's/^LINE_EVERY_STEPS = .*/LINE_EVERY_STEPS = 1/' train_fleet.py && exec python -u "
WRITE = re.compile(
    r'^paddlejob_api_requests_total\{code="2\d\d",resource="([\w/]+)",verb="(\w+)"\} (\S+)$', re.MULTILINE
)
WRITES = ("create", "update", "patch", "delete")
NOT_COUNTED = ("events", "leases", "tokenreviews")
METRICS = "/api/v1/namespaces/paddle-system/services/paddle-controller-manager-metrics:metrics/proxy/metrics"


class Case(msgspec.Struct, frozen=True):
    """A way to lose a rank."""

    body: Callable[[], Body]
    victim: str
    kills: str = KILL
    waits: float = 0.0
    """Seconds of training before the kill."""
    is_deleted: bool = False
    """Whether the pod is deleted, and not only its program killed."""


class Measured(msgspec.Struct, frozen=True):
    """One recovery."""

    seconds: float
    writes: float
    ledger: Body


def collective(*, with_launcher: bool = False, **spec: object) -> Body:
    """Return resnet, which prints every step."""
    body = recorded("resnet", EPOCHS=200, CHECKPOINT_DIR="/tmp/checkpoints")
    body["spec"] |= spec
    program = "-m paddle.distributed.launch train_fleet.py" if with_launcher else "train_fleet.py"
    for template in templates(body):
        template["containers"][0] |= {"command": ["sh", "-c"], "args": [EVERY_STEP + program]}
    return body


CASES = {
    "plain python": Case(collective, "worker-1"),
    "with the launcher": Case(lambda: collective(with_launcher=True), "worker-1", KILL_RANK),
    "a parked process": Case(lambda: collective(restartPolicy=PARKED), "worker-1", waits=PARKED_SECONDS),
    "a parameter server": Case(lambda: recorded("wide_and_deep", EPOCHS=200), "ps-0"),
    "a lost pod": Case(collective, "worker-1", is_deleted=True),
    "a lost pod, and a spare": Case(lambda: collective(spares=1), "worker-1", is_deleted=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=CASES, help="only this case")
    parser.add_argument("--write", action="store_true", help="write the section of docs/proof.md")
    options = parser.parse_args()
    chosen = {options.only: CASES[options.only]} if options.only else CASES
    found: dict[str, list[Measured]] = {}
    with node() as cluster:
        for name, case in chosen.items():
            found[name] = [measure(cluster, case) for _ in range(options.rounds)]
            print(f"{name}: {' '.join(f'{each.seconds:.2f}' for each in found[name])} s", flush=True)
    text = section(found, options.rounds)
    print(f"\n{text}")
    if options.write:
        write_section(COMMAND, text)


@contextmanager
def node() -> Iterator[Cluster]:
    """Run the cluster of `make e2e` with the operator of this tree, or use the one that runs."""
    require_node()
    images = build_everything()
    with running(Background(cache_directory() / "clusters" / "e2e")) as cluster:
        NodeRuntime(cluster.directory).import_images(images)
        install_operator(cluster)
        yield cluster


def measure(cluster: Cluster, case: Case) -> Measured:
    """Measure one recovery in a namespace of its own."""
    (found,) = [recover(space, case) for space in fresh_namespace(cluster)]
    return found


def recover(space: Space, case: Case) -> Measured:
    """Let a job train, take one of its ranks, and wait until all train again."""

    def writes() -> float:
        return writes_in(space.cluster.kubectl("get", "--raw", METRICS))

    job = space.submit(case.body())
    job.await_phase("Running", within_seconds=PATIENCE_SECONDS)
    eventually(lambda: step_in(job, attempt=0) > 0, within_seconds=PATIENCE_SECONDS, says=job.status)
    time.sleep(case.waits)
    old, before = started(job), writes()
    killed = kill(space, job, case)
    seconds = eventually(
        lambda: recovered(job, old, killed), within_seconds=PATIENCE_SECONDS, says=job.status
    )
    after = writes()
    ledger = eventually(lambda: complete_ledger(job), within_seconds=PATIENCE_SECONDS, says=job.status)
    return Measured(seconds, after - before, ledger)


def kill(space: Space, job: Job, case: Case) -> float:
    """Kill the program or the pod of the victim; return when, by the clock of this machine."""
    pod = f"{job.name}-{case.victim}"
    if case.is_deleted:
        began = time.time()
        space.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--wait=false")
        return began
    # Containers share the clock of this machine, and kubectl itself takes a while.
    return float(space.kubectl("exec", pod, "--", "sh", "-c", f"date +%s.%N; {case.kills}").split()[0])


def started(job: Job) -> set[str]:
    """Return the UIDs of the pods whose program has started."""
    return {pod["metadata"]["uid"] for pod in job.pods() if has_started(pod)}


def has_started(pod: Body) -> bool:
    states = [each["state"] for each in pod["status"].get("containerStatuses", ())]
    return bool(states) and "waiting" not in states[0]


def recovered(job: Job, old: set[str], killed: float) -> float | None:
    """Return the time from a kill to the first step of the last worker, None until it is made."""
    steps = []
    for pod in job.pods():
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if "-worker-" in name and has_started(pod):
            log = job.space.kubectl("logs", "--timestamps", name)
            steps.append(first_step(log, is_new=uid not in old))
    known = [step for step in steps if step is not None]
    return max(known) - killed if len(known) == len(steps) == WORKERS else None


def first_step(log: str, *, is_new: bool) -> float | None:
    """Return when a rank made its first step after the restart; the log of a new pod has no border."""
    _, border, after = log.rpartition(BORDER)
    found = STEP_LINE.search(log if is_new else after) if is_new or border else None
    return datetime.fromisoformat(found[1]).timestamp() if found else None


def complete_ledger(job: Job) -> Body | None:
    ledger: Body = job.status().get("lastRecovery") or {}
    return ledger if "totalSeconds" in ledger else None


def writes_in(metrics: str) -> float:
    """Return the number of writes in the operator's metrics."""
    return sum(
        float(count)
        for resource, verb, count in WRITE.findall(metrics)
        if resource not in NOT_COUNTED and verb in WRITES
    )


def section(found: dict[str, list[Measured]], rounds: int) -> str:
    """Return the table; a part that no recovery measured is left out."""
    parts = [*RECOVERY_PARTS, "total"]
    heading = ("", "kind", "next step of all, s", "worst", "operator's writes", *parts)
    rows = []
    for name, each in found.items():
        seconds = [one.seconds for one in each]
        kinds = sorted({one.ledger["kind"] for one in each})
        rows.append(
            (
                *(name, "/".join(kinds), f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"),
                f"{statistics.median(one.writes for one in each):.0f}",
                *(median_of(part, each) for part in parts),
            )
        )
    head = (
        f"Medians of {rounds}; the columns from {parts[0]} to {parts[-1]} are those of `status.lastRecovery`."
    )
    return f"{head}\n\n{table(heading, rows)}"


def median_of(part: str, found: list[Measured]) -> str:
    values = [one.ledger[f"{part}Seconds"] for one in found if f"{part}Seconds" in one.ledger]
    return f"{statistics.median(values):.2f}" if values else ""


if __name__ == "__main__":
    main()
