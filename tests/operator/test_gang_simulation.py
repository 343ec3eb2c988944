"""Gangs from submission to end: a real operator, a simulated cluster, hours in milliseconds."""

from __future__ import annotations

import asyncio

import pytest

from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_POD_GROUPS, VOLCANO_QUEUES
from paddlejob.kube import errors
from paddlejob.kube.errors import Status
from simkube.apiserver.rules.kinds import custom_resource
from simkube.build import job
from simkube.kubelet.outcomes import Exit, RunForever, crash
from tests.support.simulated import simulated
from tests.support.simulated_cluster import SimulatedCluster

CPU = {"resources": {"requests": {"cpu": "1"}}}
PLAIN = job().ps(2, **CPU).worker(2, **CPU)
DOCUMENTED = job().ps(2, **CPU).worker(2, pod={"schedulerName": "volcano"}, **CPU)


def serve_for_ever(pod, container, restarts):
    """Let servers serve and workers succeed, as in training."""
    return RunForever() if "-ps-" in pod["metadata"]["name"] else Exit(after_seconds=30)


class TestTheDocumentsFiles:
    @pytest.mark.parametrize("first", ["job", "group"])
    @pytest.mark.parametrize("scheduling", ["", "volcano", "auto", "native"])
    @simulated
    async def test_job_and_group_in_any_order(self, first, scheduling):
        cluster = SimulatedCluster(behaviour=serve_for_ever)
        async with cluster.running(scheduling):
            steps = [lambda: cluster.submit(DOCUMENTED), lambda: cluster.submit_group(minMember=4)]
            for step in steps if first == "job" else reversed(steps):
                step()
                await asyncio.sleep(3)
            made = cluster.group()["metadata"]["uid"]
            await cluster.until_phase("Completed")
            await asyncio.sleep(60)
            assert cluster.group()["metadata"]["uid"] == made
            assert "ownerReferences" not in cluster.group()["metadata"]
            assert cluster.group()["spec"] == {"minMember": 4}
        assert cluster.volcano.phases["default/demo"][:2] == ["Inqueue", "Running"]

    @simulated
    async def test_a_job_without_a_group_reports_it_and_starts_nothing(self):
        cluster = SimulatedCluster()
        async with cluster.running():
            cluster.submit(DOCUMENTED)
            await cluster.until_it_says("does not exist")
            await asyncio.sleep(120)
            assert cluster.pods() == []
            cluster.submit_group(minMember=4)
            await cluster.until_phase("Completed")


class TestQueues:
    @simulated
    async def test_a_job_reports_a_queue_error_until_it_is_fixed(self):
        cluster = SimulatedCluster(behaviour=serve_for_ever)
        cluster.volcano.capacity = {"cpu": "0"}
        cluster.server.register(custom_resource(VOLCANO_QUEUES, status=False))
        head = {"apiVersion": VOLCANO_QUEUES.api_version, "kind": VOLCANO_QUEUES.kind}
        closed = {**head, "metadata": {"name": "research"}, "status": {"state": "Closed"}}
        async with cluster.running("volcano"):
            cluster.submit(job().worker(2, **CPU).spec(schedulingPolicy={"queue": "research"}))
            await cluster.until_it_says("queue research does not exist; create it")
            cluster.server.create(VOLCANO_QUEUES, closed)
            await cluster.until_it_says("queue research is Closed; open it")
            opened = {"status": {"state": "Open"}, "spec": {"capability": {"cpu": "1"}}}
            cluster.server.patch(VOLCANO_QUEUES, "", "research", opened)
            await cluster.until_it_says("needs cpu 2, but the capability of queue research is 1")
            cluster.server.patch(VOLCANO_QUEUES, "", "research", {"spec": {"capability": {"cpu": "2"}}})
            await cluster.until(lambda: "capability" not in cluster.status()["message"])
            cluster.volcano.capacity = {"cpu": "2"}
            await cluster.until_phase("Completed")


class TestTheOperatorsGroup:
    @simulated
    async def test_it_lives_as_long_as_the_job(self):
        cluster = SimulatedCluster(behaviour=serve_for_ever)
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_phase("Running")
            assert cluster.group()["spec"] == {"minMember": 4, "minResources": {"cpu": "4"}}
            await cluster.until_phase("Completed")
            await cluster.until(lambda: cluster.group() is None)

    @simulated
    async def test_a_gang_that_does_not_fit_leaves_nothing_bound(self):
        cluster = SimulatedCluster()
        cluster.volcano.capacity = {"cpu": "3"}
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_it_says("NotEnoughResources")
            await asyncio.sleep(120)
            assert cluster.pods() == []
            cluster.volcano.capacity = {"cpu": "4"}
            await cluster.until_phase("Completed")

    @simulated
    async def test_pods_of_a_queued_gang_are_bound_together(self):
        cluster = SimulatedCluster(behaviour=serve_for_ever)
        of = job().worker(4, **CPU).spec(schedulingPolicy={"minResources": {"cpu": "1"}})
        cluster.volcano.capacity = {"cpu": "3"}
        async with cluster.running():
            cluster.submit(of)
            await cluster.until(lambda: len(cluster.pods()) == 4)
            await cluster.until_it_says("Inqueue: NotEnoughResources")
            assert cluster.bound() == []
            cluster.volcano.capacity = {"cpu": "4"}
            await cluster.until_phase("Running")

    @simulated
    async def test_two_gangs_that_fit_one_at_a_time_run_one_after_the_other(self):
        cluster = SimulatedCluster()
        cluster.volcano.capacity = {"cpu": "4"}
        async with cluster.running("volcano"):
            for name in ("demo", "other"):
                cluster.submit(job(name).ps(2, **CPU).worker(2, **CPU))
            await cluster.until(lambda: len(cluster.bound()) == 4)
            owners = {pod["metadata"]["labels"]["batch.paddlepaddle.org/job-name"] for pod in cluster.pods()}
            assert len(owners) == 1
            await cluster.until_phase("Completed", "demo")
            await cluster.until_phase("Completed", "other")

    @simulated
    async def test_it_follows_scaling(self):
        cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
        async with cluster.running("volcano"):
            cluster.submit(job().worker(2, **CPU))
            await cluster.until_phase("Running")
            cluster.edit(worker={"replicas": 4})
            await cluster.until(lambda: cluster.group()["spec"]["minMember"] == 4)
            await cluster.until_phase("Running")
            assert len(cluster.bound()) == 4
            assert cluster.group()["spec"]["minResources"] == {"cpu": "4"}
            assert cluster.group()["status"]["phase"] == "Running"

    @simulated
    async def test_suspension_frees_the_queue_and_resuming_queues_again(self):
        cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_phase("Running")
            cluster.edit(suspend=True)
            await cluster.until(lambda: cluster.group() is None and not cluster.pods())
            cluster.edit(suspend=False)
            await cluster.until_phase("Running")
            assert cluster.group()["status"]["phase"] == "Running"

    @simulated
    async def test_a_restart_keeps_the_group(self):
        def crash_once(pod, container, restarts):
            first = pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] == "0"
            return crash(137, after_seconds=20) if first else Exit(after_seconds=20)

        cluster = SimulatedCluster(behaviour=crash_once)
        async with cluster.running("volcano"):
            cluster.submit(job().worker(2, **CPU))
            await cluster.until_phase("Running")
            made = cluster.group()["metadata"]["uid"]
            await cluster.until_phase("Restarting")
            await cluster.until_phase("Running")
            assert cluster.group()["metadata"]["uid"] == made
            await cluster.until_phase("Completed")

    @simulated
    async def test_a_deleted_job_takes_it_along(self):
        cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_phase("Running")
            cluster.server.delete(PADDLE_JOBS, "default", "demo", identity="user")
            await cluster.until(lambda: cluster.group() is None and not cluster.pods())

    @simulated
    async def test_a_quiet_gang_is_left_alone(self):
        cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_phase("Running")
            await asyncio.sleep(60)
            version = cluster.server.version
            await asyncio.sleep(120)
            assert cluster.server.version == version


class TestAnElasticJob:
    @simulated
    async def test_it_starts_with_what_fits_and_grows(self):
        cluster = SimulatedCluster(behaviour=lambda *_: RunForever())
        cluster.volcano.capacity = {"cpu": "2"}
        of = job().worker(3, **CPU).spec(elastic=1)
        async with cluster.running("volcano"):
            cluster.submit(of)
            await cluster.until(lambda: cluster.group() is not None)
            assert cluster.group()["spec"]["minMember"] == 1
            await cluster.until_phase("Running")
            assert cluster.status()["workers"] == 2
            cluster.volcano.capacity = {"cpu": "3"}
            await cluster.until(lambda: cluster.status()["worker"]["ready"] == "3/3")


class TestVolcanoComesAndGoes:
    @pytest.mark.parametrize("of", [DOCUMENTED, PLAIN, job().worker(1).spec(schedulingPolicy={})])
    @simulated
    async def test_a_job_waits_for_it_and_starts_when_it_is_installed(self, of):
        cluster = SimulatedCluster()
        async with cluster.running("volcano" if of is PLAIN else "", volcano=False):
            cluster.submit(of)
            await cluster.until(
                lambda: "scheduling.volcano.sh/v1beta1" in cluster.status().get("message", "")
            )
            assert cluster.status()["reason"] == "WaitingForGang"
            await asyncio.sleep(120)
            assert cluster.pods() == []
            cluster.install_volcano()
            if of is DOCUMENTED:
                cluster.submit_group(minMember=4)
            await cluster.until_phase("Completed", within_seconds=120)

    @simulated
    async def test_jobs_that_do_not_care_run_without_it(self):
        cluster = SimulatedCluster()
        async with cluster.running("auto", volcano=False):
            cluster.submit(PLAIN)
            await cluster.until_phase("Completed")

    @simulated
    async def test_discovery_starts_with_the_first_job_that_needs_it(self):
        cluster = SimulatedCluster()
        async with cluster.running():
            cluster.submit(PLAIN)
            await cluster.until_phase("Completed")
            assert cluster.controller.state.gangs.informers == ()

    @simulated
    async def test_its_watch_is_in_the_metrics(self):
        cluster = SimulatedCluster()
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_phase("Completed")
            text = cluster.controller.metrics.render().decode()
            assert 'paddlejob_watch_lists_total{resource="podgroups.scheduling.volcano.sh"} 1.0' in text

    @simulated
    async def test_a_running_job_survives_its_removal(self):
        cluster = SimulatedCluster(behaviour=serve_for_ever)
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_phase("Running")
            cluster.server.routes.remove(VOLCANO_POD_GROUPS)
            await cluster.until_phase("Completed")

    @simulated
    async def test_an_operator_that_may_not_read_groups_reports_it(self):
        cluster = SimulatedCluster()
        answer = cluster.server.open_stream

        def refuse(path, *args):
            if "podgroups" in path:
                raise errors.TransportError("podgroups is forbidden")
            return answer(path, *args)

        cluster.server.open_stream = refuse
        async with cluster.running("volcano"):
            cluster.submit(PLAIN)
            await cluster.until_it_says("podgroups is forbidden")

    @simulated
    async def test_its_abandoned_webhooks_are_named(self):
        cluster = SimulatedCluster()
        text = (
            'Internal error occurred: failed calling webhook "mutatepod.volcano.sh": Post '
            '"https://volcano-admission-service.volcano-system.svc:443/pods/mutate": no endpoints available'
        )

        def refuse(request):
            if request.verb == "create" and request.resource.plural == "pods":
                raise errors.ServerError(Status(code=500, message=text))

        cluster.server.admission.append(refuse)
        async with cluster.running(volcano=False):
            cluster.submit(PLAIN)
            await cluster.until_it_says("kubectl delete mutatingwebhookconfigurations")
            cluster.server.admission.clear()
            await cluster.until_phase("Completed", within_seconds=3000)
