"""The ConfigMaps that records of jobs are kept in: how many, how long, and those that others wrote."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.client.errors import NoSuchJobError
from paddlejob.history.record import MAX_BYTES, Record, Summary, manifest, object_key
from paddlejob.kube import errors
from paddlejob.kube.resource import CONFIG_MAPS
from paddlejob.kube.transport import Response
from paddlejob.operator.record_store import MAX_LOADED, RecordStore
from paddlejob.operator.settings import HistorySettings
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from tests.operator.history_stage import Kept, play
from tests.operator.log_transport import Logs


def test_a_record_has_no_owner_and_is_small():
    async def act(stage: Kept) -> None:
        stage.fates.set("demo-worker-0", Exit(1, 1))
        await stage.submit(job().worker(1))
        await stage.recorded("Failed")
        (stored,) = (
            await stage.client.list(CONFIG_MAPS, "default", label_selector=names.LABEL_HISTORY)
        ).items
        assert "ownerReferences" not in stored["metadata"]
        assert stored["metadata"]["labels"][names.LABEL_JOB] == "demo"
        assert len(stored["binaryData"]["record.json.gz"]) < MAX_BYTES // 100

    play(act)


def test_the_oldest_records_of_a_namespace_go_first_and_do_not_come_back():
    async def act(stage: Kept) -> None:
        for number in range(5):
            stage.fates.set(f"job-{number}-worker-0", Exit(1, 1))
            await stage.submit(job(f"job-{number}").worker(1))
            await stage.phase("Failed", f"job-{number}")
            await asyncio.sleep(60)
        await asyncio.sleep(120)
        creates = list(stage.server.log.select(verb="create", resource="configmaps"))
        assert sorted(each.name for each in await stage.stored()) == ["job-3", "job-4"]
        await asyncio.sleep(600)
        assert creates == list(stage.server.log.select(verb="create", resource="configmaps"))

    play(act, HistorySettings(per_namespace=2))


def test_only_records_within_the_limit_are_written_for_many_jobs_that_end_together():
    async def act(stage: Kept) -> None:
        names = [f"job-{number}" for number in range(40)]
        for name in names:
            stage.fates.set(f"{name}-worker-0", Exit(1, 1))
            await stage.submit(job(name).worker(1))
        for name in names:
            await stage.phase("Failed", name)
        await asyncio.sleep(60)
        assert len(await stage.stored()) == 3
        written = len(stage.record_writes())
        assert written < 20
        for name in names:
            await stage.client.delete(PADDLE_JOBS, "default", name)
        await asyncio.sleep(600)
        assert len(stage.record_writes()) == written

    play(act, HistorySettings(per_namespace=3))


def test_a_record_expires():
    async def act(stage: Kept) -> None:
        stage.fates.set("demo-worker-0", Exit(1, 1))
        await stage.submit(job().worker(1))
        await stage.recorded("Failed")
        await stage.deleted()
        await asyncio.sleep(timedelta(days=2).total_seconds())
        assert await stage.stored() == []
        with pytest.raises(NoSuchJobError, match="no record of one"):
            await stage.record()

    play(act, HistorySettings(days=1))


class Undeletable(Logs):
    """A transport to a server that does not delete some records."""

    kept = ("job-0-", "job-1-")

    async def request(self, method: str, path: str, **options):
        if method == "DELETE" and any(f"/{name}history" in path for name in self.kept):
            body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
            return Response(403, msgspec.json.encode(body), {})
        return await self._transport.request(method, path, **options)


def test_a_record_that_cannot_be_deleted_holds_up_no_other(caplog):
    async def act(stage: Kept) -> None:
        stage.operator_client._transport = Undeletable(stage.logs)
        for number in range(6):
            stage.fates.set(f"job-{number}-worker-0", Exit(1, 1))
            await stage.submit(job(f"job-{number}").worker(1))
            await stage.phase("Failed", f"job-{number}")
            await asyncio.sleep(60)
        await asyncio.sleep(300)
        assert sorted(each.name for each in await stage.stored()) == ["job-0", "job-1", "job-4", "job-5"]

    play(act, HistorySettings(per_namespace=2))
    assert 2 <= caplog.text.count("cannot delete the record") <= 4


@pytest.mark.parametrize("code", [403, 500])
def test_a_record_that_is_refused_is_given_up_and_one_that_fails_is_not(code):
    class Refuses(Logs):
        code = 0

        async def request(self, method: str, path: str, **options):
            if (
                self.code
                and method == "POST"
                and path.endswith("/configmaps")
                and b"history" in options["body"]
            ):
                body = {"kind": "Status", "code": self.code, "reason": "Forbidden", "message": "no"}
                return Response(self.code, msgspec.json.encode(body), {})
            return await self._transport.request(method, path, **options)

    async def act(stage: Kept) -> None:
        stage.logs.code = 200
        stage.operator_client._transport = refuses = Refuses(stage.logs)
        stage.fates.set("demo-worker-0", Exit(1, 1))
        refuses.code = code
        await stage.submit(job().worker(1))
        await stage.phase("Failed")
        await asyncio.sleep(300)
        refuses.code = 0
        await asyncio.sleep(60)
        assert [each.name for each in await stage.stored()] == ([] if code == 403 else ["demo"])

    play(act)


class Loses(Logs):
    """A transport that loses the response to every first write of a record."""

    def __init__(self, transport) -> None:
        super().__init__(transport)
        self.lost: set[tuple[str, bytes]] = set()

    async def request(self, method: str, path: str, **options):
        response = await self._transport.request(method, path, **options)
        write = (method, options.get("body") or b"")
        if method in {"POST", "PUT"} and b"-history-" in write[1] and write not in self.lost:
            self.lost.add(write)
            raise errors.TransportError("the connection broke")
        return response


def test_a_lost_response_makes_nothing_appear_twice():
    async def act(stage: Kept) -> None:
        stage.operator_client._transport = loses = Loses(stage.logs)
        stage.fates.set("demo-worker-0", Exit(137, 20), Exit(1, 20))
        await stage.submit(job().worker(1))
        await stage.recorded("Failed")
        await asyncio.sleep(120)
        assert loses.lost
        timeline = (await stage.record()).timeline
        assert len(timeline) == len(set(timeline)) > 3

    play(act)


def test_a_record_that_cannot_be_read_is_written_again():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 137)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        stage.hold("demo-worker-0", 1)
        await stage.restarted()
        name = object_key((await stage.stored())[0]).name
        await stage.client.patch(CONFIG_MAPS, "default", name, {"binaryData": {"record.json.gz": "AAAA"}})
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        assert [each.attempt for each in record.attempts] == [1]

    play(act)


def test_an_old_record_of_another_version_does_no_harm():
    async def act(stage: Kept) -> None:
        long_ago = datetime(2020, 1, 1, tzinfo=UTC)
        body = manifest(Record(Summary("gone", "default", "f" * 8, result="Running", created=long_ago)))
        body["binaryData"] = {}
        await stage.client.create(CONFIG_MAPS, "default", body)
        await stage.stop_operator()
        stage.start_operator()
        record = await stage.recorded("Deleted", "gone")
        assert record.summary.message == "deleted while it was Running"

    play(act)


def test_a_configmap_of_somebody_else_in_the_place_of_a_record_is_left_alone():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 1)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        uid = (await stage.job())["metadata"]["uid"]
        name = object_key(Summary("demo", "default", uid)).name
        mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
        await stage.client.create(CONFIG_MAPS, "default", mine)
        stage.let_go("demo-worker-0")
        await stage.phase("Failed")
        await asyncio.sleep(60)
        assert (await stage.client.get(CONFIG_MAPS, "default", name))["data"] == {"a": "b"}

    play(act)


def test_a_record_that_was_replaced_by_another_configmap_is_given_up(caplog):
    async def act(stage: Kept) -> None:
        stage.fates.set("demo-worker-0", Exit(137, 1.0), Exit(0, 3600.0))
        await stage.submit(job().worker(1))
        await stage.phase("Restarting")
        uid = (await stage.job())["metadata"]["uid"]
        name = object_key(Summary("demo", "default", uid)).name

        async def is_recorded() -> bool:
            return any(each["metadata"]["name"] == name for each in stage.server.objects(CONFIG_MAPS))

        await stage.until(is_recorded, "recorded")
        stage.server.delete(CONFIG_MAPS, "default", name)
        mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await stage.client.create(CONFIG_MAPS, "default", mine)
        await stage.client.delete(PADDLE_JOBS, "default", "demo")
        await asyncio.sleep(600)
        assert caplog.text.count("exists and is not its record") == 1

    play(act)


@pytest.mark.parametrize(
    "summary",
    [
        {"deep": msgspec.Raw(b"[" * 5000 + b"]" * 5000)},
        {"result": "Completed", "ended": "2024-01-01T00:00:00"},
        {"result": "Completed", "created": "2024-01-01T00:00:00"},
        {"result": "Running", "started": "2024-01-01T00:00:00"},
        {"result": "Running", "failure": {"time": "2024-01-01T00:00:00"}},
        {"result": "Bogus", "attempt": -1},
    ],
    ids=["deep", "ended", "created", "started", "failure", "phase"],
)
def test_a_forged_record_does_not_end_the_history_of_others(summary, caplog):
    async def act(stage: Kept) -> None:
        await stage.stop_operator()
        await stage.forge("forged", "f" * 8, **summary)
        stage.start_operator()
        for name in ("demo", "other"):
            stage.fates.set(f"{name}-worker-0", Exit(1, 1))
            await stage.submit(job(name).worker(1))
        for name in ("demo", "other"):
            assert (await stage.recorded("Failed", name)).attempts
            assert name in {each.name for each in await stage.cluster.history()}

    play(act)
    assert "bug" not in caplog.text


def test_a_forged_record_does_not_stand_for_that_of_a_job():
    async def act(stage: Kept) -> None:
        await stage.stop_operator()
        stage.settings = None
        stage.start_operator()
        stage.fates.set("demo-worker-0", Exit(1, 1))
        await stage.submit(job().worker(1))
        await stage.phase("Failed")
        await stage.stop_operator()
        await stage.forge("zzz", (await stage.job())["metadata"]["uid"], result="Completed", attempt=99)
        stage.settings = HistorySettings()
        stage.start_operator()
        assert (await stage.recorded("Failed")).attempts[0].attempt == 0

    play(act)


@pytest.mark.parametrize("per_namespace", [1, 2])
def test_far_too_many_records_of_a_namespace_are_not_loaded_and_all_are_deleted_in_the_end(per_namespace):
    async def act(stage: Kept) -> None:
        for number in range(30):
            await stage.forge(f"forged-{number}", f"uid-{number}", result="Failed")
        elsewhere = manifest(Record(Summary("other", "elsewhere", "uid")))
        stage.server.create(CONFIG_MAPS, elsewhere)
        settings = HistorySettings(per_namespace=per_namespace)
        left = []
        while (len(await stage.stored())) > per_namespace:
            store = RecordStore(stage.client, settings, namespace="", now=lambda: datetime.now(UTC))
            await store.load()
            assert len(store.summaries) <= MAX_LOADED * per_namespace + 1
            assert object_key(Summary("other", "elsewhere", "uid")) in store.summaries
            left.append(len(await stage.stored()))
            for summary in store.surplus(()):
                await store.remove(object_key(summary))
        assert left == {1: [30, 21, 12, 3], 2: [30, 12]}[per_namespace]

    play(act)
