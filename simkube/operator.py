"""An operator in this process, on any API server, for tests and simulations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial

from paddlejob.core.recorder import Recorder
from paddlejob.kube.client import Client
from paddlejob.kube.events import EventLimits, EventRecorder
from paddlejob.kube.lease import LeaderElector
from paddlejob.operator import manager
from paddlejob.operator.controller import Controller
from paddlejob.operator.manager import ProgressTracking
from paddlejob.operator.reports.attendance import Supervisors
from paddlejob.operator.reports.pod_log import LogReader
from paddlejob.operator.settings import OperatorSettings
from simkube import virtual_loop


class Operator:
    """An operator without ports and signals; it has a lease only if an elector is given."""

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
        recorder: Recorder | None = None,
        namespace: str = "default",
    ) -> None:
        def server_now() -> datetime:
            return client.server_now() or now()

        rng = rng or random.Random(0)
        self.client = client.with_fence(lambda: elector.is_leader) if elector else client
        """Writes only as the leader, if there is an election."""
        self._recorder = EventRecorder(client, "operator", rng=rng, now=server_now, limits=event_limits)
        self.controller = Controller(
            self.client, settings or OperatorSettings(), rng=rng, now=now, events=self._recorder
        )
        settings = settings or OperatorSettings()
        self.progress = ProgressTracking(
            self.client, self.controller, settings, now=server_now, namespace=namespace
        )
        self.supervisors: Supervisors | None = None
        """Answers supervisors without a port, if a recorder is given."""
        if recorder is not None:
            state = self.controller.state
            state.recorder = recorder
            self.supervisors = Supervisors(state, LogReader(self.client), now=server_now)
            state.listeners.append(self.supervisors.wake)
        learns = reads_progress or bool(settings.reports.url)
        self._lead = partial(manager.lead, self.controller, elector, self.progress if learns else None)

    async def run(self) -> None:
        """Reconcile jobs until cancelled; then finish the current reconciles and write the events."""
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
