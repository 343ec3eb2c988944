"""What a user sees of a job's life."""

from __future__ import annotations

import pytest

from behaviour.stage import Stage
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from simkube.build import job
from simkube.kubelet.outcomes import (
    Evict,
    Exit,
    FailImagePull,
    RunForever,
    Unschedulable,
    crash,
    run_out_of_memory,
)

PS_JOB = job().ps(2).worker(2)


def done(*pods: str):
    """Return what makes workers finish."""

    def prepare(stage: Stage) -> None:
        for pod in pods:
            stage.fates.set(pod, Exit(0, 0.2))

    return prepare


def test_a_parameter_server_job_from_start_to_end(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().ps(2).worker(2).spec(cleanPodPolicy="Never"))
        running = await stage.phase("Running")
        assert (running["mode"], running["ps"]["ready"], running["worker"]["ready"]) == ("PS", "2/2", "2/2")
        env = stage.kubelet.started("demo-ps-1")[0].environment
        assert f"{env['POD_IP']}:36000" == env["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")[1]
        await stage.client.delete(PADDLE_JOBS, stage.namespace, "demo")
        await stage.gone()

    perform(act)


BOTH = ["demo-ps-0", "demo-worker-0"]
KEPT = {
    ("Completed", "Always"): [],
    ("Completed", "Never"): BOTH,
    ("Completed", "OnFailure"): BOTH,
    ("Completed", "OnCompletion"): [],
    ("Failed", "Always"): [],
    ("Failed", "Never"): BOTH,
    ("Failed", "OnFailure"): [],
    ("Failed", "OnCompletion"): BOTH,
}
"""A server that runs, and a worker that has ended."""


STOPPED = {"phase": "Failed", "reason": "DeadlineExceeded"}


@pytest.mark.parametrize(("ending", "policy"), KEPT)
def test_pods_stay_or_go_as_the_policy_says(perform, ending, policy):
    kept = KEPT[ending, policy]
    servers = "1/1" if ending == "Completed" else "0/1"

    async def act(stage: Stage) -> None:
        stage.fates.set(
            "demo-worker-0", Exit(0, 0.2) if ending == "Completed" else crash(1, after_seconds=0.2)
        )
        await stage.submit(job().ps(1).worker(1).spec(cleanPodPolicy=policy))
        await stage.phase(ending)

        async def has_settled() -> bool:
            return await stage.names() == kept and (await stage.status())["ps"]["ready"] == servers

        await stage.until(has_settled, f"only {kept} are left, with {servers} servers")
        if kept:
            expected = {"phase": "Running"} if ending == "Completed" else STOPPED
            assert (await stage.pod("demo-ps-0"))["status"].items() >= expected.items()

    perform(act)


def test_services_and_config_are_there_before_the_pods(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().ps(1).worker(1).spec(intranet="Service"))
        await stage.phase("Running")
        assert await stage.names(SERVICES) == ["demo-ps-0", "demo-worker-0"]
        env = stage.kubelet.started("demo-ps-0")[0].environment
        assert env["POD_IP"] == f"demo-ps-0.{stage.namespace}"
        config = await stage.client.get(CONFIG_MAPS, stage.namespace, "demo")
        pod = await stage.pod("demo-ps-0")
        assert int(config["metadata"]["resourceVersion"]) < int(pod["metadata"]["resourceVersion"])

    perform(act)


def test_two_jobs_on_the_host_network_have_ports_of_their_own(perform):
    async def act(stage: Stage) -> None:
        for name in ("one", "two"):
            await stage.submit(job(name).worker(1).spec(intranet="Host"))
        ports = {(await stage.phase("Running", name))["hostPort"] for name in ("one", "two")}
        assert len(ports) == 2
        pod = await stage.pod("one-worker-0")
        assert pod["spec"]["hostNetwork"]
        assert pod["spec"]["containers"][0]["ports"][0]["hostPort"] in ports

    perform(act)


def test_what_failed_first_is_told(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-1", crash(3, after_seconds=0.2, message="no data\n"))
        await stage.submit(job().worker(2))
        status = await stage.phase("Failed")
        assert status["message"] == "worker-1 exited with code 3: no data"
        await stage.until(lambda: _told(stage, "Failed"), "the event is there")

    perform(act)


async def _told(stage: Stage, reason: str) -> bool:
    return reason in await stage.reasons()


def test_out_of_memory_restarts_the_whole_collective_job(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-1", run_out_of_memory(after_seconds=0.2))
        await stage.submit(job().worker(2).spec(restartPolicy={"delaySeconds": 0}))
        await stage.until(lambda: _attempt(stage, 1), "the second attempt began")
        status = await stage.phase("Running")
        assert (status["attempt"], status["restarts"]) == (1, 1)
        assert status["lastFailure"]["reason"] == "OOMKilled"
        assert [
            start.environment["PADDLEJOB_ATTEMPT"] for start in stage.kubelet.started("demo-worker-0")
        ] == ["0", "1"]

    perform(act)


async def _attempt(stage: Stage, number: int) -> bool:
    return (await stage.status()).get("attempt", 0) >= number


def test_an_eviction_costs_no_budget(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-0", Evict(after_seconds=0.2))
        await stage.submit(job().worker(2).spec(backoffLimit=0))
        await stage.until(lambda: _attempt(stage, 1), "the second attempt began")
        assert (await stage.phase("Running")).get("restarts", 0) == 0

    perform(act)


def test_the_budget_ends(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-0", *[run_out_of_memory(after_seconds=0.1)] * 3)
        await stage.submit(job().worker(1).spec(backoffLimit=1, restartPolicy={"delaySeconds": 0}))
        status = await stage.phase("Failed")
        assert (status["reason"], status["attempt"]) == ("BackoffLimitExceeded", 1)

    perform(act)


def test_a_deleted_pod_is_replaced_and_the_config_follows(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().ps(1).worker(2).spec(withGloo=0))
        await stage.phase("Running")
        before = (await stage.config())["PADDLE_TRAINER_ENDPOINTS"]
        await stage.client.delete(PODS, stage.namespace, "demo-worker-1")
        await stage.until(lambda: _attempt(stage, 1), "the loss was seen")
        await stage.phase("Running")
        address = (await stage.pod("demo-worker-1"))["status"]["podIP"]
        after = (await stage.config())["PADDLE_TRAINER_ENDPOINTS"]
        assert after != before
        assert after.split(",")[1] == f"{address}:36000"
        assert len(stage.kubelet.started("demo-worker-0")) == 1

    perform(act)


@pytest.mark.parametrize("replicas", [1, 3])
def test_scaling_re_forms_the_job(perform, replicas):
    async def act(stage: Stage) -> None:
        await stage.submit(job().worker(2))
        await stage.phase("Running")
        await stage.edit(worker={"replicas": replicas})
        await stage.until(lambda: _attempt(stage, 1), "the new size was seen")
        status = await stage.phase("Running")
        assert status["worker"]["ready"] == f"{replicas}/{replicas}"
        assert (await stage.config())["PADDLE_TRAINERS_NUM"] == str(replicas)
        assert len(await stage.names()) == replicas

    perform(act)


def test_suspension_and_resumption(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().worker(2))
        await stage.phase("Running")
        await stage.edit(suspend=True)
        await stage.phase("Suspended")
        await stage.gone(PODS)
        await stage.edit(suspend=False)
        assert (await stage.phase("Running"))["attempt"] == 1

    perform(act)


def test_a_job_whose_spec_became_invalid_runs_on_and_completes(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-0", Exit(0, 3.0))
        await stage.submit(job().ps(1).worker(1))
        await stage.phase("Running")
        wrong = {"name": "paddle", "image": "paddle:test", "ports": [{"containerPort": "http"}]}
        await stage.edit(worker={"template": {"spec": {"containers": [wrong]}}})
        await stage.until(lambda: _has_reason(stage, "InvalidSpec"), "the error is reported")
        status = await stage.status()
        assert status["phase"] == "Running"
        assert 'ports[0].containerPort: Invalid value: "http"' in status["message"]
        assert (await stage.phase("Completed"))["ps"]["ready"] == "1/1"
        await stage.gone(PODS)

    perform(act)


async def _has_reason(stage: Stage, reason: str) -> bool:
    return (await stage.status()).get("reason") == reason


def test_deadlines_have_a_timer(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().worker(1).spec(activeDeadlineSeconds=1))
        assert (await stage.phase("Failed"))["reason"] == "DeadlineExceeded"

    perform(act)


def test_a_deadline_stops_every_pod_that_runs(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().ps(1).worker(1).spec(activeDeadlineSeconds=1, cleanPodPolicy="Never"))
        await stage.phase("Failed")
        for pod in BOTH:
            await stage.until(lambda pod=pod: _has_status(stage, pod, STOPPED), f"{pod} is stopped")
        assert (await stage.status())["reason"] == "DeadlineExceeded"

    perform(act)


async def _has_status(stage: Stage, pod: str, expected: dict[str, str]) -> bool:
    return (await stage.pod(pod))["status"].items() >= expected.items()


def test_pods_of_a_failed_job_never_start(perform):
    async def act(stage: Stage) -> None:
        for name in ("demo", "other"):
            stage.fates.set(f"{name}-worker-0", Unschedulable(for_seconds=8, then=RunForever()))
        await stage.submit(job().worker(1).spec(startupDeadlineSeconds=5, cleanPodPolicy="Never"))
        assert (await stage.phase("Failed"))["reason"] == "StartupDeadlineExceeded"
        marked = {"phase": "Failed", "reason": "JobEnded"}
        await stage.until(lambda: _has_status(stage, "demo-worker-0", marked), "the pod is marked")
        await stage.submit(job("other").worker(1))
        await stage.phase("Running", "other")
        assert stage.kubelet.started("demo-worker-0") == []

    perform(act)


def test_a_finished_job_goes_when_its_time_is_over(perform):
    async def act(stage: Stage) -> None:
        done("demo-worker-0")(stage)
        await stage.submit(job().worker(1).spec(ttlSecondsAfterFinished=1))
        await stage.until(lambda: _no_jobs(stage), "the job is gone")
        await stage.gone()

    perform(act)


async def _no_jobs(stage: Stage) -> bool:
    return not await stage.names(PADDLE_JOBS)


def test_a_job_of_the_same_name_starts_afresh(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-0", crash(1, after_seconds=0.1))
        await stage.submit(job().worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Failed")
        await stage.client.delete(PADDLE_JOBS, stage.namespace, "demo")
        await stage.submit(job().worker(1))
        status = await stage.phase("Running")
        assert status["worker"]["failed"] == 0

    perform(act)


def test_a_finished_job_never_starts_a_pod_again(perform):
    async def act(stage: Stage) -> None:
        done("demo-worker-0")(stage)
        await stage.submit(job().ps(1).worker(1).spec(cleanPodPolicy="Never"))
        await stage.phase("Completed")
        for pod in await stage.names():
            await stage.client.delete(PODS, stage.namespace, pod)
        await stage.gone(PODS)
        await stage.submit(job("other").worker(1))
        await stage.phase("Running", "other")
        assert await stage.names() == ["other-worker-0"]

    perform(act)


def test_an_operator_that_restarts_takes_over_where_it_was(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().ps(1).worker(1))
        await stage.until(lambda: _has_pods(stage, 1), "a pod is there")
        await stage.stop_operator()
        stage.start_operator()
        assert (await stage.phase("Running")).get("attempt", 0) == 0

    perform(act)


async def _has_pods(stage: Stage, least: int) -> bool:
    return len(await stage.names()) >= least


def test_a_typo_in_the_pod_template_is_told(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().worker(1, imagePullPolcy="Always"))
        await stage.until(
            lambda: _says(stage, 'unknown field "spec.containers[0].imagePullPolcy"'), "it is told"
        )
        assert await stage.names() == []
        await stage.submit(job("other").worker(1))
        await stage.phase("Running", "other")

    perform(act)


async def _says(stage: Stage, text: str) -> bool:
    return text in (await stage.status()).get("message", "")


def test_a_stranger_of_the_same_name_is_in_the_way_until_it_goes(perform):
    async def act(stage: Stage) -> None:
        pod = {"metadata": {"name": "demo-worker-0"}, "spec": {"containers": [{"name": "x", "image": "y"}]}}
        await stage.client.create(PODS, stage.namespace, pod)
        await stage.submit(job().worker(1))
        await stage.until(lambda: _says(stage, "does not belong to this job"), "it is told")
        await stage.client.delete(PODS, stage.namespace, "demo-worker-0")
        await stage.phase("Running")

    perform(act)


def test_an_image_that_cannot_be_pulled_is_told(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-worker-1", FailImagePull())
        await stage.submit(job().worker(2))
        await stage.until(lambda: _says(stage, "waiting for worker-1"), "it is told")

    perform(act)


def test_a_server_that_exits_early_is_a_failure_whatever_its_code(perform):
    async def act(stage: Stage) -> None:
        stage.fates.set("demo-ps-0", Exit(0, 0.1))
        await stage.submit(job().ps(1).worker(1).spec(backoffLimit=0))
        status = await stage.phase("Failed")
        assert "ps-0 exited with code 0 before the workers were done" in status["message"]

    perform(act)


def test_the_finalizer_of_an_earlier_operator_blocks_nothing(perform):
    async def act(stage: Stage) -> None:
        built = job().worker(1)
        body = {**built.manifest, "metadata": {"name": "demo", "finalizers": ["finalizers.paddlepaddle.org"]}}
        await stage.client.create(PADDLE_JOBS, stage.namespace, body)
        await stage.phase("Running")
        await stage.client.delete(PADDLE_JOBS, stage.namespace, "demo")
        await stage.until(lambda: _no_jobs(stage), "the job is gone")

    perform(act)


def test_spellings_found_in_the_wild_are_told_as_events(perform):
    async def act(stage: Stage) -> None:
        await stage.submit(job().worker(1).spec(cleanPolicy="OnCompletion"))
        await stage.phase("Running")
        await stage.until(lambda: _told(stage, "AliasUsed"), "the event is there")

    perform(act)
