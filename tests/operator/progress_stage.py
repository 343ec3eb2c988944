"""A stage whose operator also reads how far jobs are."""

from __future__ import annotations

from paddlejob.api.meta import ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import TrainingProgress
from paddlejob.core.pod_set import attempt_of
from paddlejob.kube.client import Client
from paddlejob.training.steps import Origin
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.operator import Operator
from tests.client.scene import Scene
from tests.operator.log_transport import Logs
from tests.support.definitions import PADDLE_JOB_CRD


class Read(Scene):
    """An operator that also reads progress, as the process does."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.logs = Logs(server.transport("operator"))
        self.operator_client = Client(self.logs)

    def operator(self) -> Operator:
        self.running = Operator(self.operator_client, rng=self.rng, reads_progress=True)
        return self.running

    def report(
        self, step: int, *, resumed: bool = False, is_counted: bool = True, pod: Pod | None = None, **more
    ) -> None:
        """Let worker 0 report, as it does after it has proved who it is.

        `is_counted` is for steps from the start of its process, otherwise they are those of all training.
        """
        state = self.running.controller.state
        [job] = state.jobs
        pod = pod or state.pods.get(ObjectKey(job.metadata.namespace, "demo-worker-0"))
        told = TrainingProgress(step=step, **more)
        origin = Origin(resumed=resumed) if is_counted else None
        self.running.progress.writer.add_report(job, attempt_of(pod), told, origin)

    def say(self, **told) -> None:
        """Let the program of worker 0 say how far it is."""
        state = self.running.controller.state
        [job] = state.jobs
        pod = state.pods.get(ObjectKey(job.metadata.namespace, "demo-worker-0"))
        self.running.progress.writer.add_update(job, pod, TrainingProgress(**told))

    async def progress(self, name: str = "demo") -> dict:
        return (await self.status(name)).get("progress") or {}

    async def reaches(self, step: int, name: str = "demo") -> dict:
        async def is_there() -> bool:
            return (await self.progress(name)).get("step") == step

        await self.until(is_there, f"{name} is at step {step}")
        return await self.progress(name)

    def writes(self) -> int:
        return len(list(self.server.log.select(verb="patch", resource="paddlejobs")))


def play(act) -> None:
    async def main() -> None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(PADDLE_JOB_CRD)
        await Read(server).play(act)

    virtual_loop.run(main(), seed=1)


def line(step: int, *, loss: float = 0.5) -> str:
    return f"[Train][Epoch 1/2][Iter: {step}/500]lr: 0.1, loss: {loss}, ips: 12.5 samples/s, eta: 1:00:00"
