"""Coming together: list the pods until all run, join the roll call, look again when somebody was replaced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from paddlejob.recipe import errors, peers
from paddlejob.recipe.lister import ListingError, PodLister
from paddlejob.recipe.peers import Finished, Hopeless, Identity, Roster, Waiting
from paddlejob.recipe.rollcall import Hello, Serve
from paddlejob.recipe.rollcall_net import HubServer, NotTogetherError, Session
from paddlejob.recipe.settings import Settings

Say = Callable[[str], None]


class Pace(msgspec.Struct, frozen=True):
    """How long to wait, and how often to look."""

    deadline_seconds: float = 600.0
    look_every_seconds: float = 2.0


class Assembly:
    """One pod's way into the company of the others."""

    def __init__(self, lister: PodLister, settings: Settings, me: Identity, pace: Pace, say: Say) -> None:
        self._lister = lister
        self._settings = settings
        self._me = me
        self._pace = pace
        self._say = say
        self._said = ""
        self._state = "the API server has not answered yet"

    @asynccontextmanager
    async def gathered(
        self, before_over: Callable[[Roster], None]
    ) -> AsyncIterator[tuple[Roster, Session] | Finished]:
        """Yield when everybody is here, with the session to the hub, which is kept until the end.

        Raises PeersMissingError after the deadline, SettingsError when waiting cannot help.
        """
        try:
            async with asyncio.timeout(self._pace.deadline_seconds):
                joined = await self._gather(before_over)
        except TimeoutError as error:
            waited = f"{self._pace.deadline_seconds:g} seconds"
            raise errors.PeersMissingError(f"not all pods came within {waited}: {self._state}") from error
        if isinstance(joined, Finished):
            yield joined
            return
        roster, session, hub = joined
        try:
            yield roster, session
        finally:
            await session.close()
            if hub is not None:
                await hub.close()

    async def _gather(
        self, before_over: Callable[[Roster], None]
    ) -> tuple[Roster, Session, HubServer | None] | Finished:
        expected = await self._expected()
        while True:
            roster = await self._roster(expected)
            if isinstance(roster, Finished):
                return roster
            try:
                return await self._join(roster, expected, before_over)
            except NotTogetherError as error:
                self._note(str(error))
            await self._pause()

    async def _expected(self) -> int:
        while True:
            try:
                shape = await self._lister.job_shape(self._settings.namespace, self._settings.job_name)
            except ListingError as error:
                self._note(f"asking again: {error}")
                await self._pause()
            else:
                return peers.expected_trainers(shape, self._settings.gradient_num)

    async def _roster(self, expected: int) -> Roster | Finished:
        while True:
            verdict = await self._look(expected)
            if isinstance(verdict, Roster | Finished):
                return verdict
            if isinstance(verdict, Hopeless):
                raise errors.SettingsError(verdict.reason)
            if isinstance(verdict, Waiting):
                missing = "; ".join(verdict.missing)
                self._note(f"{verdict.running} of {expected} pods are running; missing: {missing}")
            await self._pause()

    async def _look(self, expected: int) -> peers.Verdict | None:
        try:
            pods = await self._lister.list_pods(
                self._settings.namespace, f"job-name={self._settings.job_name}"
            )
        except ListingError as error:
            self._note(f"asking again: {error}")
            return None
        return peers.call_roll(pods, expected, self._me)

    async def _join(
        self, roster: Roster, expected: int, before_over: Callable[[Roster], None]
    ) -> tuple[Roster, Session, HubServer | None]:
        port = self._settings.roll_call_port
        hub = None
        session = None
        try:
            if roster.me == 0:
                hub = HubServer(roster.addresses, lambda: before_over(roster))
                await hub.open(roster.addresses[0], port)
            hello = Hello(roster.me, roster.addresses)
            session = await Session.join(roster.addresses[0], port, hello, 2 * self._pace.look_every_seconds)
            await self._all_here(session, roster, expected, hub)
        except BaseException:
            if session is not None:
                await session.close()
            if hub is not None:
                await hub.close()
            raise
        return roster, session, hub

    async def _all_here(self, session: Session, roster: Roster, expected: int, hub: HubServer | None) -> None:
        """Wait for the hub's word; meanwhile a pod may be replaced, and then the roll is called anew."""
        while True:
            try:
                async with asyncio.timeout(2 * self._pace.look_every_seconds):
                    return await session.until(Serve)
            except TimeoutError:
                here = f"; not here yet: {', '.join(hub.absent)}" if hub is not None else ""
                self._note(f"all {expected} pods are running, waiting for their roll call{here}")
            if await self._look(expected) not in (roster, None):
                raise NotTogetherError("the pods of the Job have changed")

    async def _pause(self) -> None:
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads the pods' requests, guards nothing
        await asyncio.sleep(self._pace.look_every_seconds * jitter)

    def _note(self, state: str) -> None:
        """Tell the person what has changed, once."""
        self._state = state
        if state != self._said:
            self._said = state
            self._say(state)
