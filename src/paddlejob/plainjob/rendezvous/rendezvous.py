"""Join the other pods: list the pods until all run, then join. List them again if one was replaced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from paddlejob.plainjob import errors
from paddlejob.plainjob.rendezvous import peers
from paddlejob.plainjob.rendezvous.barrier import Join, StartServers
from paddlejob.plainjob.rendezvous.coordinator import CoordinatorClient, CoordinatorServer, RejoinError
from paddlejob.plainjob.rendezvous.peers import Finished, Peers, PodIdentity, Waiting
from paddlejob.plainjob.rendezvous.pod_lister import ListingError, PodLister
from paddlejob.plainjob.settings import JobSettings

Log = Callable[[str], None]


class Timing(msgspec.Struct, frozen=True):
    """The deadline for the other pods, and the interval of listing them."""

    deadline_seconds: float = 600.0
    poll_seconds: float = 2.0


class Rendezvous:
    """Finds the other pods of the Job and joins them."""

    def __init__(
        self, lister: PodLister, settings: JobSettings, me: PodIdentity, timing: Timing, log: Log
    ) -> None:
        self._lister = lister
        self._settings = settings
        self._me = me
        self._timing = timing
        self._log = log
        self._logged = ""
        self._state = "the API server has not answered yet"

    @asynccontextmanager
    async def join(
        self, before_all_done: Callable[[Peers], None]
    ) -> AsyncIterator[tuple[Peers, CoordinatorClient] | Finished]:
        """Yield the peers and the open connection to the coordinator after all pods have joined.

        Raises PeersMissingError after the deadline, SettingsError when waiting cannot help.
        """
        try:
            async with asyncio.timeout(self._timing.deadline_seconds):
                joined = await self._join(before_all_done)
        except TimeoutError as error:
            waited = f"{self._timing.deadline_seconds:g} seconds"
            raise errors.PeersMissingError(
                f"timed out after {waited} waiting for the other pods: {self._state}"
            ) from error
        if isinstance(joined, Finished):
            yield joined
            return
        found, client, server = joined
        try:
            yield found, client
        finally:
            await client.close()
            if server is not None:
                await server.close()

    async def _join(
        self, before_all_done: Callable[[Peers], None]
    ) -> tuple[Peers, CoordinatorClient, CoordinatorServer | None] | Finished:
        expected = await self._expected()
        while True:
            found = await self._all_running(expected)
            if isinstance(found, Finished):
                return found
            try:
                return await self._connect(found, expected, before_all_done)
            except RejoinError as error:
                self._report(str(error))
            await self._pause()

    async def _expected(self) -> int:
        while True:
            try:
                shape = await self._lister.job_shape(self._settings.namespace, self._settings.job_name)
            except ListingError as error:
                self._report(f"retrying: {error}")
                await self._pause()
            else:
                return peers.expected_trainers(shape, self._settings.gradient_num)

    async def _all_running(self, expected: int) -> Peers | Finished:
        while True:
            resolved = await self._resolve(expected)
            if isinstance(resolved, Peers | Finished):
                return resolved
            if isinstance(resolved, Waiting):
                missing = "; ".join(resolved.missing)
                self._report(f"{resolved.running} of {expected} pods are running; missing: {missing}")
            await self._pause()

    async def _resolve(self, expected: int) -> peers.Resolution | None:
        try:
            pods = await self._lister.list_pods(
                self._settings.namespace, f"job-name={self._settings.job_name}"
            )
        except ListingError as error:
            self._report(f"retrying: {error}")
            return None
        return peers.resolve_peers(pods, expected, self._me)

    async def _connect(
        self, found: Peers, expected: int, before_all_done: Callable[[Peers], None]
    ) -> tuple[Peers, CoordinatorClient, CoordinatorServer | None]:
        coordinator, port = found.addresses[0], self._settings.barrier_port
        server = None
        client = None
        try:
            if found.me == 0:
                server = CoordinatorServer(found.addresses, lambda: before_all_done(found))
                await server.open(coordinator, port)
            client = await CoordinatorClient.join(
                coordinator,
                port,
                Join(found.me, found.addresses),
                timeout_seconds=2 * self._timing.poll_seconds,
            )
            await self._all_joined(client, found, expected, server)
        except BaseException:
            if client is not None:
                await client.close()
            if server is not None:
                await server.close()
            raise
        return found, client, server

    async def _all_joined(
        self, client: CoordinatorClient, found: Peers, expected: int, server: CoordinatorServer | None
    ) -> None:
        """Wait until all have joined. Raises RejoinError if a pod was replaced in the meantime."""
        while True:
            try:
                async with asyncio.timeout(2 * self._timing.poll_seconds):
                    return await client.wait_for(StartServers)
            except TimeoutError:
                absent = f"; not joined yet: {', '.join(server.absent)}" if server is not None else ""
                self._report(f"all {expected} pods are running, waiting for them to join{absent}")
            if await self._resolve(expected) not in (found, None):
                raise RejoinError("the pods of the Job have changed")

    async def _pause(self) -> None:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads the pods' requests, not a secret
        await asyncio.sleep(self._timing.poll_seconds * jitter)

    def _report(self, state: str) -> None:
        """Log each change of state once."""
        self._state = state
        if state != self._logged:
            self._logged = state
            self._log(state)
