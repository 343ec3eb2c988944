"""A stage whose operator also keeps records of jobs."""

from __future__ import annotations

import msgspec

from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.history.record import Record, StoredRecord, Summary, manifest, summary_of_object
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from simkube import virtual_loop
from simkube.apiserver.request_log import WriteRecord
from simkube.apiserver.server import ApiServer
from simkube.operator import Operator
from tests.client.scene import Scene
from tests.operator.log_transport import Logs
from tests.support.definitions import PADDLE_JOB_CRD


class Kept(Scene):
    """An operator that also keeps records, as the process does."""

    def __init__(self, server: ApiServer, settings: HistorySettings) -> None:
        super().__init__(server)
        self.logs = Logs(server.transport("operator"))
        self.operator_client = Client(self.logs)
        self.settings: HistorySettings | None = settings
        self.reads_progress = True

    def operator(self) -> Operator:
        settings = OperatorSettings(namespace="default", history=self.settings)
        self.running = Operator(
            self.operator_client, settings, rng=self.rng, reads_progress=self.reads_progress
        )
        return self.running

    async def record(self, name: str = "demo") -> Record:
        return await self.cluster.record(name)

    async def recorded(self, result: str, name: str = "demo") -> Record:
        """Wait until the record of a job has a result, and return it as a user reads it."""

        async def is_there() -> bool:
            return any(each.result == result and each.name == name for each in await self.stored())

        await self.until(is_there, f"{name} is recorded as {result}")
        return await self.record(name)

    async def restarted(self, name: str = "demo") -> Record:
        """Wait until an attempt of a job is recorded, and return the record; the next one may run already."""

        async def is_there() -> bool:
            names_stored = [each.name for each in await self.stored()]
            return name in names_stored and bool((await self.record(name)).attempts)

        await self.until(is_there, f"an attempt of {name} is recorded")
        return await self.record(name)

    async def stored(self) -> list[Summary]:
        """Return the summaries on the ConfigMaps, not those of jobs."""
        listed = await self.client.list(
            CONFIG_MAPS, "default", label_selector=names.LABEL_HISTORY, type=StoredRecord
        )
        return [found for each in listed.items if (found := summary_of_object(each.metadata))]

    def record_writes(self) -> list[WriteRecord]:
        """Return the writes of records."""
        written = self.server.log.select(identity="operator", resource="configmaps")
        return [each for each in written if b"-history-" in each.body]

    async def forge(self, name: str, uid: str, **summary) -> None:
        """Create a ConfigMap as a tenant may who knows what a record looks like."""
        body = manifest(Record(Summary(name, "default", uid)))
        annotations = body["metadata"]["annotations"]
        annotations[names.ANNOTATION_SUMMARY] = msgspec.json.encode(
            {"name": name, "namespace": "default", "uid": uid, **summary}
        ).decode()
        await self.client.create(CONFIG_MAPS, "default", body)

    async def deleted(self, name: str = "demo") -> None:
        """Delete a job, and wait until nothing of it is left."""
        await self.client.delete(PADDLE_JOBS, "default", name)

        async def is_gone() -> bool:
            return name not in await self.names(PADDLE_JOBS) and not await self.names(PODS)

        await self.until(is_gone, f"{name} is gone")


def play(act, settings: HistorySettings | None = None) -> None:
    async def main() -> None:
        server = ApiServer(garbage_delay_seconds=(0.0, 0.1))
        server.install(PADDLE_JOB_CRD)
        await Kept(server, settings or HistorySettings()).play(act)

    virtual_loop.run(main(), seed=1)
