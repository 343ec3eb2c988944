"""Ingredients of simulated histories: `INGREDIENTS` lists them all.

A new one is a subclass of `Ingredient` and a line in the table. Each is drawn from a random generator that is
seeded with its name, so a new one does not change how the others are drawn. Some histories have none, some
have several.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Reason
from paddlejob.api.resources import PADDLE_JOBS
from sim import hostile_tenant, supervised
from sim.ingredient import Ingredient
from simkube.apiserver.request_log import WriteRecord
from simkube.kubelet import outcomes

if TYPE_CHECKING:
    from sim.simulation import Simulation

Jobs = tuple[JsonObject, ...]


class ContainerRestarts(Ingredient, frozen=True):
    """A worker container that fails or is killed, and that the kubelet restarts in place."""

    job: str
    index: int
    times: int
    exit_code: int
    after_seconds: float

    def outcome(self, pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome | None:
        """Fail `times` times in every attempt."""
        is_it = pod["metadata"]["name"] == f"{self.job}-worker-{self.index}"
        if not is_it or restarts >= self.times:
            return None
        return outcomes.crash(self.exit_code, after_seconds=self.after_seconds)


def _container_restarts(rng: random.Random, jobs: Jobs, _until: float) -> ContainerRestarts | None:
    if rng.random() < 0.8:
        return None
    job = rng.choice(jobs)
    worker = job["spec"]["worker"]
    worker["template"]["spec"]["restartPolicy"] = "OnFailure"
    return ContainerRestarts(
        job["metadata"]["name"],
        index=rng.randrange(worker["replicas"]),
        times=rng.randint(1, 4),
        exit_code=rng.choice((1, 134, 137, 143)),
        after_seconds=rng.uniform(0, 20),
    )


class OperatorRestart(Ingredient, frozen=True):
    """An operator that is restarted while a job pauses: it waits to restart, or is suspended."""

    after_seconds: float
    """Since the job began to pause."""
    until_seconds: float

    async def act(self, simulation: Simulation) -> None:
        """Kill the first operator in the first pause."""
        paused, clock = asyncio.Event(), asyncio.get_running_loop().time

        def notice(write: WriteRecord) -> None:
            if write.resource == "paddlejobs" and any(map(_pauses, simulation.server.objects(PADDLE_JOBS))):
                paused.set()

        simulation.server.log.on_write.append(notice)
        try:
            async with asyncio.timeout(max(0.0, self.until_seconds - clock())):
                await paused.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self.after_seconds)
        simulation.kill_operator()


def _pauses(job: JsonObject) -> bool:
    status = job.get("status") or {}
    return status.get("reason") == Reason.WAITING_TO_RESTART or status.get("phase") == "Suspended"


def _operator_restart(rng: random.Random, _jobs: Jobs, until: float) -> OperatorRestart | None:
    if rng.random() < 0.7:
        return None
    return OperatorRestart(after_seconds=rng.uniform(0, 15), until_seconds=until)


class Eviction(Ingredient, frozen=True):
    """A pod that its kubelet evicts; its program exits with any code after SIGTERM."""

    job: str
    role: str
    index: int
    evict: outcomes.Evict

    def outcome(self, pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome | None:
        """Evict the pod of the first attempt."""
        metadata = pod["metadata"]
        is_it = metadata["name"] == f"{self.job}-{self.role}-{self.index}"
        is_first = metadata["labels"].get(names.LABEL_ATTEMPT, "0") == "0"
        return self.evict if is_it and is_first else None


def _eviction(rng: random.Random, jobs: Jobs, _until: float) -> Eviction | None:
    if rng.random() < 0.8:
        return None
    job = rng.choice(jobs)
    role = rng.choice([each for each in ("worker", "ps", "heter") if each in job["spec"]])
    evict = outcomes.Evict(after_seconds=rng.uniform(0, 40), exit_code=rng.choice((0, 1, 134, 143)))
    return Eviction(job["metadata"]["name"], role, rng.randrange(job["spec"][role]["replicas"]), evict)


INGREDIENTS: dict[str, Callable[[random.Random, Jobs, float], Ingredient | None]] = {
    "container restarts": _container_restarts,
    "operator restart in a pause": _operator_restart,
    "eviction with any exit code": _eviction,
    "slow webhooks of a tenant": hostile_tenant.draw_slow_webhook,
    "silent nodes": hostile_tenant.draw_silent_nodes,
    "fat objects of a tenant": hostile_tenant.draw_fat_objects,
    "supervisors": supervised.draw,
}
"""How each ingredient is drawn, from the jobs, which it may change, and the time until the faults heal."""


def draw(seed: int, jobs: Jobs, until: float) -> tuple[Ingredient, ...]:
    """Draw the ingredients of a history."""
    drawn = (make(random.Random(f"{name} {seed}"), jobs, until) for name, make in INGREDIENTS.items())
    return tuple(each for each in drawn if each is not None)
