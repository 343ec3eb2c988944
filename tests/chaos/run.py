"""Real training on a real node while everything around it is killed: `make chaos SEED=1 MINUTES=3`.

Two examples train one after the other, resnet with workers alone and wide_and_deep with parameter servers,
while etcd, the API server, its controllers, the scheduler, the kubelet, containerd, the operator, ranks, pods
and the network are killed, deleted or cut, as planned from the seed. After the last fault, these must hold:

- every job is Completed, and all its objects are removed when it is deleted;
- no rank ever ran twice at the same time, according to the processes on the node, and no pod that had run was
  force-deleted, according to the API server's audit log;
- resnet's last checkpoint equals, byte for byte, the checkpoint of an undisturbed job;
- the AUC of wide_and_deep, which trains asynchronously, is within the range of undisturbed jobs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chaos.containers import Witness, overlaps
from chaos.faults import Breaker, Fault, plan
from devcluster import ApiError
from devcluster.cache import cache_directory, locked
from devcluster.control_plane.plane import ControlPlane
from devcluster.node.runtime import NodeRuntime
from devcluster.requirements import require_node
from devcluster.settings import ClusterSettings
from e2e.conftest import await_operator
from e2e.images import OPERATOR, RESNET, ROOT, WIDE_AND_DEEP, recipes
from e2e.jobs import GROUP, Body, Job, Space, example, result, templates, with_environment, without_gpu
from scripts.proof_page import table, write_section
from tests.support.waiting import eventually

IMAGES = (OPERATOR, RESNET, WIDE_AND_DEEP)
NAMESPACE = "chaos"
EPOCHS = {"resnet": 6, "wide_and_deep": 4}
UNREACHABLE = (ApiError, OSError)
"""Errors of requests while the cluster is broken."""
REPAIR_SECONDS = 900.0
"""Time in which every job has to end after the last fault."""
DELETE_SECONDS = 120.0
SPREADS = 4.0
"""How many standard deviations from the mean an AUC may be."""
MIN_SPREAD = 0.005
"""How far it may be in any case: a few undisturbed jobs can be alike by chance."""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "RequestResponse",
            "resources": [{"group": "", "resources": ["pods"]}],
            "verbs": ["delete"],
        },
        {"level": "None"},
    ],
}


class Arena:
    """The cluster, and the jobs that train on it."""

    def __init__(self, plane: ControlPlane, audit_log: Path) -> None:
        self.plane = plane
        self.space = Space(plane, NAMESPACE)
        self.audit_log = audit_log
        self.checkpoints = plane.directory / "checkpoints"
        self.checkpoints.mkdir()
        self.checkpoints.chmod(0o777)

    def install(self) -> None:
        """Give the node images, and the cluster the operator."""
        wanted = [recipe.build() for recipe in recipes() if recipe.name in IMAGES]
        NodeRuntime(self.plane.directory).import_images(wanted)
        files = [f"--filename={ROOT / 'deploy' / 'v1' / name}" for name in ("crd.yaml", "operator.yaml")]
        self.plane.kubectl("apply", "--server-side", *files)
        await_operator(self.plane)
        self.plane.kubectl("create", "namespace", NAMESPACE)

    def submit(self, kind: str, name: str) -> Job:
        """Create a job, also when the answer to an earlier try was lost."""
        body = self._body(kind, name)

        def created() -> bool:
            try:
                self.space.submit(body)
            except ApiError as error:
                if error.code != 409:
                    raise
            return True

        eventually(created, within_seconds=REPAIR_SECONDS, ignoring=UNREACHABLE)
        return Job(self.space, name)

    def _body(self, kind: str, name: str) -> Body:
        body = without_gpu(example(kind))
        body["metadata"]["name"] = name
        body["spec"] |= {
            "cleanPodPolicy": "Never",
            "backoffLimit": 1000,
            # A rank fails after its peer was killed.
            "restartPolicy": {"retryableExitCodes": [1], "delaySeconds": 1, "maxDelaySeconds": 10},
        }
        for template in templates(body):
            template["terminationGracePeriodSeconds"] = 5
            volume = {"name": "checkpoints", "hostPath": {"path": str(self.checkpoints)}}
            template.setdefault("volumes", []).append(volume)
            mount = {"name": "checkpoints", "mountPath": "/checkpoints"}
            template["containers"][0].setdefault("volumeMounts", []).append(mount)
        return with_environment(body, {"EPOCHS": EPOCHS[kind], "CHECKPOINT_DIR": f"/checkpoints/{name}"})

    def delete(self, *jobs: Job) -> None:
        """Delete all jobs, and wait until nothing is left of them."""
        for job in jobs:
            self.plane.request("DELETE", f"{GROUP}/namespaces/{NAMESPACE}/paddlejobs/{job.name}")

        names = {job.name for job in jobs}

        def left() -> list[str]:
            return [
                *self.space.names("pods"),
                *self.space.names("services"),
                *names.intersection(self.space.names("configmaps")),
                *(job.name for job in jobs if job.exists()),
            ]

        eventually(lambda: not left(), within_seconds=DELETE_SECONDS, says=left)

    def weights(self, job: Job) -> str:
        """Return the checksum of resnet's last checkpoint: weights, optimizer and position."""
        return hashlib.sha256((self.checkpoints / job.name / "last.pdparams").read_bytes()).hexdigest()

    def auc(self, job: Job) -> float:
        """Return the AUC of wide_and_deep."""
        return result(job.log("worker-0").splitlines(), "auc")

    def deleted_by_force(self, uids: set[str]) -> list[str]:
        """Return which of these pods were force-deleted, and by which user."""
        return forced(self._audited("delete"), uids)

    def _audited(self, verb: str) -> Iterator[dict[str, Any]]:
        for line in self.audit_log.read_text().splitlines():
            request = json.loads(line)
            if request["verb"] == verb and request["responseStatus"]["code"] < 300:
                yield request


def forced(deletions: Iterable[dict[str, Any]], uids: set[str]) -> list[str]:
    """Return the pods that were force-deleted by a client other than a kubelet, of those in question."""
    return [
        f"{each['objectRef']['name']} by {each['user']['username']}"
        for each in deletions
        if (each.get("requestObject") or {}).get("gracePeriodSeconds") == 0
        and not each["user"]["username"].startswith("system:node:")
        # The request does not name it.
        and (each.get("responseObject") or {}).get("metadata", {}).get("uid") in uids
    ]


def is_done(job: Job) -> bool:
    """Return whether a job is Completed, False if the cluster does not answer."""
    try:
        phase = job.status().get("phase")
    except UNREACHABLE:
        return False
    assert phase != "Failed", f"{job.name}: {job.status()}"
    return bool(phase == "Completed")


def await_done(job: Job) -> Job:
    """Wait for the end of a job."""

    def says() -> object:
        status = job.status()
        return job.name, status.get("phase"), status.get("reason"), status.get("message")

    eventually(lambda: is_done(job), within_seconds=REPAIR_SECONDS, says=says)
    return job


class Round:
    """One seed: jobs that train while faults come."""

    def __init__(self, arena: Arena, seed: int) -> None:
        self._arena = arena
        self._seed = seed
        self._breaker = Breaker(arena.plane, NAMESPACE)
        self.jobs: dict[str, list[Job]] = {kind: [] for kind in EPOCHS}
        self.aucs: dict[str, float] = {}
        self.broken: Counter[str] = Counter()

    def play(self, seconds: float) -> None:
        """Break things for a while, then wait for all jobs."""
        deadline = time.monotonic() + seconds
        for fault in plan(self._seed):
            self._keep_training()
            if time.monotonic() + fault.after_seconds > deadline:
                break
            time.sleep(fault.after_seconds)
            self._break(fault)
        say(f"seed {self._seed}: nothing is broken any more, after {self.broken.total()} faults")
        for job in self._all():
            await_done(job)

    def _keep_training(self) -> None:
        for kind, jobs in self.jobs.items():
            if not jobs or is_done(jobs[-1]):
                name = f"{kind.replace('_', '-')}-{self._seed}-{len(jobs)}"
                jobs.append(self._arena.submit(kind, name))

    def _break(self, fault: Fault) -> None:
        what = eventually(
            lambda: (self._breaker.carry_out(fault),), within_seconds=60.0, ignoring=UNREACHABLE
        )[0]
        if what:
            self.broken[fault.kind] += 1
            say(f"seed {self._seed}: {fault}: {what}")

    def _all(self) -> list[Job]:
        return [job for jobs in self.jobs.values() for job in jobs]

    def check(self, weights: str, aucs: list[float]) -> list[str]:
        """Return the broken rules."""
        wrong = [
            f"{job.name}: the weights differ from those of an undisturbed job"
            for job in self.jobs["resnet"]
            if self._arena.weights(job) != weights
        ]
        mean, allowed = statistics.mean(aucs), max(SPREADS * statistics.stdev(aucs), MIN_SPREAD)
        self.aucs = {job.name: self._arena.auc(job) for job in self.jobs["wide_and_deep"]}
        return wrong + [
            f"{name}: AUC {auc:.4f} is not within {allowed:.4f} of {mean:.4f}"
            for name, auc in self.aucs.items()
            if abs(auc - mean) > allowed
        ]

    def restarts(self) -> int:
        """Return how often the jobs were restarted."""
        return sum(job.status().get("attempt", 0) for job in self._all())

    def delete(self) -> None:
        """Delete the jobs, and wait until nothing is left of them."""
        self._arena.delete(*self._all())


def undisturbed(arena: Arena, count: int) -> tuple[str, list[float]]:
    """Return the weights of resnet and the AUCs of wide_and_deep when nothing is broken."""
    jobs = [resnet := arena.submit("resnet", "resnet-undisturbed")]
    aucs = []
    for number in range(count):
        jobs.append(await_done(arena.submit("wide_and_deep", f"wide-and-deep-undisturbed-{number}")))
        aucs.append(arena.auc(jobs[-1]))
        say(f"undisturbed wide_and_deep {number + 1} of {count}: AUC {aucs[-1]:.4f}")
    weights = arena.weights(await_done(resnet))
    say(f"undisturbed resnet: checkpoint {weights[:12]}")
    arena.delete(*jobs)
    return weights, aucs


def say(text: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Result(NamedTuple):
    """The result of one seed."""

    seed: int
    faults: Counter[str]
    jobs: int
    restarts: int
    containers: int
    aucs: list[float]
    seconds: float
    wrong: list[str]

    def __str__(self) -> str:
        """Return it as the log shows it."""
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.faults.total()} faults ({faults}); {self.jobs} jobs Completed after "
            f"{self.restarts} restarts and {self.seconds:.0f} s; {self.containers} containers seen; "
            f"{len(self.wrong)} things wrong"
        )


def section(results: list[Result], weights: str, aucs: list[float]) -> str:
    """Return the text for docs/proof.md about a successful run."""
    reached = [auc for each in results for auc in each.aucs]
    kinds = sum((each.faults for each in results), Counter[str]())
    rows = [
        (str(each.seed), str(each.faults.total()), str(each.jobs), str(each.restarts), str(each.containers))
        for each in results
    ]
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    return (
        f"{len(results)} seeds, and nothing was wrong with any of them. Faults by kind: {faults}. The "
        f"checkpoint of every resnet had the checksum {weights[:12]} of the undisturbed one; {len(aucs)} "
        f"undisturbed wide_and_deep jobs reached an AUC of {min(aucs):.4f} to {max(aucs):.4f}, the disturbed "
        f"ones {min(reached):.4f} to {max(reached):.4f}.\n\n"
        + table(("seed", "faults", "jobs, all Completed", "restarts", "containers seen"), rows)
    )


def main(seeds: list[int], minutes: float, count: int, *, write: bool) -> int:
    """Return 1 when something was not as it should be."""
    require_node()
    results = []
    with tempfile.TemporaryDirectory() as directory, locked(cache_directory() / "e2e.lock"):
        policy, log = Path(directory, "policy.json"), Path(directory, "audit.log")
        policy.write_text(json.dumps(POLICY))
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
        settings = ClusterSettings.with_node(extra_args={"kube-apiserver": flags})
        with ControlPlane.start_with(settings) as plane, Witness(plane.directory) as witness:
            arena = Arena(plane, log)
            arena.install()
            weights, aucs = undisturbed(arena, count)
            for seed in seeds:
                results.append(played(arena, witness, seed, minutes, weights, aucs))
                say(str(results[-1]))
                for each in results[-1].wrong:
                    say(f"seed {seed}: {each}")
    failed = sum(bool(each.wrong) for each in results)
    say(f"{failed} of {len(seeds)} seeds failed" if failed else "nothing was wrong with any seed")
    if write and not failed:
        write_section("make chaos", section(results, weights, aucs))
    return int(failed > 0)


def played(
    arena: Arena, witness: Witness, seed: int, minutes: float, weights: str, aucs: list[float]
) -> Result:
    """Play one seed."""
    this = Round(arena, seed)
    began = time.monotonic()
    this.play(60 * minutes)
    wrong = this.check(weights, aucs)
    restarts = this.restarts()
    this.delete()
    names = [job.name for jobs in this.jobs.values() for job in jobs]
    runs = witness.runs_of(names)
    wrong += [f"{name} ran twice at the same time" for name in overlaps(runs.values())]
    uids = {group.uid for group in runs}
    wrong += [f"{each}: deleted by force" for each in arena.deleted_by_force(uids)]
    seconds = time.monotonic() - began
    return Result(seed, this.broken, len(names), restarts, len(runs), [*this.aucs.values()], seconds, wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains on a node where everything is killed.")
    for flag, kind, default, text in (
        ("--seed", int, 1, "the first seed"),
        ("--seeds", int, 1, "how many seeds, one after the other"),
        ("--minutes", float, 3.0, "how long things break with each seed"),
        ("--undisturbed", int, 10, "undisturbed wide_and_deep jobs, at least 2"),
    ):
        parser.add_argument(flag, type=kind, default=default, help=f"{text} (default {default})")
    parser.add_argument("--write", action="store_true", help="put the result into docs/proof.md")
    given = parser.parse_args()
    chosen = list(range(given.seed, given.seed + given.seeds))
    sys.exit(main(chosen, given.minutes, max(given.undisturbed, 2), write=given.write))
