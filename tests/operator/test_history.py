"""Records of jobs, kept by an operator on an in-memory API server, that outlive the jobs."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import yaml

from paddlejob.api import names
from paddlejob.client.errors import NoSuchJobError
from paddlejob.core.recording.hangs import Hang
from paddlejob.history import compose
from paddlejob.history.page import render
from paddlejob.history.record import (
    MAX_BYTES,
    Record,
    StoredRecord,
    Summary,
    manifest,
    object_key,
    summary_of_object,
)
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from paddlejob.kube.transport import Response
from paddlejob.operator.history import CATCH_UP, LOG_SECONDS, LOGS_AT_ONCE
from paddlejob.operator.pod_log import REFUSALS, REFUSED_SECONDS
from paddlejob.operator.resources import PADDLE_JOBS
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.apiserver.fake_log import WriteRecord
from paddlejob.testing.build import job
from paddlejob.testing.kubelet.outcomes import Exit
from paddlejob.testing.operator import Operator
from tests.client.scene import CRD, Scene
from tests.operator.test_progress import Logs, Refused


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
        server.install(yaml.safe_load(CRD.read_text()))
        await Kept(server, settings or HistorySettings()).play(act)

    virtual_loop.run(main(), seed=1)


def test_a_failed_job_can_be_looked_into_when_job_and_pods_are_gone():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-1", 1, message="ValueError: no data")
        await stage.submit(job().worker(2))
        await stage.phase("Running")
        stage.write(
            "demo-worker-1", "loading data", "Traceback (most recent call last):", "ValueError: no data"
        )
        stage.let_go("demo-worker-1")
        await stage.recorded("Failed")
        await stage.deleted()

        record = await stage.record()
        assert record.summary.message == "worker-1 exited with code 1: ValueError: no data"
        assert record.summary.ended is not None
        (attempt,) = record.attempts
        assert attempt.failure is not None
        assert attempt.failure.pod == "demo-worker-1"
        first = attempt.ranks[0]
        assert (first.rank, first.exit_code, first.from_log) == ("worker-1", 1, True)
        assert first.text.splitlines() == [
            "loading data",
            "Traceback (most recent call last):",
            "ValueError: no data",
        ]
        assert [each.phase for each in record.timeline][-2:] == ["Running", "Failed"]
        assert [each.name for each in await stage.cluster.history()] == ["demo"]

    play(act)


def test_what_ranks_were_doing_when_their_job_hung_is_kept():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(2).spec(hangPolicy="Restart"))
        await stage.phase("Running")
        stage.write("demo-worker-0", "step 9")
        [running] = stage.running.controller.state.jobs
        stacks = (("demo-worker-1 (rank 1)", "in lock"), ("demo-worker-0 (rank 0)", "in wait"))
        hang = Hang(0, 9, 600, ("demo-worker-1 (rank 1) on a",), "no step for 10m (step 9)", stacks=stacks)
        stage.running.controller.state.notice(running.metadata.key, Hang, hang)
        (attempt,) = (await stage.recorded("Restarting")).attempts
        assert (attempt.reason, [each.rank for each in attempt.ranks]) == ("Hung", ["worker-1", "worker-0"])
        assert attempt.ranks[0].text == "stack of demo-worker-1 (rank 1):\nin lock"
        assert attempt.ranks[1].text == "step 9\n\nstack of demo-worker-0 (rank 0):\nin wait"
        page = render(await stage.record())
        assert "worker-1 running on " in page
        assert "exited with code" not in page

    play(act)


def test_every_restart_is_recorded_with_what_changed():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 137)
        await stage.submit(job().worker(2, image="paddle:1"))
        await stage.phase("Running")
        template = job().worker(2, image="paddle:2").manifest["spec"]["worker"]["template"]
        await stage.edit(worker={"template": template})
        stage.write("demo-worker-0", "out of memory")
        stage.let_go("demo-worker-0")
        await stage.recorded("Restarting")
        stage.hold("demo-worker-0", 1)
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        first, second = record.attempts
        assert (first.attempt, first.result, first.ranks[0].text) == (0, "Restarting", "out of memory")
        assert first.ranks[0].exit_code == 137
        assert not first.changes
        assert (second.attempt, second.result) == (1, "Failed")
        changed = {each.name: (each.before, each.after) for each in second.changes}
        assert changed["worker.containers.paddle.image"] == ("paddle:1", "paddle:2")

    play(act)


def test_the_curve_follows_the_progress_that_the_log_tells():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 0)
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        for step in (10, 20, 30):
            stage.write("demo-worker-0", f"epoch 1 step {step}/62 loss {1 / step:.3f}")
            await asyncio.sleep(40)
        stage.write("demo-worker-0", "epoch 1 step 62/62 loss 0.001")
        stage.let_go("demo-worker-0")
        await stage.recorded("Completed")
        await asyncio.sleep(120)
        record = await stage.record()
        assert [(each.step, each.loss) for each in record.curve] == [
            (10, "0.1"),
            (20, "0.05"),
            (30, "0.033"),
            (62, "0.001"),
        ]

    play(act)


def test_the_record_of_a_job_that_has_ended_is_not_written_again():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 0)
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Running")
        stage.write("demo-worker-0", "epoch 1 step 62/62 loss 0.001")
        await asyncio.sleep(40)
        stage.let_go("demo-worker-0")
        await stage.recorded("Completed")
        await asyncio.sleep(120)
        written = stage.record_writes()
        assert 1 <= len(written) <= 2
        await asyncio.sleep(3600)
        assert stage.record_writes() == written

    play(act)


def test_a_job_that_is_deleted_while_it_runs_is_recorded_as_deleted():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await stage.deleted()
        record = await stage.recorded("Deleted")
        assert record.summary.message.startswith("deleted while it was ")
        assert record.attempts[-1].result == "Deleted"

    play(act)


def test_a_job_that_goes_after_its_pods_is_recorded_with_what_it_was_doing():
    async def act(stage: Kept) -> None:
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        await stage.client.delete(PADDLE_JOBS, "default", "demo", propagation="Foreground")
        record = await stage.recorded("Deleted")
        assert record.summary.message == "deleted while it was Running"
        assert "Terminating" in {each.phase for each in record.timeline}

    play(act)


def test_a_job_that_is_deleted_while_no_operator_runs_is_recorded_by_the_next():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 137)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        await stage.recorded("Restarting")
        await stage.stop_operator()
        await stage.deleted()
        stage.start_operator()
        record = await stage.recorded("Deleted")
        assert [(each.attempt, each.result) for each in record.attempts] == [
            (0, "Restarting"),
            (1, "Deleted"),
        ]
        assert record.summary.failure is not None

    play(act)


def test_an_end_that_no_record_was_written_of_is_made_up_by_the_next_operator():
    async def act(stage: Kept) -> None:
        stage.settings = None
        await stage.stop_operator()
        stage.start_operator()
        stage.fates.set("demo-worker-0", Exit(1, message="boom"))
        stage.fates.set("old-worker-0", Exit(1, message="boom"))
        await stage.submit(job("old").worker(1))
        await stage.phase("Failed", "old")
        await stage.stop_operator()
        await asyncio.sleep(CATCH_UP.total_seconds())
        stage.start_operator()
        await stage.submit(job().worker(1))
        await stage.phase("Failed")
        await stage.stop_operator()
        stage.settings = HistorySettings()
        stage.start_operator()
        record = await stage.recorded("Failed")
        assert record.attempts[0].failure is not None
        assert record.attempts[0].failure.message == "worker-0 exited with code 1: boom"
        assert [each.name for each in await stage.stored()] == ["demo"]

    play(act)


@pytest.mark.parametrize("code", [403, 500])
def test_without_logs_the_termination_message_stands_in(code):
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 1, message="ValueError: no data")
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", "never seen")
        stage.logs.code = code
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        assert (record.attempts[0].ranks[0].text, record.attempts[0].ranks[0].from_log) == (
            "ValueError: no data",
            False,
        )

    play(act)


def test_logs_that_were_forbidden_are_read_again_after_some_minutes():
    async def act(stage: Kept) -> None:
        await stage.stop_operator()
        stage.reads_progress = False
        stage.start_operator()
        names = [f"job-{number}" for number in range(REFUSALS + 2)]
        for name in names:
            stage.hold(f"{name}-worker-0", 1)
            await stage.submit(job(name).worker(1))
            await stage.phase("Running", name)
            stage.write(f"{name}-worker-0", "the end")
        stage.logs.code = 403
        *early, last = names
        for name in early:
            stage.let_go(f"{name}-worker-0")
            assert not (await stage.recorded("Failed", name)).attempts[0].ranks[0].from_log
        assert stage.logs.asked == REFUSALS
        stage.logs.code = 200
        await asyncio.sleep(REFUSED_SECONDS)
        stage.let_go(f"{last}-worker-0")
        assert (await stage.recorded("Failed", last)).attempts[0].ranks[0].text == "the end"

    play(act)


def test_the_last_line_is_recorded_however_long_the_lines_are():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 1)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.write("demo-worker-0", *("=" * 16000 for _ in range(200)), "ValueError: no data")
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        assert record.attempts[0].ranks[0].text.endswith("=\nValueError: no data")

    play(act)


def test_a_log_that_does_not_come_holds_nothing_up():
    class Silent(Refused):
        async def chunks(self):
            await asyncio.sleep(3600)
            yield b""

    async def act(stage: Kept) -> None:
        stage.fates.set("demo-worker-0", Exit(137, 1))
        transport = stage.logs._transport

        def stream(path: str, **options):
            return nullcontext(Silent(200)) if path.endswith("/log") else transport.stream(path, **options)

        stage.logs.stream = stream
        await stage.submit(job().worker(1))
        record = await stage.recorded("Restarting")
        assert record.attempts[0].ranks[0].exit_code == 137
        status = await stage.phase("Running")
        assert status["attempt"] == 1

    play(act)


def test_many_jobs_that_fail_at_once_cost_few_log_reads_and_all_are_recorded():
    async def act(stage: Kept) -> None:
        names = [f"job-{number}" for number in range(40)]
        await stage.stop_operator()
        stage.reads_progress = False
        stage.start_operator()
        for name in names:
            stage.hold(f"{name}-worker-0", 1, message=f"boom of {name}")
            await stage.submit(job(name).worker(1))
        for name in names:
            await stage.phase("Running", name)
        for name in names:
            stage.let_go(f"{name}-worker-0")
        for name in names:
            await stage.phase("Failed", name)
        assert LOGS_AT_ONCE <= stage.logs.asked < LOGS_AT_ONCE + 10
        for name in names:
            assert (await stage.recorded("Failed", name)).summary.message.endswith(f"boom of {name}")

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


def test_of_many_jobs_that_end_at_once_only_those_are_recorded_whose_records_stay():
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


def test_a_record_that_cannot_be_read_is_written_again():
    async def act(stage: Kept) -> None:
        stage.hold("demo-worker-0", 137)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        await stage.recorded("Restarting")
        name = object_key((await stage.stored())[0]).name
        await stage.client.patch(CONFIG_MAPS, "default", name, {"binaryData": {"record.json.gz": "AAAA"}})
        stage.hold("demo-worker-0", 1)
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        record = await stage.recorded("Failed")
        assert [each.attempt for each in record.attempts] == [1]

    play(act)


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


def test_a_mistake_in_a_record_does_not_hold_up_the_job(monkeypatch):
    def broken(*_) -> None:
        raise ValueError("a bug")

    async def act(stage: Kept) -> None:
        monkeypatch.setattr(compose, "rank_end", broken)
        stage.fates.set("demo-worker-0", Exit(137, 1), Exit(0, 1))
        await stage.submit(job().worker(1))
        await stage.phase("Completed")
        record = await stage.recorded("Completed")
        assert record.summary.restarts == 1

    play(act)


def test_a_record_belongs_to_nobody_and_is_small():
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


def test_two_jobs_of_one_name_have_a_record_each_and_the_newest_is_meant():
    async def act(stage: Kept) -> None:
        for code in (1, 2):
            stage.fates.set("demo-worker-0", Exit(code, 1))
            await stage.submit(job().worker(1))
            await stage.phase("Failed")
            await stage.recorded("Failed")
            await stage.deleted()
            await asyncio.sleep(10)
        newest, oldest = await stage.cluster.history(name="demo")
        assert (await stage.record()).summary == newest
        assert "code 2" in newest.message
        assert (await stage.record(object_key(oldest).name)).summary == oldest

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


def test_a_job_that_is_deleted_while_its_logs_are_read_is_recorded_with_its_end():
    class Slow(Refused):
        async def chunks(self):
            await asyncio.sleep(LOG_SECONDS - 0.5)
            yield b"the end\n"

    async def act(stage: Kept) -> None:
        transport = stage.logs._transport

        def stream(path: str, **options):
            return nullcontext(Slow(200)) if path.endswith("/log") else transport.stream(path, **options)

        stage.logs.stream = stream
        stage.hold("demo-worker-0", 1)
        await stage.submit(job().worker(1))
        await stage.phase("Running")
        stage.let_go("demo-worker-0")
        await stage.phase("Failed")
        await stage.client.delete(PADDLE_JOBS, "default", "demo")
        keeper = stage.running.controller.history
        while list(stage.running.controller.state.jobs):
            await asyncio.sleep(0.01)
        keeper._look()
        record = await stage.recorded("Failed")
        assert [each.result for each in record.attempts] == ["Failed"]
        assert record.attempts[0].ranks[0].text == "the end"

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
