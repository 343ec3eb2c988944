"""Clusters in which a job does not run: what is put there, what is said of it, how it is helped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.client.explain import Advice, Change, Explanation, FollowUp, explain_job
from paddlejob.client.explain.gather import CLAIMS, QUOTAS, VOLUMES
from paddlejob.kube.client import PatchType
from paddlejob.kube.resource import NODES, PODS, Resource
from simkube.build import JobBuilder
from tests.gang.nodes import Nodes
from tests.operator.gang_stage import GangStage

PATCHED = {"pdj": PADDLE_JOBS, "resourcequota": QUOTAS, "node": NODES}


class Scene:
    """A cluster in which a job does not run, and how to get on."""

    def __init__(self, stage: GangStage, nodes: Nodes) -> None:
        self.stage = stage
        self.nodes = nodes

    async def create(self, resource: Resource, name: str, spec: dict[str, Any], **fields: Any) -> None:
        body = {"metadata": {"name": name}, "spec": spec, **fields}
        await self.stage.client.create(resource, self.stage.namespace if resource.namespaced else None, body)

    async def quota(self, **hard: str) -> None:
        """Create a quota, and wait until its controller has counted what is used."""
        lines = {key.replace("_", "."): amount for key, amount in hard.items()}
        await self.create(QUOTAS, "team-a", {"hard": lines})

        async def is_counted() -> bool:
            found = await self.stage.client.get(QUOTAS, self.stage.namespace, "team-a")
            return found.get("status", {}).get("hard") == lines

        await self.stage.until(is_counted, "the quota is counted")

    async def claim(self, name: str, *, mode: str = "ReadWriteMany", volume: bool = True) -> None:
        """Create a claim and, if wanted, a volume for it alone."""
        spec = {"accessModes": [mode], "storageClassName": self._own_class(name)}
        if volume:
            await self.volume(name, mode=mode)
        await self.create(CLAIMS, name, {**spec, "resources": {"requests": {"storage": "1Gi"}}})

    async def volume(self, claim: str, *, mode: str = "ReadWriteMany") -> None:
        """Create the volume that only this claim fits."""
        name = self._own_class(claim)
        spec = {"accessModes": [mode], "storageClassName": name, "capacity": {"storage": "1Gi"}}
        source = {"csi": {"driver": "test.example", "volumeHandle": name}}
        await self.create(VOLUMES, name, {**spec, **source})

    def _own_class(self, claim: str) -> str:
        return f"{self.stage.namespace}-{claim}"

    async def change(self, op: dict[str, Any], *, recreate: bool = False) -> None:
        """Change the job, and create its pods again if wanted."""
        change = Change("pdj", "demo", (op,))
        await self.follow(Advice("", change, FollowUp.RECREATE if recreate else FollowUp.NOTHING))

    async def explained(self, case: Case) -> Explanation:
        """Wait until a job is explained as it should be."""
        found: list[Explanation] = []

        async def it_is() -> bool:
            found.append(await explain_job(self.stage.client, self.stage.namespace, "demo"))
            return case.fits(found[-1])

        try:
            await self.stage.until(it_is, case.says)
        except AssertionError as error:
            error.add_note(str(found[-1]))
            raise
        return found[-1]

    async def follow(self, advice: Advice) -> None:
        """Do what an advice says, as its commands would."""
        assert advice.change is not None
        resource = PATCHED[advice.change.resource]
        namespace = self.stage.namespace if resource.namespaced else None
        patch, kind = list(advice.change.patch), PatchType.JSON
        await self.stage.client.patch(resource, namespace, advice.change.name, patch, patch_type=kind)
        if advice.then is FollowUp.RECREATE:
            await self.stage.edit(suspend=True)
            await self.stage.gone(PODS)
            await self.stage.edit(suspend=False)


@dataclass(frozen=True)
class Case:
    """A job that does not run, and all advice that is given for it."""

    job: JobBuilder
    prepare: Callable[[Scene], Any]
    cause: str
    says: str
    advice: tuple[str, ...]
    rank: str = "worker-"
    scheduling: str = ""

    def fits(self, found: Explanation) -> bool:
        return (
            found.cause == self.cause
            and found.rank.startswith(self.rank)
            and found.summary.startswith(self.says)
            and all(any(advice.text.startswith(start) for advice in found.advice) for start in self.advice)
        )


def cpu(amount: int) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": str(amount)}}}


def mounting(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


async def an_hdd_node(scene: Scene) -> None:
    scene.nodes.add(4, labels={"disk": "hdd"})
