"""Leader election on a Lease, compatible with client-go and stricter about time.

The holder renews the record. A candidate takes over after it has seen the record *unchanged* for its
`leaseDurationSeconds` on the candidate's own monotonic clock. Timestamps of different machines are never
compared, so clock skew does not matter. Why two leaders never work at the same time:

    leader     sends a renewal at t; if no later one succeeds, it stops its work at t + renew deadline,
               and must have stopped by t + lease duration
    candidate  sees that renewal after t, and takes over no earlier than the lease duration after that
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import LEASES

log = logging.getLogger(__name__)

T = TypeVar("T")


class LeaseLostError(Exception):
    """The lease was taken over or could not be renewed in time; the work has been stopped."""


class LeaseTiming(msgspec.Struct, frozen=True):
    """Timing of the election; the defaults match Kubernetes' own components."""

    lease_duration_seconds: int = 15
    """Time that a candidate waits before it takes over an unchanged record."""
    renew_deadline_seconds: float = 10.0
    """Time that a leader works without a renewal; the rest of the lease duration is for stopping."""
    retry_period_seconds: float = 2.0
    """Time between two tries of a leader or a candidate."""

    def __post_init__(self) -> None:
        if not self.lease_duration_seconds > self.renew_deadline_seconds > self.retry_period_seconds > 0:
            raise ValueError(
                "leader election needs lease duration > renew deadline > retry period > 0, not "
                f"{self.lease_duration_seconds} > {self.renew_deadline_seconds} > {self.retry_period_seconds}"
            )


class LeaderElector:
    """Does work while it holds a Lease.

    Requires an `identity` that is unique to this process, also across restarts.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        rng: random.Random,
        now: Callable[[], datetime],
        timing: LeaseTiming | None = None,
        on_stuck: Callable[[], object] | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._rng = rng
        self._now = now
        self._timing = timing or LeaseTiming()
        self._on_stuck = on_stuck or _exit_now
        self._lease: JsonObject | None = None
        self._observed_at = -math.inf
        self._renewed_at = -math.inf
        """Time at which the last successful renewal was sent."""
        self._is_elected = False

    @property
    def is_leader(self) -> bool:
        """Whether this process holds the lease now; pass it to `Client.with_fence` to guard writes.

        It is False immediately after a process was suspended for longer than the renew deadline.
        """
        return self._is_elected and self._remaining_seconds() > 0

    @property
    def holder(self) -> str:
        """The holder when the lease was last read, or an empty string."""
        return _holder(self._lease)

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the lease, do the work while holding it, release it, and return the work's result.

        On cancellation the lease is released after the work has stopped.
        Guarantees that the work is cancelled when the lease is lost. If it does not stop before another
        process may start, `on_stuck` is called, which by default exits the process.
        Raises LeaseLostError if the lease was lost; exceptions of the work propagate.
        """
        await self._acquire()
        renewing = asyncio.create_task(self._renew_until_lost(), name="lease-renewal")
        working = asyncio.create_task(work(), name="leader-work")
        is_finished = False
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            is_finished = working.done()
        finally:
            await self._stop(working, renewing)
        if is_finished:
            return working.result()
        raise LeaseLostError(f"{self._identity} has lost lease {self._namespace}/{self._name}")

    async def _acquire(self) -> None:
        while True:
            if await self._attempt(self._request_seconds()):
                break
            await asyncio.sleep(self._timing.retry_period_seconds * self._rng.uniform(1.0, 2.2))
        self._is_elected = True
        log.info("%s holds lease %s/%s", self._identity, self._namespace, self._name)

    async def _renew_until_lost(self) -> None:
        try:
            while (remaining := self._remaining_seconds()) > 0:
                await asyncio.sleep(min(self._timing.retry_period_seconds, remaining))
                timeout_seconds = min(self._request_seconds(), self._remaining_seconds())
                if await self._attempt(timeout_seconds) is False:
                    break
            log.warning("%s has lost lease %s/%s", self._identity, self._namespace, self._name)
        finally:
            self._is_elected = False

    async def _stop(self, working: asyncio.Task[Any], renewing: asyncio.Task[None]) -> None:
        """Stop the work, then release the lease unless it was lost."""
        working.cancel()
        await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await asyncio.wait({working}, timeout=self._seconds_to_stop())
            if not working.done():
                log.critical("%s has lost its lease, but its work does not stop", self._identity)
                self._on_stuck()
        is_lost = renewing.done()
        renewing.cancel()
        await asyncio.wait({renewing})
        if not is_lost:
            await self._release()
        for task in (working, renewing):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s ended with an error", task.get_name(), exc_info=error)

    def _remaining_seconds(self) -> float:
        """Return the time left to work after the last renewal."""
        return self._renewed_at + self._timing.renew_deadline_seconds - _seconds()

    def _seconds_to_stop(self) -> float:
        """Return the time in which a leader that lost the lease must stop, before another can start."""
        margin = self._timing.lease_duration_seconds - self._timing.renew_deadline_seconds
        return margin + min(0.0, self._remaining_seconds())

    def _request_seconds(self) -> float:
        # After one lost request there must be time for another before the deadline.
        return self._timing.renew_deadline_seconds / 2

    async def _attempt(self, timeout_seconds: float) -> bool | None:
        """Try to acquire or renew the lease; return whether it is held, or None if that is unknown."""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._hold()
        except (errors.KubeError, TimeoutError) as error:
            reason = str(error) or "timed out"
            log.warning("%s cannot acquire or renew its lease: %s", self._identity, reason)
            return None

    async def _hold(self) -> bool:
        if self.holder == self._identity:
            # A conflict means that another process changed the record; read it before the next write.
            with suppress(errors.ConflictError, errors.NotFoundError):
                await self._write(self._renewed_spec())
                return True
        await self._observe()
        if not self._may_write():
            return False
        await self._write(self._renewed_spec())
        return True

    def _may_write(self) -> bool:
        if self._lease is None or self.holder == self._identity:
            return True
        if self._is_elected:
            # Another process held the lease, if only briefly, so this leader's state may be outdated.
            return False
        duration = _spec(self._lease).get("leaseDurationSeconds") or self._timing.lease_duration_seconds
        return not self.holder or _seconds() >= self._observed_at + duration

    async def _observe(self) -> None:
        """Read the record, and remember when its current state was first seen."""
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name)
        except errors.NotFoundError:
            lease = None
        if lease is None or _spec(lease) != _spec(self._lease):
            self._observed_at = _seconds()
            if _holder(lease) != self.holder:
                log.info("lease %s/%s: leader is %s", self._namespace, self._name, _holder(lease) or "none")
        self._lease = lease

    def _renewed_spec(self) -> JsonObject:
        spec, now = _spec(self._lease), _micro_time(self._now())
        renewed = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.lease_duration_seconds,
            "renewTime": now,
        }
        if self.holder != self._identity:
            transitions = 0 if self._lease is None else (spec.get("leaseTransitions") or 0) + 1
            renewed |= {"acquireTime": now, "leaseTransitions": transitions}
        return renewed

    async def _write(self, spec: JsonObject) -> None:
        sent_at = _seconds()
        if self._lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
            self._lease = await self._client.create(LEASES, self._namespace, body, type=JsonObject)
        else:
            body = {**self._lease, "spec": spec}
            self._lease = await self._client.replace(
                LEASES, self._namespace, self._name, body, type=JsonObject
            )
        self._observed_at = _seconds()
        self._renewed_at = sent_at

    async def _release(self) -> None:
        """Release the lease, so that another process need not wait for the lease duration."""
        self._is_elected = False
        now = _micro_time(self._now())
        spec = _spec(self._lease) | {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            async with asyncio.timeout(self._request_seconds()):
                await self._write(spec)
        except (errors.KubeError, TimeoutError) as error:
            log.warning("%s cannot release its lease: %s", self._identity, error)
        self._renewed_at = -math.inf


def _spec(lease: JsonObject | None) -> JsonObject:
    spec: JsonObject = (lease or {}).get("spec") or {}
    return spec


def _holder(lease: JsonObject | None) -> str:
    return str(_spec(lease).get("holderIdentity") or "")


def _micro_time(at: datetime) -> str:
    """Format a time for a Lease, always with six decimals, because Go accepts no other form."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds() -> float:
    return asyncio.get_running_loop().time()


def _exit_now() -> None:
    # Deliberately without flushing: another process is about to start the same work.
    os._exit(1)
