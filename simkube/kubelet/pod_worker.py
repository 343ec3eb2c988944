"""The life of one simulated pod: scheduled, configured, started, ended, restarted, deleted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import msgspec

from paddlejob import kubelet
from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.names import Env
from paddlejob.kube.client import Client
from paddlejob.kubelet import Sources
from simkube.kubelet.node_pool import NodePool
from simkube.kubelet.outcomes import (
    Behaviour,
    Evict,
    Exit,
    FailImagePull,
    LoseNode,
    Outcome,
    Reject,
    RunForever,
    Unschedulable,
    outlive_deadline,
)
from simkube.kubelet.pod_state import ENDED, SimulatedContainer, SimulatedPod
from simkube.kubelet.pod_writer import PodGoneError, PodWriter
from simkube.kubelet.program import EvictedError, NodeLostError, SimulatedSupervisor, Supervision, end_of
from simkube.virtual_loop import timestamp

_UNSCHEDULABLE_RETRY_SECONDS = 5.0
_OWN_SCHEDULER = "default-scheduler"

Range = tuple[float, float]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long a kubelet takes, from and to; drawn each time."""

    start_seconds: Range = (0.5, 2.0)
    """From the binding to the first container: sandbox, address, image."""
    ready_seconds: Range = (0.0, 0.0)
    """From running to ready."""
    init_seconds: Range = (0.5, 2.0)
    """How long an init container runs."""
    stop_seconds: Range = (0.1, 1.0)
    """Time from deletion to container exit, at most the grace period."""
    phase_seconds: Range = (0.0, 2.0)
    """From the report that the last container has terminated to the report of the phase that follows."""
    config_retry_seconds: Range = (10.0, 15.0)
    """Time until a container with a missing ConfigMap is tried again, unless the pod's metadata changes."""
    backoff_seconds: float = kubelet.FIRST_BACK_OFF_SECONDS
    """Before the second restart; doubles with each one. The first restart is immediate."""
    max_backoff_seconds: float = kubelet.MAX_BACK_OFF_SECONDS


class ContainerStart(msgspec.Struct, frozen=True):
    """A container start, with the environment of the container."""

    namespace: str
    pod: str
    uid: str
    container: str
    restarts: int
    at_seconds: float
    """The loop's time."""
    address: str
    environment: dict[str, str]


class KubeletContext(msgspec.Struct, frozen=True):
    """State that the workers of one kubelet share."""

    client: Client
    behaviour: Behaviour
    init_behaviour: Behaviour | None
    pool: NodePool
    rng: random.Random
    timing: Timing
    fast: bool
    slots: asyncio.Semaphore
    now: Callable[[], datetime]
    on_start: Callable[[ContainerStart], None]
    schedules: bool = True
    """Whether pods without a scheduler name are bound here; otherwise another component binds them."""
    supervision: Supervision | None = None


class PodWorker:
    """Runs one pod; `run` until it ends, `terminate` when it is to be deleted."""

    def __init__(self, node: KubeletContext, pod: JsonObject) -> None:
        self.pod = pod
        self.terminating = False
        self._node = node
        self._state = SimulatedPod(pod, node.now)
        self._kicked = asyncio.Event()
        self._bound = asyncio.Event()
        self._publishing = asyncio.Lock()
        self._published: JsonObject | None = None
        self._lost: LoseNode | None = None
        self._deadline: asyncio.Timeout | None = None
        self._started_seconds = 0.0
        self._writer = PodWriter(node.client, node.slots, pod)

    def update(self, pod: JsonObject) -> None:
        """Handle a change; the kubelet syncs the pod immediately if its metadata or spec changed."""
        if _synced_part(pod) != _synced_part(self.pod):
            self._kicked.set()
        if pod["spec"].get("nodeName"):
            self._bound.set()
        self.pod = pod
        self._set_deadline()

    async def run(self) -> None:
        """Live the pod's life, up to its own end or its deadline."""
        try:
            await self._live_until_deadline()
        except EvictedError as end:
            await self._unless_gone(self._evict(end.outcome))
        except NodeLostError as end:
            await self._unless_gone(self._lose_node(end.outcome))
        except PodGoneError:
            return

    async def terminate(self) -> None:
        """Stop the containers within the pod's grace, report their end, and let the pod go."""
        self.terminating = True
        if self._lost is not None:
            if self._lost.removed_after_seconds is None:
                return
            await asyncio.sleep(self._lost.removed_after_seconds)
        else:
            await self._unless_gone(self._stop_containers())
        await self._unless_gone(self._writer.delete(grace_seconds=0))

    async def _live_until_deadline(self) -> None:
        try:
            async with asyncio.timeout(None) as self._deadline:
                await self._live()
        except TimeoutError:
            raise EvictedError(outlive_deadline()) from None
        finally:
            self._deadline = None

    def _set_deadline(self) -> None:
        """Apply `activeDeadlineSeconds`, which counts from the start of the pod on its node."""
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        is_counting = self._state.started_at is not None and seconds is not None
        if is_counting and self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(self._started_seconds + seconds)

    async def _live(self) -> None:
        first = self.pod["spec"]["containers"][0]
        outcome = self._node.behaviour(self.pod, first["name"], 0)
        outcome = await self._schedule(outcome)
        if isinstance(outcome, Reject):
            await self._reject(outcome)
            return
        self._state.started_at = self._node.now()
        self._started_seconds = asyncio.get_running_loop().time()
        self._set_deadline()
        if not self._node.fast:
            await self._publish()
            await self._pause(self._node.timing.start_seconds)
        self._state.has_address = True
        if isinstance(outcome, FailImagePull):
            outcome = await self._fail_image_pull(outcome)
        if await self._run_inits():
            await self._run_containers(outcome)
            await self._stop(self._grace_seconds())
        self._deadline = None
        await self._release()

    async def _schedule(self, outcome: Outcome) -> Outcome:
        """Put the pod on a node, when it may and one has room; another scheduler's pod waits for that one."""
        if self._is_anothers():
            await self._bound.wait()
        elif isinstance(outcome, Unschedulable):
            await self._publish()
            await _sleep(outcome.for_seconds)
        outcome = outcome.then if isinstance(outcome, Unschedulable) else outcome
        placement = self._node.pool.place(self.pod)
        while placement is None:
            await self._publish()
            await asyncio.sleep(_UNSCHEDULABLE_RETRY_SECONDS)
            placement = self._node.pool.place(self.pod)
        if not self.pod["spec"].get("nodeName"):
            await self._writer.bind(placement.node)
            await self._bound.wait()
        if self.pod.get("status", {}).get("phase") in ENDED:
            # It was marked as failed before it was bound.
            raise PodGoneError
        self._state.placement = placement
        return outcome

    def _is_anothers(self) -> bool:
        spec = self.pod["spec"]
        ours = self._node.schedules and spec.get("schedulerName", _OWN_SCHEDULER) == _OWN_SCHEDULER
        ours = ours and not spec.get("schedulingGroup")  # a gang needs a scheduler that knows gangs
        return not ours and not spec.get("nodeName")

    async def _fail_image_pull(self, outcome: FailImagePull) -> Outcome:
        state = self._state.containers[0]
        message = f'Back-off pulling image "{state.image}"'
        state.wait("ErrImagePull", f'failed to pull and unpack image "{state.image}": not found')
        await self._publish()
        await asyncio.sleep(min(10.0, outcome.for_seconds or 10.0))
        state.wait("ImagePullBackOff", message)
        await self._publish()
        await _sleep(None if outcome.for_seconds is None else max(0.0, outcome.for_seconds - 10.0))
        return outcome.then

    async def _run_inits(self) -> bool:
        """Run the init containers one after the other; return whether all succeeded."""
        specs = self.pod["spec"].get("initContainers") or ()
        for state, container in zip(self._state.inits, specs, strict=True):
            if state.is_sidecar:
                await self._start(state, container)  # the others need not wait for its end
                continue
            await self._run_container(state, container)
            if state.exit_code:
                return False
        return True

    async def _run_containers(self, outcome: Outcome) -> None:
        specs = self.pod["spec"]["containers"]
        (state, container), *others = zip(self._state.containers, specs, strict=True)
        if not others:
            await self._run_container(state, container, outcome)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_container(state, container, outcome))
                for other_state, other in others:
                    group.create_task(self._run_container(other_state, other))
        except* (EvictedError, NodeLostError, PodGoneError) as ends:
            raise ends.exceptions[0] from None

    async def _run_container(
        self, state: SimulatedContainer, container: JsonObject, outcome: Outcome | None = None
    ) -> None:
        """Run a container as often as the pod's restart policy wants."""
        outcome = outcome or self._outcome(state, 0)
        while True:
            variables = await self._start(state, container)
            await self._until_end(state, outcome, variables)
            if not self._is_to_restart(state):
                state.finished = True
                await self._publish()
                return
            await self._back_off(state)
            outcome = self._outcome(state, state.restarts + 1)

    def _outcome(self, state: SimulatedContainer, restarts: int) -> Outcome:
        """Return the outcome of a container; init containers succeed unless they have a behaviour."""
        if state not in self._state.inits:
            return self._node.behaviour(self.pod, state.name, restarts)
        if self._node.init_behaviour is not None:
            return self._node.init_behaviour(self.pod, state.name, restarts)
        return Exit(0, self._node.rng.uniform(*self._node.timing.init_seconds))

    async def _start(self, state: SimulatedContainer, container: JsonObject) -> dict[str, str]:
        variables = await self._configured(state, container)
        state.run(self._node.now())
        self._note_start(state, variables)
        seconds = self._node.rng.uniform(*self._node.timing.ready_seconds)
        if seconds and not self._node.fast:
            self._state.ready = False
            await self._publish()
            await asyncio.sleep(seconds)
            self._state.ready = True
        await self._publish()
        return variables

    def _note_start(self, state: SimulatedContainer, variables: dict[str, str]) -> None:
        placement = self._state.placement
        assert placement is not None
        self._node.on_start(
            ContainerStart(
                namespace=self.pod["metadata"]["namespace"],
                pod=self.pod["metadata"]["name"],
                uid=self.pod["metadata"]["uid"],
                container=state.name,
                restarts=state.restarts,
                at_seconds=asyncio.get_running_loop().time(),
                address=placement.pod_address,
                environment=variables,
            )
        )

    async def _configured(self, state: SimulatedContainer, container: JsonObject) -> dict[str, str]:
        """Wait until everything that a container's environment comes from exists; return it."""
        needed = kubelet.references(container)
        while True:
            self._kicked.clear()
            read = {source: await self._writer.read(source) for source in needed}
            try:
                return kubelet.resolve(container, Sources(self._seen_from_inside(), read.get))
            except kubelet.ConfigError as error:
                state.wait("CreateContainerConfigError", str(error))
            await self._publish()
            seconds = self._node.rng.uniform(*self._node.timing.config_retry_seconds)
            try:
                async with asyncio.timeout(seconds):
                    await self._kicked.wait()
            except TimeoutError:
                continue

    def _seen_from_inside(self) -> JsonObject:
        placement = self._state.placement
        assert placement is not None
        status = {
            "podIP": placement.pod_address,
            "podIPs": [{"ip": placement.pod_address}],
            "hostIP": placement.node_address,
        }
        spec = {**self.pod["spec"], "nodeName": placement.node}
        return {**self.pod, "spec": spec, "status": status}

    async def _until_end(
        self, state: SimulatedContainer, outcome: Outcome, variables: dict[str, str]
    ) -> None:
        """Wait as long as a container runs; mark its end.

        Raises EvictedError and NodeLostError when it is the pod that ends.
        """
        if state is self._state.containers[0] and self._is_supervised(variables):
            end = await self._supervise(state, outcome, variables)
        else:
            end = await end_of(outcome)
        state.terminate(end.code, self._node.now(), reason=end.reason, message=end.message)

    def _is_supervised(self, variables: Mapping[str, str]) -> bool:
        return self._node.supervision is not None and Env.ATTEND_URL in variables

    async def _supervise(
        self, state: SimulatedContainer, outcome: Outcome, variables: dict[str, str]
    ) -> Exit:
        """Run the program of each attempt, with the outcome of a pod of that attempt."""
        assert self._node.supervision is not None

        def outcome_of(attempt: int) -> Outcome:
            metadata = self.pod["metadata"]
            labels = {**metadata["labels"], names.LABEL_ATTEMPT: str(attempt)}
            apparent = {**self.pod, "metadata": {**metadata, "labels": labels}}
            outcome = self._node.behaviour(apparent, state.name, 0)
            if not isinstance(outcome, Reject):
                return outcome
            # The kubelet has admitted the pod already, so the program runs well.
            return Exit(0, 30.0) if labels.get(names.LABEL_ROLE) == "worker" else RunForever()

        def on_start(environment: dict[str, str]) -> None:
            self._note_start(state, environment)

        supervisor = SimulatedSupervisor(
            self._node.supervision, self.pod, variables, outcome_of=outcome_of, on_start=on_start
        )
        return await supervisor.run(outcome)

    def _is_to_restart(self, state: SimulatedContainer) -> bool:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if state in self._state.inits and policy == "Always":
            policy = "OnFailure"
        return kubelet.is_restarted(policy, state.exit_code or 0)

    async def _back_off(self, state: SimulatedContainer) -> None:
        """Wait before a restart: not at all the first time, then longer and longer."""
        if not self._node.fast:
            await self._publish()
        timing = self._node.timing
        seconds = kubelet.back_off_seconds(state.restarts, timing.backoff_seconds, timing.max_backoff_seconds)
        metadata = self.pod["metadata"]
        pod = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        state.restart("CrashLoopBackOff", kubelet.back_off_message(seconds, state.name, pod))
        if seconds:
            await self._publish()
            await asyncio.sleep(seconds)

    async def _reject(self, outcome: Reject) -> None:
        self._state.inits, self._state.containers = [], []
        message = f"Pod was rejected: {outcome.message}"
        self._state.verdict = {"phase": "Failed", "reason": outcome.reason, "message": message}
        await self._publish_final_phase()

    async def _evict(self, outcome: Evict) -> None:
        grace = outcome.grace_seconds
        await self._stop(self._grace_seconds() if grace is None else grace, exit_code=outcome.exit_code)
        self._state.let_go(forgetting=outcome.reason == "Evicted" and self._node.rng.random() < 0.5)
        self._state.verdict = {"phase": "Failed", "reason": outcome.reason, "message": outcome.message}
        is_disruption = outcome.is_disruption
        await self._release(
            self._disruption("TerminationByKubelet", outcome.message) if is_disruption else None
        )

    async def _lose_node(self, outcome: LoseNode) -> None:
        self._lost = outcome
        self._state.ready = False
        await self._publish()
        await asyncio.sleep(outcome.toleration_seconds)
        message = "Taint manager: deleting due to NoExecute taint"
        self._state.disruption = self._disruption("DeletionByTaintManager", message)
        await self._publish()
        await self._writer.delete(grace_seconds=None)

    def _disruption(self, reason: str, message: str) -> JsonObject:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(self._node.now()),
        }

    async def _stop_containers(self) -> None:
        """Stop all containers within the grace period, and report the end of each."""
        has_ended = self.pod.get("status", {}).get("phase") in ENDED
        if self._state.placement is None or has_ended or self._node.fast:
            return
        await self._stop(self.pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        self._state.let_go()
        await self._release()

    async def _release(self, disruption: JsonObject | None = None) -> None:
        """Report how the containers ended, and in a second write the phase and all that comes with it."""
        if not self._node.fast:
            await self._publish()
            await self._pause(self._node.timing.phase_seconds)
        self._state.disruption = disruption or self._state.disruption
        await self._publish_final_phase()

    async def _publish_final_phase(self) -> None:
        self._state.is_released = True
        await self._publish()
        # A scheduler does not count the ports of ended pods.
        self._node.pool.release(self.pod["metadata"]["uid"])

    async def _stop(self, grace_seconds: float, *, exit_code: int = 143) -> None:
        states = [*self._state.inits, *self._state.containers]
        running = [state for state in states if state.is_running]
        if not running:
            return
        seconds = self._node.rng.uniform(*self._node.timing.stop_seconds)
        await asyncio.sleep(min(seconds, grace_seconds))
        for state in running:
            state.terminate(exit_code if seconds <= grace_seconds else 137, self._node.now())
        if self._node.supervision is not None:
            self._node.supervision.end(self.pod["metadata"]["uid"])

    def _grace_seconds(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def _publish(self) -> None:
        """Write the pod's status if it has changed since the last write."""
        async with self._publishing:
            status = self._state.status()
            if status != self._published:
                await self._writer.write_status(status)
                self._published = status

    async def _unless_gone(self, work: Awaitable[None]) -> None:
        try:
            await work
        except PodGoneError:
            return

    async def _pause(self, limits: Range) -> None:
        await asyncio.sleep(self._node.rng.uniform(*limits))


def _synced_part(pod: JsonObject) -> tuple[object, ...]:
    """Return the part of a pod whose changes make a kubelet sync it.

    The node is left out: a kubelet first sees a pod after it is bound.
    """
    metadata, spec = pod["metadata"], {**pod["spec"], "nodeName": None}
    return metadata.get("labels"), metadata.get("annotations"), spec


async def _sleep(seconds: float | None) -> None:
    """Sleep, forever when no time is given."""
    if seconds is None:
        await asyncio.get_running_loop().create_future()
    else:
        await asyncio.sleep(seconds)
