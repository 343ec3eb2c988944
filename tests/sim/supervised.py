"""Pods whose programs restart in place, on bad lines, with supervisors that turn mute or die."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.core.recorder import Recorder
from sim.bystander import NAMESPACE
from sim.ingredient import Ingredient
from simkube.switchboard import LineFaults

if TYPE_CHECKING:
    from sim.simulation import Simulation

RECORDER = Recorder.of({"paddlejob_recorder.py": "1"}, "https://operator:8443", by_default=True)


class Supervised(Ingredient, frozen=True):
    """All jobs have the recorder. Pods that the kubelet does not restart by itself have a supervisor."""

    seed: int
    faults: LineFaults
    mute: tuple[tuple[str, float, float], ...] = ()
    """Pods that reach nobody: name, since when, and for how long."""
    deadly: float = 0.0
    """Probability that the supervisor of a pod dies."""

    def dies_after(self, pod: JsonObject) -> float | None:
        """Return when a supervisor dies; deaths become rarer with each attempt."""
        metadata = pod["metadata"]
        if metadata["namespace"] == NAMESPACE:
            return None  # the bystander shows what the faults of others cost
        attempt = metadata["labels"].get(names.LABEL_ATTEMPT, "0")
        rng = random.Random(f"supervisor {self.seed} {metadata['name']} {attempt}")
        return rng.uniform(0, 60) if rng.random() < self.deadly * 0.6 ** int(attempt) else None

    async def act(self, simulation: Simulation) -> None:
        """Cut off pods for some time."""
        async with asyncio.TaskGroup() as group:
            for each in self.mute:
                group.create_task(_cut_off(simulation, *each))

    def heal(self, simulation: Simulation) -> None:
        """Repair the lines."""
        if simulation.switchboard is not None:
            simulation.switchboard.faults = LineFaults()


async def _cut_off(simulation: Simulation, name: str, at_seconds: float, seconds: float) -> None:
    if simulation.switchboard is not None:
        await asyncio.sleep(at_seconds)
        simulation.switchboard.muted.add(name)
        await asyncio.sleep(seconds)
        simulation.switchboard.muted.discard(name)


def draw(rng: random.Random, jobs: tuple[JsonObject, ...], until: float) -> Supervised | None:
    """Draw the faults of supervisors, in some histories."""
    if rng.random() < 0.6:
        return None
    if rng.random() < 0.7:
        # The kubelet's own restarts leave nothing to a supervisor.
        for each in jobs:
            for role in ("ps", "worker", "heter"):
                if role in each["spec"]:
                    each["spec"][role]["template"]["spec"]["restartPolicy"] = "Never"
    faults = LineFaults(*(rng.choice((0.0, 0.05, 0.2)) for _ in range(3)))
    mute = []
    for _ in range(rng.choice((0, 0, 1, 3))):
        job = rng.choice(jobs)
        role = rng.choice([each for each in ("worker", "ps", "heter") if each in job["spec"]])
        name = f"{job['metadata']['name']}-{role}-{rng.randrange(job['spec'][role]['replicas'])}"
        mute.append((name, rng.uniform(0, until / 2), rng.choice((5.0, 20.0, 60.0))))
    drawn = Supervised(rng.randrange(1 << 30), faults, tuple(mute), rng.choice((0.0, 0.0, 0.1, 0.3)))
    for each in jobs:
        if can_have_spares(each["spec"]):
            each["spec"]["spares"] = rng.choice((0, 1, 1, 2))
    return drawn


def can_have_spares(spec: JsonObject) -> bool:
    """Return whether a job is a collective one of a fixed size whose pods have addresses of their own."""
    worker = spec.get("worker", {})
    is_elastic = "elastic" in spec or worker.get("requests") or worker.get("limits")
    is_in_place = spec.get("recorder") is not False and spec.get("restartPolicy", {}).get("inPlace", True)
    by_address = spec.get("intranet", "").lower() in ("", "podip")
    has_workers_only = "ps" not in spec and "heter" not in spec
    return has_workers_only and by_address and is_in_place and not is_elastic
