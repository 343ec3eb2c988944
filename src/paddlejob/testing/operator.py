"""An operator in this process, on any API server: how every test and simulation starts one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial

from paddlejob.kube.client import Client
from paddlejob.kube.events import EventLimits, EventRecorder
from paddlejob.kube.lease import LeaderElector
from paddlejob.operator import manager
from paddlejob.operator.controller import Controller
from paddlejob.operator.manager import ProgressTracking
from paddlejob.operator.settings import OperatorSettings
from paddlejob.testing import virtual_loop


class Operator:
    """All of an operator but its process: no ports and no signals; a lease only if an elector is given."""

    def __init__(
        self,
        client: Client,
        settings: OperatorSettings | None = None,
        *,
        rng: random.Random | None = None,
        now: Callable[[], datetime] = virtual_loop.now,
        event_limits: EventLimits | None = None,
        elector: LeaderElector | None = None,
        reads_progress: bool = False,
        namespace: str = "default",
    ) -> None:
        def server_now() -> datetime:
            return client.server_now() or now()

        rng = rng or random.Random(0)
        self.client = client.fenced(lambda: elector.is_leader) if elector else client
        """Writes only as the leader, where there is an election."""
        self._recorder = EventRecorder(client, "operator", rng=rng, now=server_now, limits=event_limits)
        self.controller = Controller(
            self.client, settings or OperatorSettings(), rng=rng, now=now, recorder=self._recorder
        )
        settings = settings or OperatorSettings()
        self.progress = ProgressTracking(
            self.client, self.controller, settings, now=server_now, namespace=namespace
        )
        learns = reads_progress or bool(settings.reports.url)
        self._lead = partial(manager.lead, self.controller, elector, self.progress if learns else None)

    async def run(self) -> None:
        """Reconcile jobs until cancelled; reconciles under way finish first, and events are written."""
        async with self._recorder:
            await self._lead()

    async def run_for(self, seconds: float) -> None:
        """Reconcile jobs for a while."""
        running = asyncio.create_task(self.run())
        await asyncio.wait([running], timeout=seconds)
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            running.result()
