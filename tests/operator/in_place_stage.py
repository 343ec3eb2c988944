"""A cluster in memory whose pods have supervisors, and an operator that can be killed at any time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.core.recorder import Recorder
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer
from simkube.build import JobBuilder
from simkube.kubelet import outcomes
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import Behaviour
from simkube.kubelet.program import ProgramRun, Supervision
from simkube.operator import Operator
from simkube.switchboard import LineFaults, Switchboard
from tests.support.definitions import PADDLE_JOB_CRD
from tests.support.waiting import eventually_async

RECORDER = Recorder.of({"paddlejob_recorder.py": "1"}, "https://operator:8443", by_default=True)


def failing(*failures: tuple[str, int, outcomes.Outcome], seconds: float = 60.0) -> Behaviour:
    """Return programs that run for a while, but for those of a pod and attempt that fail."""
    fates = {(name, str(attempt)): outcome for name, attempt, outcome in failures}

    def decide(pod: JsonObject, _container: str, _restarts: int) -> outcomes.Outcome:
        labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
        well = outcomes.Exit(0, seconds) if labels[names.LABEL_ROLE] == "worker" else outcomes.RunForever()
        return fates.get((name, labels[names.LABEL_ATTEMPT]), well)

    return decide


class InPlaceStage:
    """API server, kubelet and one operator at a time."""

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        seed: int = 0,
        faults: LineFaults | None = None,
        dies_after: Callable[[JsonObject], float | None] = lambda _: None,
        fast: bool = False,
        writes_progress: bool = False,
        keeps_records: bool = False,
    ) -> None:
        self._keeps_records = keeps_records
        self._writes_progress = writes_progress
        self.rng = random.Random(seed)
        self.server = ApiServer(rng=self.rng)
        self.server.install(PADDLE_JOB_CRD)
        self.switchboard = Switchboard(random.Random(f"lines {seed}"), faults)
        self.supervision = Supervision(self.switchboard.attend, random.Random(f"pods {seed}"), dies_after)
        self.kubelet = Kubelet(
            Client(self.server.transport("kubelet"), rng=self.rng),
            behaviour=behaviour,
            rng=self.rng,
            supervision=self.supervision,
            fast=fast,
        )
        self.operator: Operator | None = None
        self._life: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[InPlaceStage]:
        """Run everything until the block is left."""
        async with asyncio.TaskGroup() as group:
            kubelet = group.create_task(self.kubelet.run())
            self.start_operator()
            try:
                yield self
            finally:
                self.kill_operator()
                kubelet.cancel()

    def start_operator(self) -> None:
        client = Client(self.server.transport("operator"), rng=self.rng)
        settings = OperatorSettings(history=HistorySettings() if self._keeps_records else None)
        self.operator = Operator(
            client, settings, rng=self.rng, recorder=RECORDER, reads_progress=self._writes_progress
        )
        self.switchboard.connect(self.operator)
        self._life = asyncio.ensure_future(self.operator.run())

    def kill_operator(self) -> None:
        assert self.operator is not None
        assert self._life is not None
        self.switchboard.disconnect(self.operator)
        self._life.cancel()

    def submit(self, of: JobBuilder) -> None:
        manifest = {**of.manifest, "metadata": {**of.manifest["metadata"], "namespace": "default"}}
        manifest["metadata"].pop("uid", None)
        self.server.create(PADDLE_JOBS, manifest, identity="user")

    def status(self) -> dict[str, Any]:
        return (self.server.get(PADDLE_JOBS, "default", "demo") or {}).get("status") or {}

    def pods(self) -> dict[str, JsonObject]:
        return {pod["metadata"]["name"]: pod for pod in self.server.objects(PODS)}

    def uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def restart_counts(self) -> set[int]:
        return {pod["status"]["containerStatuses"][0]["restartCount"] for pod in self.pods().values()}

    def config(self) -> dict[str, str]:
        return (self.server.get(CONFIG_MAPS, "default", "demo") or {}).get("data") or {}

    def writes(self) -> list[WriteRecord]:
        """Return the operator's writes but for events."""
        return [
            write
            for write in self.server.log.writes
            if write.identity == "operator" and write.resource != "events" and write.changed
        ]

    def runs(self, attempt: int) -> list[ProgramRun]:
        return [run for run in self.supervision.runs if run.attempt == attempt]

    def living(self) -> dict[str, int]:
        """Return the attempt of every program that runs."""
        return {run.pod: run.attempt for run in self.supervision.runs if run.ended is None}

    async def until(self, condition: Callable[[], bool], *, within_seconds: float = 300.0) -> None:
        await eventually_async(condition, within_seconds=within_seconds, says=self.status)

    async def until_phase(self, phase: str, *, within_seconds: float = 300.0) -> None:
        await self.until(lambda: self.status().get("phase") == phase, within_seconds=within_seconds)

    async def until_all_run(self, attempt: int, *, within_seconds: float = 300.0) -> None:
        """Wait until the job runs with programs of one attempt."""

        def condition() -> bool:
            living = self.living()
            is_complete = living.keys() == self.pods().keys() and set(living.values()) == {attempt}
            return is_complete and self.status().get("phase") == "Running"

        await self.until(condition, within_seconds=within_seconds)
