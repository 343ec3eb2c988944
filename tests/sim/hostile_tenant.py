"""A hostile tenant with its own namespace, as ingredients of simulated histories.

Each ingredient acts while the network is faulty, acts once more right before a job of another namespace is
measured (see `bystander`), and ends its faults after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.errors import ApiError
from paddlejob.kube.resource import CONFIG_MAPS, Resource
from sim.ingredient import Ingredient
from simkube.build import JobBuilder, job
from simkube.kubelet import outcomes

if TYPE_CHECKING:
    from sim.simulation import Simulation

TENANT = "tenant"
JOBS = 3
"""Jobs that a tenant submits while the network is faulty."""
BURST_JOBS = 6
"""Jobs that a tenant submits right before the measurement: more than the operator has workers."""
BURST_SECONDS = 4.0
"""From the burst to the measurement: by then the tenant has all the workers and readers that it may have."""
SECONDS_BETWEEN_JOBS = 20.0

WIDE = "\U0001f600"
"""One such character makes Python store four bytes for each character of a text."""
TOO_LARGE_BYTES = 1_200_000
"""etcd stores 1.5 MB."""
SPEC_BYTES = 240_000
"""Below the size limit of a spec."""
ANNOTATION_BYTES = 250_000
"""The API server takes 256 KiB of annotations."""


class HostileTenant(Ingredient, frozen=True):
    """Something that a tenant does to an operator that others need too."""

    seed: int

    def outcome(self, pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome | None:
        """Let the pods of the tenant end soon, so that a history stays short."""
        metadata = pod["metadata"]
        if metadata["namespace"] != TENANT:
            return None
        return outcomes.Exit(0, random.Random(f"{self.seed} {metadata['name']}").uniform(1, 20))

    async def act(self, simulation: Simulation) -> None:
        """Begin, and submit a few jobs."""
        rng = random.Random(f"{type(self).__name__} {self.seed}")
        await asyncio.sleep(rng.uniform(0, 30))
        self.begin(simulation)
        for number in range(JOBS):
            await asyncio.sleep(rng.uniform(0, SECONDS_BETWEEN_JOBS))
            self.submit(simulation, rng, f"early-{number}")

    def burst(self, simulation: Simulation) -> None:
        """Submit more jobs than the operator has workers."""
        rng = random.Random(f"burst {type(self).__name__} {self.seed}")
        for number in range(BURST_JOBS):
            self.submit(simulation, rng, f"burst-{number}")

    def begin(self, simulation: Simulation) -> None:
        """Begin the faults of the tenant."""

    def submit(self, simulation: Simulation, rng: random.Random, name: str) -> None:
        """Create jobs or other objects; their names contain `name`."""
        raise NotImplementedError

    def create(self, simulation: Simulation, built: JobBuilder) -> None:
        """Create a job of the tenant."""
        manifest = built.manifest
        manifest["metadata"].pop("uid", None)
        simulation.server.create(PADDLE_JOBS, manifest, identity="user")


class SlowWebhook(HostileTenant, frozen=True):
    """Writes in the namespace take seconds in admission, or longer than a client waits."""

    resources: tuple[str, ...]
    seconds: float

    def begin(self, simulation: Simulation) -> None:
        """Delay the writes."""
        for plural in self.resources:
            simulation.server.tenant_faults.slow_webhooks[TENANT, plural] = self.seconds

    def heal(self, simulation: Simulation) -> None:
        """Stop delaying writes."""
        simulation.server.tenant_faults.slow_webhooks.clear()

    def submit(self, simulation: Simulation, rng: random.Random, name: str) -> None:
        """Create a job with some pods."""
        self.create(simulation, job(f"webhook-{name}", TENANT).worker(rng.choice((1, 2, 3))))


def draw_slow_webhook(rng: random.Random, _jobs: object, _until: float) -> SlowWebhook | None:
    """Draw a webhook for some resources; most histories have none."""
    if rng.random() < 0.9:
        return None
    plurals = ("pods", "paddlejobs", "configmaps", "services", "events")
    resources = tuple(rng.sample(plurals, rng.choice((1, 2, 5))))
    return SlowWebhook(rng.randrange(10**6), resources, rng.choice((2.0, 10.0, 29.0, 60.0)))


class SilentNodes(HostileTenant, frozen=True):
    """Nodes that never answer a request for a log; programs fail there, so that logs are read."""

    count: int
    """Silent nodes, of the 8 that there are."""

    def outcome(self, pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome | None:
        """Let each pod of this ingredient fail."""
        usual = HostileTenant.outcome(self, pod, container, restarts)
        is_mine = pod["metadata"]["name"].startswith("silent-")
        return outcomes.crash(1, after_seconds=20.0) if usual and is_mine else usual

    def begin(self, simulation: Simulation) -> None:
        """Silence the nodes."""
        simulation.server.tenant_faults.silent_nodes.update(self._nodes(simulation))

    def heal(self, simulation: Simulation) -> None:
        """Let all nodes answer again."""
        simulation.server.tenant_faults.silent_nodes.clear()

    def submit(self, simulation: Simulation, rng: random.Random, name: str) -> None:
        """Create a job on a silent node."""
        pod = {"nodeName": rng.choice(self._nodes(simulation))}
        self.create(simulation, job(f"silent-{name}", TENANT).worker(1, pod=pod).spec(backoffLimit=1))

    def _nodes(self, simulation: Simulation) -> tuple[str, ...]:
        return simulation.kubelet.pool.names[: self.count]


def draw_silent_nodes(rng: random.Random, _jobs: object, _until: float) -> SilentNodes | None:
    """Draw silent nodes; most histories have none."""
    if rng.random() < 0.9:
        return None
    return SilentNodes(rng.randrange(10**6), rng.choice((1, 4, 7)))


class FatObjects(HostileTenant, frozen=True):
    """Objects that are as large as the API server allows: jobs, ConfigMaps, records."""

    def submit(self, simulation: Simulation, rng: random.Random, name: str) -> None:
        """Create two objects."""
        for number in range(2):
            resource, body = fat_object(rng, f"fat-{name}-{number}")
            # An operator may have written a ConfigMap of this name already.
            with contextlib.suppress(ApiError):
                simulation.server.create(resource, body, identity="user")


def draw_fat_objects(rng: random.Random, _jobs: object, _until: float) -> FatObjects | None:
    """Draw fat objects; most histories have none."""
    return FatObjects(rng.randrange(10**6)) if rng.random() < 0.08 else None


def fat_object(rng: random.Random, name: str) -> tuple[Resource, JsonObject]:
    """Draw an object. Texts are long rather than lists: the simulated server copies a text in no time."""
    kind = rng.choice(("too large", "suspended", "running", "metadata", "values", "recorder", "record"))
    match kind:
        case "too large":
            return PADDLE_JOBS, _with_text(name, TOO_LARGE_BYTES)
        case "suspended":
            return PADDLE_JOBS, _with_text(name, SPEC_BYTES, suspend=True)
        case "running":
            return PADDLE_JOBS, _with_text(name, SPEC_BYTES)
        case "metadata":
            labels = {f"example.org/{number}": "x" * 60 for number in range(500)}
            annotations = {"example.org/text": WIDE + "x" * ANNOTATION_BYTES}
            built = job(name, TENANT).worker(1).metadata(labels=labels, annotations=annotations)
            return PADDLE_JOBS, _without_uid(built)
        case "values":
            values = [{"name": f"A{number}", "value": ""} for number in range(1_000)]
            return PADDLE_JOBS, _without_uid(job(name, TENANT).worker(1, env=values))
        case "recorder":
            return CONFIG_MAPS, _config_map(f"{names.RECORDER}-{name}", data={"text": "x" * 10**6})
    summary = f'{{"name": "{name}", "uid": "0", "result": "Failed", "message": "{WIDE}{"x" * 240_000}"}}'
    labels = {names.LABEL_HISTORY: "v1"}
    annotations = {names.ANNOTATION_SUMMARY: summary}
    return CONFIG_MAPS, _config_map(f"{name}-history", labels=labels, annotations=annotations)


def _with_text(name: str, size: int, **spec: Any) -> JsonObject:
    text = WIDE + "x" * size
    return _without_uid(job(name, TENANT).worker(1, env=[{"name": "FAT", "value": text}]).spec(**spec))


def _without_uid(built: JobBuilder) -> JsonObject:
    built.manifest["metadata"].pop("uid")
    return built.manifest


def _config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> JsonObject:
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    return {**head, "metadata": {"name": name, "namespace": TENANT, **metadata}, "data": data or {}}
