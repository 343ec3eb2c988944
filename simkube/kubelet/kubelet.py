"""A simulated scheduler and kubelet: makes pods run, fail and end, on any API server.

    kubelet = Kubelet(Client(server.transport("kubelet")), behaviour=behaviour, rng=random.Random(seed))
    task = asyncio.create_task(kubelet.run())

It follows the pods with one watch and writes bindings, statuses and last deletions over the client, so it
works on the in-memory API server under virtual time and on a real one in a benchmark.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube import errors, responses
from paddlejob.kube.client import Client
from paddlejob.kube.decoding import split_lines
from paddlejob.kube.resource import PODS
from simkube import virtual_loop
from simkube.kubelet.node_pool import NodePool
from simkube.kubelet.outcomes import Behaviour, exit_soon
from simkube.kubelet.pod_worker import ContainerStart, KubeletContext, PodWorker, Timing
from simkube.kubelet.program import Supervision

_RELIST_SECONDS = 1.0
_IDLE_SECONDS = 90.0


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_event_decoder = msgspec.json.Decoder(_Event)
_pod_decoder = msgspec.json.Decoder(dict)


class Kubelet:
    """Runs all pods that it sees; `behaviour` decides how each container ends.

    Init containers succeed unless `init_behaviour` is given.
    `fast` leaves out all waiting and all statuses between the binding and Running: one status write, or two
    when the container has to wait for its ConfigMap. `max_in_flight` bounds concurrent requests. Without
    `schedules` it leaves it to a scheduler to put pods on nodes. With `supervision`, containers that ask for
    a supervisor have one.
    """

    def __init__(
        self,
        client: Client,
        *,
        behaviour: Behaviour = exit_soon,
        init_behaviour: Behaviour | None = None,
        rng: random.Random | None = None,
        nodes: int | Sequence[str] = 3,
        ip_family: str = "IPv4",
        pods_per_node: int | None = None,
        namespace: str | None = None,
        label_selector: str = "",
        timing: Timing | None = None,
        fast: bool = False,
        max_in_flight: int = 50,
        schedules: bool = True,
        supervision: Supervision | None = None,
        now: Callable[[], datetime] = virtual_loop.now,
    ) -> None:
        rng = rng or random.Random(0)
        names = [f"node-{index}" for index in range(nodes)] if isinstance(nodes, int) else nodes
        self.starts: list[ContainerStart] = []
        """Every container that was started, in order, with its environment."""
        self.pool = NodePool(names, rng=rng, ip_family=ip_family, pods_per_node=pods_per_node)
        self._node = KubeletContext(
            client=client,
            behaviour=behaviour,
            init_behaviour=init_behaviour,
            pool=self.pool,
            rng=rng,
            timing=timing or Timing(),
            fast=fast,
            slots=asyncio.Semaphore(max_in_flight),
            now=now,
            on_start=self.starts.append,
            schedules=schedules,
            supervision=supervision,
        )
        self._client = client
        self._supervision = supervision
        self._namespace = namespace
        self._label_selector = label_selector
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the pods until cancelled; then every pod's task ends too."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    await self._follow(group)
                except (errors.TransportError, errors.ApiError):
                    await asyncio.sleep(_RELIST_SECONDS)

    def started(self, pod: str, *, container: str | None = None) -> list[ContainerStart]:
        """Return the starts of a pod's containers, by the pod's name."""
        return [
            start
            for start in self.starts
            if start.pod == pod and (container is None or start.container == container)
        ]

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        """List, then watch for as long as versions can be resumed.

        Raises ApiError when they cannot, TransportError when the server is away.
        """
        page = await self._client.list(PODS, self._namespace, label_selector=self._label_selector, type=dict)
        present = {pod["metadata"]["uid"] for pod in page.items}
        for uid in [uid for uid in self._workers if uid not in present]:
            self._forget(uid)
        for pod in page.items:
            self._see(group, pod)
        version = page.metadata.resource_version
        while True:
            version = await self._watch(group, version)

    async def _watch(self, group: asyncio.TaskGroup, version: str) -> str:
        """Follow one stream to its end; return the version to continue from."""
        query = {
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "600",
            "labelSelector": self._label_selector,
        }
        stream = self._client.watch_stream(PODS, self._namespace, query, idle_timeout_seconds=_IDLE_SECONDS)
        async with stream as opened:
            if opened.status != 200:
                raise await responses.error_from_stream(opened)
            async for line in split_lines(opened.chunks()):
                event = _event_decoder.decode(line)
                pod = _pod_decoder.decode(event.object)
                if event.type == "ERROR":
                    raise errors.api_error(msgspec.convert(pod, errors.Status))
                version = pod["metadata"]["resourceVersion"]
                if event.type == "DELETED":
                    self._forget(pod["metadata"]["uid"])
                elif event.type != "BOOKMARK":
                    self._see(group, pod)
        return version

    def _see(self, group: asyncio.TaskGroup, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is None:
            worker = self._workers[uid] = PodWorker(self._node, pod)
            self.pool.notice(pod)
            if _has_ended(pod):
                return
            if not pod["metadata"].get("deletionTimestamp"):
                self._tasks[uid] = group.create_task(worker.run(), name=f"run {_name(pod)}")
        worker.update(pod)
        if _has_ended(pod) and not pod["spec"].get("nodeName"):
            self._stop(uid)  # schedulers ignore failed pods
        if _waits_for_kubelet(pod) and not worker.terminating:
            self._stop(uid)
            worker.terminating = True
            self._tasks[uid] = group.create_task(worker.terminate(), name=f"end {_name(pod)}")

    def _forget(self, uid: str) -> None:
        if self._supervision is not None:
            self._supervision.end(uid)
        self._workers.pop(uid, None)
        self._stop(uid)
        self.pool.release(uid)

    def _stop(self, uid: str) -> None:
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()


def _has_ended(pod: JsonObject) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _waits_for_kubelet(pod: JsonObject) -> bool:
    """Return whether a pod is being deleted with a grace period."""
    metadata = pod["metadata"]
    return bool(metadata.get("deletionTimestamp")) and bool(metadata.get("deletionGracePeriodSeconds"))


def _name(pod: JsonObject) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
