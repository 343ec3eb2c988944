"""A random history of jobs, users, failures and bad networks, drawn from one seed."""

from __future__ import annotations

import random

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from sim import bystander, gangs, ingredients, mistakes, old_definition, persistent_fault
from simkube.build import JobBuilder, job
from simkube.faults.transport import FaultRates
from simkube.kubelet import outcomes
from tests.support.definitions import PADDLE_JOB_CRD

DEFINITION = PADDLE_JOB_CRD
SKEWS = (0.0, -600.0, 600.0)
CODES = (1, 2, 134, 137, 143, 101, 15)


class Deed(msgspec.Struct, frozen=True):
    """An action of a user or the platform on a job."""

    at_seconds: float
    verb: str
    job: str
    amount: int = 0


class Scenario(msgspec.Struct, frozen=True):
    """Everything that a seed determines."""

    seed: int
    jobs: tuple[JsonObject, ...]
    deeds: tuple[Deed, ...]
    rates: FaultRates
    operators: int
    crashes: tuple[int, ...]
    """Number of writes after which an operator dies, for each of its lives."""
    heal_after_seconds: float
    trouble: float
    """Probability that a container fails."""
    ip_family: str
    streaming_list: bool
    persistent_fault: persistent_fault.PersistentFault
    gangs: gangs.Gangs = gangs.Gangs()
    mistake: mistakes.Mistake | None = None
    ingredients: tuple[ingredients.Ingredient, ...] = ()
    old_definition: old_definition.OldDefinition | None = None
    operator_skew_seconds: float = 0.0
    """Difference between the operators' clocks and the API server's clock."""
    node_skew_seconds: float = 0.0


def fault_of(seed: int) -> persistent_fault.PersistentFault:
    """Return the fault of all new pods in a history."""
    return persistent_fault.draw(random.Random(f"plague {seed}"))


def draw(seed: int) -> Scenario:
    """Draw a scenario."""
    rng = random.Random(f"scenario {seed}")
    jobs = tuple(_job(rng, f"job-{number}") for number in range(rng.choice((1, 1, 2, 3))))
    heal = rng.uniform(60, 240)
    clocks = random.Random(f"clocks {seed}")
    for each in jobs:
        if clocks.random() < 0.1:
            each["spec"]["startupDeadlineSeconds"] = clocks.choice((20, 120, 600))
    mixed_in = ingredients.draw(seed, jobs, heal)
    return Scenario(
        seed=seed,
        jobs=jobs,
        ingredients=mixed_in,
        deeds=tuple(
            _deed(rng, rng.choice(jobs)["metadata"]["name"], heal) for _ in range(rng.choice((0, 0, 1, 2, 4)))
        ),
        rates=FaultRates.everything(rng.choice((0.0, 0.02, 0.05, 0.1))),
        operators=rng.choice((1, 1, 2)),
        crashes=tuple(rng.randint(1, 25) for _ in range(rng.choice((0, 1, 3)))),
        heal_after_seconds=heal,
        trouble=rng.choice((0.0, 0.05, 0.2)),
        ip_family=rng.choice(("IPv4", "IPv4", "IPv6")),
        streaming_list=rng.random() < 0.7,
        persistent_fault=fault_of(seed),
        gangs=gangs.draw(random.Random(f"gangs {seed}"), jobs),
        mistake=mistakes.draw(random.Random(f"mistakes {seed}"), jobs, heal),
        old_definition=old_definition.draw(random.Random(f"definition {seed}"), DEFINITION, heal),
        operator_skew_seconds=clocks.choice(SKEWS),
        node_skew_seconds=clocks.choice(SKEWS),
    )


def behaviour(scenario: Scenario) -> outcomes.Behaviour:
    """Return the outcomes of containers; they depend on the scenario, the pod and the restarts only."""

    def decide(pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome:
        if apart := bystander.outcome(pod):
            return apart
        if pod["metadata"]["namespace"] == "default" and (struck := scenario.persistent_fault.outcome(pod)):
            return struck
        mixed_in = (each.outcome(pod, container, restarts) for each in scenario.ingredients)
        if (drawn := next(filter(None, mixed_in), None)) is not None:
            return drawn
        metadata = pod["metadata"]
        attempt = metadata["labels"].get(names.LABEL_ATTEMPT, "0")
        rng = random.Random(f"{scenario.seed} {metadata['name']} {attempt} {container} {restarts}")
        if fault := _node_fault(
            scenario, f"{metadata['name']} {attempt} {container} {restarts}", int(attempt)
        ):
            return fault
        serves = metadata["labels"][names.LABEL_ROLE] != "worker"
        well: outcomes.Outcome = outcomes.RunForever() if serves else outcomes.Exit(0, rng.uniform(1, 60))
        # Faults become rarer with each attempt, so that every history ends.
        if rng.random() >= scenario.trouble * 0.6 ** int(attempt):
            return well
        return rng.choice(
            (
                outcomes.crash(rng.choice(CODES), after_seconds=rng.uniform(0, 30)),
                outcomes.run_out_of_memory(after_seconds=rng.uniform(0, 30)),
                outcomes.Exit(0, rng.uniform(0, 10)),
                outcomes.Evict(after_seconds=rng.uniform(0, 30)),
                outcomes.LoseNode(
                    after_seconds=rng.uniform(0, 30), removed_after_seconds=rng.choice((None, 60.0))
                ),
                outcomes.FailImagePull(for_seconds=rng.uniform(1, 120), then=well),
                outcomes.Unschedulable(for_seconds=rng.uniform(1, 200), then=well),
            )
        )

    return decide


def _node_fault(scenario: Scenario, start: str, attempt: int) -> outcomes.Outcome | None:
    """Return a rare fault of a node at one start of a container; faults become rarer with each attempt."""
    rng = random.Random(f"node {scenario.seed} {start}")
    if rng.random() >= scenario.trouble * 0.2 * 0.6**attempt:
        return None
    faults: list[outcomes.Outcome] = [
        outcomes.reboot(after_seconds=rng.uniform(0, 30)),
        outcomes.fail_to_start(),
    ]
    if start.endswith(" 0"):
        faults += [
            outcomes.Reject(),
            outcomes.Reject("UnexpectedAdmissionError", "no healthy devices present"),
        ]
    return rng.choice(faults)


def _job(rng: random.Random, name: str) -> JsonObject:
    pod = rng.choice(({}, {}, {"restartPolicy": "OnFailure"}, {"restartPolicy": "Never"}))
    built = job(name).worker(rng.choice((1, 2, 2, 3, 5)), pod=pod)
    mode = rng.choice(("ps", "ps", "collective", "collective", "heter"))
    if mode in ("ps", "heter"):
        built.ps(rng.choice((1, 2)))
    if mode == "heter":
        built.heter(1)
    built.spec(
        intranet=rng.choice(("PodIP", "PodIP", "Service", "Host")),
        cleanPodPolicy=rng.choice(("Always", "Never", "OnFailure", "OnCompletion")),
        backoffLimit=rng.choice((0, 1, 3)),
        withGloo=rng.choice((0, 1)),
    )
    _sometimes(rng, built)
    built.manifest["metadata"].pop("uid")
    return built.manifest


def _sometimes(rng: random.Random, built: JobBuilder) -> None:
    if rng.random() < 0.2:
        built.spec(elastic=1)
        built.manifest["spec"]["worker"]["requests"] = 1
    if rng.random() < 0.1:
        built.spec(activeDeadlineSeconds=rng.choice((30, 300)))
    if rng.random() < 0.1:
        built.spec(ttlSecondsAfterFinished=rng.choice((0, 60)))
    if rng.random() < 0.1:
        built.spec(successPolicy="Worker0")


def _deed(rng: random.Random, name: str, until: float) -> Deed:
    verb = rng.choice(("scale", "delete-pod", "delete-pod", "delete", "recreate", "suspend", "foreground"))
    return Deed(rng.uniform(0, until), verb, name, rng.randint(1, 5))
