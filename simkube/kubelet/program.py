"""The program in a simulated container, and the supervisor that runs it once for each attempt.

`SimulatedSupervisor` follows the protocol of `paddlejob.recorder.supervisor`, without processes and sockets.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject
from simkube.kubelet.outcomes import (
    Evict,
    Exit,
    ExitWhenReleased,
    FailImagePull,
    LoseNode,
    Outcome,
    Reject,
    RunForever,
    Unschedulable,
)

ANSWER_SECONDS = 25.0
RETRY_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
KILLED = 137
ENDS_CONTAINER = ("ContainerStatusUnknown", "StartError")
"""Reasons with which a container ends, and not only its program."""

Attend = Callable[[JsonObject, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends the state of a pod's program to the operator and returns the answer. Raises NoAnswerError."""


class NoAnswerError(Exception):
    """The operator cannot be reached, or refuses to answer."""


class EvictedError(Exception):
    """The kubelet evicts the pod."""

    def __init__(self, outcome: Evict) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class NodeLostError(Exception):
    """The node of the pod is lost."""

    def __init__(self, outcome: LoseNode) -> None:
        super().__init__("node lost")
        self.outcome = outcome


class ProgramRun(msgspec.Struct):
    """A program of a supervised pod, from its start to its end."""

    pod: str
    uid: str
    owner: str
    """UID of the job."""
    attempt: int
    environment: dict[str, str]
    is_first: bool
    """Whether it is the first program of its container."""
    started: float
    ended: float | None = None


class Supervision(msgspec.Struct, frozen=True):
    """How the supervisors of a kubelet reach the operator, and what befalls them."""

    attend: Attend
    rng: random.Random
    dies_after: Callable[[JsonObject], float | None] = lambda _: None
    """Seconds after which the supervisor of a pod is killed, and its container with it."""
    runs: list[ProgramRun] = []
    """Every program that was started, in order."""

    def end(self, uid: str) -> None:
        """Note that no program runs in a pod any more."""
        now = asyncio.get_running_loop().time()
        for run in self.runs:
            if run.uid == uid and run.ended is None:
                run.ended = now


async def end_of(outcome: Outcome) -> Exit:
    """Wait as long as a program runs, and return how it ends.

    Raises EvictedError and NodeLostError when it is the pod that ends.
    """
    match outcome:
        case Exit():
            await asyncio.sleep(outcome.after_seconds)
            return outcome
        case ExitWhenReleased():
            await outcome.released.wait()
            return outcome.exit
        case Evict():
            await asyncio.sleep(outcome.after_seconds)
            raise EvictedError(outcome)
        case LoseNode():
            await asyncio.sleep(outcome.after_seconds)
            raise NodeLostError(outcome)
        case FailImagePull() | Unschedulable():
            return await end_of(outcome.then)
        case RunForever() | Reject():
            await asyncio.get_running_loop().create_future()
    raise AssertionError(outcome)


class SimulatedSupervisor:
    """PID 1 of a container: starts the program, reports its end, and obeys the operator."""

    def __init__(
        self,
        supervision: Supervision,
        pod: JsonObject,
        environment: dict[str, str],
        *,
        outcome_of: Callable[[int], Outcome],
        on_start: Callable[[dict[str, str]], None],
    ) -> None:
        self._supervision = supervision
        self._rng = supervision.rng
        self._pod = pod
        self._environment = environment
        self._outcome_of = outcome_of
        self._on_start = on_start
        self._attempt = int(environment.get("PADDLEJOB_ATTEMPT", "0"))
        self._program: asyncio.Task[Exit] | None = None
        self._last = Exit()
        self._number = 0
        self._ended_at = 0.0
        self._since = self._ask_at = self._answered_at = asyncio.get_running_loop().time()

    async def run(self, outcome: Outcome) -> Exit:
        """Run programs until one ends the container; return how."""
        fate = self._supervision.dies_after(self._pod)
        try:
            async with asyncio.timeout(fate):
                return await self._run(outcome)
        except TimeoutError:
            self._supervision.end(self._pod["metadata"]["uid"])
            return Exit(KILLED)
        finally:
            if self._program is not None:
                self._program.cancel()

    async def _run(self, outcome: Outcome) -> Exit:
        self._start(outcome, is_first=True)
        while True:
            question = asyncio.ensure_future(self._ask())
            waits: set[asyncio.Future[Any]] = {question} | ({self._program} if self._program else set())
            try:
                patience = None if self._program else self._patience()
                await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                if self._program is not None and self._program.done():
                    end = self._program.result()
                    if end.code == 0 or end.reason in ENDS_CONTAINER:
                        self._supervision.end(self._pod["metadata"]["uid"])
                        return end
                    await self._go_down(end)
                elif question.done() and await self._obey(question.result()):
                    return self._last
                if self._program is None and self._patience() <= 0:
                    return self._last
            finally:
                question.cancel()

    def _patience(self) -> float:
        now = asyncio.get_running_loop().time()
        return max(0.0, max(self._since, self._answered_at) + PATIENCE_SECONDS - now)

    def _start(self, outcome: Outcome, *, is_first: bool) -> None:
        metadata, now = self._pod["metadata"], asyncio.get_running_loop().time()
        owner = metadata.get("ownerReferences", [{}])[0].get("uid", "")
        environment = dict(self._environment)
        run = ProgramRun(metadata["name"], metadata["uid"], owner, self._attempt, environment, is_first, now)
        self._supervision.runs.append(run)
        self._program = asyncio.ensure_future(end_of(outcome))
        if not is_first:
            self._on_start(environment)
        self._ask_at = now

    async def _go_down(self, end: Exit) -> None:
        """Kill what is left of the program, which takes a moment, and ask for orders."""
        if self._program is not None:
            self._program.cancel()
        self._program, self._last, self._ended_at = None, end, asyncio.get_running_loop().time()
        await asyncio.sleep(self._rng.uniform(0.0, 0.3))
        self._supervision.end(self._pod["metadata"]["uid"])
        self._since = self._ask_at = asyncio.get_running_loop().time()

    async def _ask(self) -> dict[str, Any]:
        """Ask until there is an answer."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(0.0, self._ask_at - loop.time()))
            asked_at = loop.time()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._supervision.attend(self._pod, self._report())
            except (NoAnswerError, TimeoutError):
                self._ask_at = loop.time() + RETRY_SECONDS * self._rng.uniform(0.8, 1.2)
                continue
            self._answered_at = loop.time()
            self._ask_at = max(self._answered_at + answer.get("nextSeconds", 0.0), asked_at + RETRY_SECONDS)
            return answer

    def _report(self) -> dict[str, Any]:
        self._number += 1
        report: dict[str, Any] = {"attempt": self._attempt, "number": self._number}
        if self._program is not None:
            return {**report, "state": "running"}
        is_oom = self._last.reason == "OOMKilled"
        seconds = asyncio.get_running_loop().time() - self._ended_at
        end = {"code": self._last.code, "oomKilled": is_oom, "endedSeconds": seconds}
        return {**report, "state": "down", **end}

    async def _obey(self, order: dict[str, Any]) -> bool:
        """Follow an order, unless it is about another attempt; return whether to exit."""
        if self._program is not None:
            if order.get("stop") == self._attempt:
                await self._go_down(Exit(KILLED))
        elif order.get("exit"):
            return True
        elif order.get("run", -1) > self._attempt:
            self._attempt = order["run"]
            kept = self._environment.get("PADDLEJOB_KEEP_ENV", "").split(",")
            self._environment |= {name: text for name, text in order["env"].items() if name not in kept}
            self._environment["PADDLEJOB_ATTEMPT"] = str(self._attempt)
            self._start(self._outcome_of(self._attempt), is_first=False)
        return False
