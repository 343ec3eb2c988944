"""Run a shell script in the training containers of a job, or on this machine for a local run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from paddlejob.api.pod import Pod
from paddlejob.client import errors, ranks
from paddlejob.client.errors import ClientError
from paddlejob.client.streams.execution import ContainerCommand, execute
from paddlejob.kube.errors import ForbiddenError, KubeError, UnauthorizedError

if TYPE_CHECKING:
    from paddlejob.client.cluster import ClusterJob
    from paddlejob.client.job import Job

MAX_PARALLEL = 16
MAX_BYTES = 1 << 23
"""The maximum output of a script. A pod chooses its own shell, which can print without end."""


class Answer(NamedTuple):
    """The output of the script in a pod, or the reason why it could not be run."""

    pod: Pod
    output: str = ""
    trouble: str = ""


async def run_in_pod(job: ClusterJob, pod: Pod, script: str, *arguments: str) -> str:
    """Run a script through the API server and return its output. Raises ClientError and KubeError."""
    output = bytearray()

    def take(chunk: bytes) -> None:
        output.extend(chunk)
        if len(output) > MAX_BYTES:
            raise ClientError(f"the command in the container printed more than {MAX_BYTES >> 20} MiB")

    command = ContainerCommand(words=("sh", "-c", script, "sh", *arguments), on_stdout=take, on_stderr=take)
    container = ranks.training_container(job.state, pod)
    await execute(job.client, job.namespace, pod.metadata.name, container, command)
    return output.decode(errors="replace")


async def run_here(script: str, *arguments: str) -> str:
    """Run a script on this machine and return its output."""
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-c", script, "sh", *arguments), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await shell.communicate()
    return output.decode(errors="replace")


async def running_pods(job: Job, rank: str) -> list[Pod]:
    """Return the running pods of a rank, a pod name, a role or `all`. Raises ClientError for another."""
    ranks.check(job.state, rank)
    return [pod for pod in ranks.select(job.state, await job.pods(), rank) if pod.status.phase == "Running"]


async def ask_each(
    pods: Iterable[Pod], ask: Callable[[Pod], Awaitable[str]], *, timeout_seconds: float
) -> list[Answer]:
    """Return the answers of pods, a few at a time. Raises KubeError if the user lacks the permission.

    A command in a pod on a node that is gone never ends, so each pod has a time limit.
    """
    gate = asyncio.Semaphore(MAX_PARALLEL)

    async def answer(pod: Pod) -> Answer:
        async with gate:
            try:
                async with asyncio.timeout(timeout_seconds):
                    return Answer(pod, await ask(pod))
            except TimeoutError:
                return Answer(pod, trouble=f"did not answer within {timeout_seconds:g} seconds")
            except (ForbiddenError, UnauthorizedError):
                raise
            except (ClientError, KubeError) as error:
                return Answer(pod, trouble=f"cannot be read: {errors.sentence(error)}")

    return await asyncio.gather(*map(answer, pods))
