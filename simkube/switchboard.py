"""Carries the requests of simulated supervisors to an operator, on lines that lose, repeat and delay them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject, ObjectKey
from simkube.kubelet.program import ANSWER_SECONDS, NoAnswerError
from simkube.operator import Operator


class LineFaults(msgspec.Struct, frozen=True):
    """Probabilities of faults of a request."""

    lost: float = 0.0
    """The request or its answer does not arrive."""
    repeated: float = 0.0
    """A copy of the request arrives up to a minute later."""
    late: float = 0.0
    """The request arrives up to a minute later, when its sender may have given up."""


class Switchboard:
    """Connects supervisors with the operator that runs; `muted` pods reach nobody."""

    def __init__(self, rng: random.Random, faults: LineFaults | None = None) -> None:
        self.muted: set[str] = set()
        self.faults = faults or LineFaults()
        self._rng = rng
        self._operator: Operator | None = None
        self._tasks: set[asyncio.Task[dict[str, Any] | None]] = set()

    def connect(self, operator: Operator) -> None:
        """Let an operator answer from now on."""
        self._operator = operator

    def disconnect(self, operator: Operator) -> None:
        """End the operator's connections, unless another operator has taken over."""
        if self._operator is operator:
            self._operator = None
            for task in self._tasks:
                task.cancel()

    async def attend(self, pod: JsonObject, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a supervisor. Raises NoAnswerError."""
        rng, operator = self._rng, self._operator
        await asyncio.sleep(rng.uniform(0.0, 0.05))
        if operator is None or operator is not self._operator or pod["metadata"]["name"] in self.muted:
            raise NoAnswerError
        if rng.random() < self.faults.repeated:
            self.send_later(pod, body, rng.uniform(0.0, 60.0))
        if rng.random() < self.faults.lost:
            await asyncio.sleep(ANSWER_SECONDS)
        delay = rng.uniform(0.0, 60.0) if rng.random() < self.faults.late else 0.0
        delivery = self._spawn(self._deliver(operator, pod, body, delay))
        # The operator goes on with a request whose sender has hung up.
        await asyncio.wait({delivery})
        if delivery.cancelled() or rng.random() < self.faults.lost:
            raise NoAnswerError
        answer = delivery.result()
        await asyncio.sleep(rng.uniform(0.0, 0.05))
        if answer is None or pod["metadata"]["name"] in self.muted:
            raise NoAnswerError
        return answer

    def send_later(self, pod: JsonObject, body: dict[str, Any], delay_seconds: float) -> None:
        """Deliver a report to the operator that runs now, whose answer is lost."""
        if self._operator is not None:
            self._spawn(self._deliver(self._operator, pod, body, delay_seconds))

    def _spawn(self, work: Coroutine[Any, Any, dict[str, Any] | None]) -> asyncio.Task[dict[str, Any] | None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _deliver(
        self, operator: Operator, pod: JsonObject, body: dict[str, Any], delay: float
    ) -> dict[str, Any] | None:
        """Return the operator's answer, None if it does not know the pod."""
        await asyncio.sleep(delay)
        metadata, state = pod["metadata"], operator.controller.state
        known = state.pods.get(ObjectKey(metadata["namespace"], metadata["name"]))
        job = state.job_of(known) if known is not None else None
        if known is None or job is None or known.metadata.uid != metadata["uid"]:
            return None
        assert operator.supervisors is not None
        answer = await operator.supervisors.attend(job, known, msgspec.json.encode(body))
        # As over a connection: what is sent cannot be changed later.
        return dict(msgspec.json.decode(msgspec.json.encode(answer)))
