"""Whole jobs with real processes: how they start, end, restart and handle commands."""

from __future__ import annotations

import asyncio
import threading

import pytest

from local.jobs import config_map, container, job, role
from local.processes import marked
from paddlejob.core.snapshot import Settings
from paddlejob.local import runner
from paddlejob.local.errors import InputError
from paddlejob.local.pod import container_loop
from paddlejob.local.pod.volumes import PodVolumes
from paddlejob.local.runner import Ending
from tests.support.waiting import eventually_async

FOREVER = "echo up; while :; do sleep 60; done"
STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"
NO_DELAY = {"delaySeconds": 0, "maxDelaySeconds": 0}


async def test_a_job_is_pending_then_running_then_completed(finish):
    run = await finish(job())
    assert await run.ended() is Ending.COMPLETED
    assert run.notebook.phases[0] == "Pending"
    assert run.notebook.phases[-1] == "Completed"
    assert run.status.message == "all 2 workers succeeded"


async def test_workers_get_ranks_addresses_and_a_port_of_their_own(finish):
    run = await finish(job(worker=role(3)))
    envs = [run.env(f"worker-{rank}") for rank in range(3)]
    assert [env["PADDLE_TRAINER_ID"] for env in envs] == ["0", "1", "2"]
    endpoints = envs[0]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert [env["PADDLE_CURRENT_ENDPOINT"] for env in envs] == endpoints
    assert len(set(endpoints)) == 3
    assert all(endpoint.startswith("127.") for endpoint in endpoints)
    assert envs[0]["PADDLE_PORT"] != "36000"


async def test_two_jobs_at_once_share_neither_ports_nor_addresses(start):
    runs = [await start(job(worker=role(2, FOREVER))) for _ in range(2)]
    for run in runs:
        await run.phase("Running")
    first, second = (run.env("worker-0") for run in runs)
    assert first["PADDLE_PORT"] != second["PADDLE_PORT"]
    assert not set(first["PADDLE_TRAINERS"].split(",")) & set(second["PADDLE_TRAINERS"].split(","))


async def test_thirty_two_workers_run_to_the_end(finish):
    run = await finish(job(worker=role(32, "echo $PADDLE_TRAINER_ID")))
    assert await run.ended() is Ending.COMPLETED
    assert [run.log(f"worker-{rank}").strip() for rank in range(32)] == [str(rank) for rank in range(32)]


async def test_a_failed_worker_is_the_jobs_failure_with_its_last_words(finish):
    run = await finish(
        job(worker=role(2, 'test $PADDLE_TRAINER_ID = 0 || { echo "no data"; exit 3; }; sleep 60'))
    )
    assert await run.ended() is Ending.FAILED
    assert run.status.message == "worker-1 exited with code 3: no data"
    ended = run.container("worker-1").state.terminated
    assert (ended.exit_code, ended.reason, ended.message) == (3, "Error", "no data\n")


async def test_only_workers_complete_a_job_and_its_servers_are_stopped(finish):
    run = await finish(job(ps=role(2, FOREVER), worker=role(2, "exit 0")))
    assert await run.ended() is Ending.COMPLETED
    assert run.status.ps.ready == "2/2"


async def test_a_server_that_leaves_early_is_a_failure_whatever_its_code(finish):
    run = await finish(job(ps=role(1, "exit 0"), worker=role(1, FOREVER), backoffLimit=0))
    assert await run.ended() is Ending.FAILED
    assert "ps-0 exited with code 0 before the workers were done" in run.status.message


async def test_a_killed_process_is_reported_as_a_kubelet_does(start):
    run = await start(job(worker=role(1, FOREVER), backoffLimit=0))
    await run.said("worker-0", "up")
    await run.kill("worker-0")
    assert await run.ended() is Ending.FAILED
    ended = run.container("worker-0").state.terminated
    assert (ended.exit_code, ended.signal, ended.reason) == (137, 0, "Error")


async def test_a_process_killed_by_the_oom_killer_is_reported_as_such(start, monkeypatch):
    run = await start(job(worker=role(1, FOREVER), backoffLimit=0))
    await run.phase("Running")
    monkeypatch.setattr(container_loop, "_kernel_kills", lambda: 10**9)
    await run.kill("worker-0")
    await run.ended()
    assert run.container("worker-0").state.terminated.reason == "OOMKilled"


async def test_a_start_error_is_the_failure_message(finish):
    broken = container("", command=["no-such-program"])
    run = await finish(job(worker=role(1, containers=[broken]), backoffLimit=0))
    ended = run.container("worker-0").state.terminated
    assert (ended.exit_code, ended.reason) == (128, "StartError")
    assert "no-such-program" in run.status.message


FAILS_TWICE = 'cd /data; echo x >> tries; test "$(wc -l < tries)" = 3'
KEEPS_DATA = {
    "restartPolicy": "OnFailure",
    "containers": [container(FAILS_TWICE, volumeMounts=[{"name": "data", "mountPath": "/data"}])],
    "volumes": [{"name": "data", "emptyDir": {}}],
}


async def test_a_container_is_restarted_in_place_with_its_pods_volumes(finish):
    run = await finish(job(worker=role(1, **KEEPS_DATA)))
    assert await run.ended() is Ending.COMPLETED
    status = run.container("worker-0")
    assert status.restart_count == 2
    assert status.last_state.terminated.exit_code == 1


async def test_back_off_of_a_crashing_container(start):
    run = await start(
        job(worker=role(1, "exit 7", restartPolicy="OnFailure"), backoffLimit=9), back_off_seconds=30
    )
    await eventually_async(lambda: _waiting(run, "worker-0") == "CrashLoopBackOff")
    status = run.container("worker-0")
    assert status.restart_count == 1
    assert "back-off 30s" in status.state.waiting.message
    assert status.last_state.terminated.exit_code == 7


async def test_a_job_whose_pod_was_killed_starts_again_as_a_whole(start):
    script = f'echo "attempt $PADDLEJOB_ATTEMPT"; test "$PADDLEJOB_ATTEMPT" -gt 0 || {{ {FOREVER}; }}'
    run = await start(job(worker=role(2, script), restartPolicy=NO_DELAY))
    await run.said("worker-0", "up")
    await run.kill("worker-0")
    assert await run.ended() is Ending.COMPLETED
    assert run.status.restarts == 1
    assert "attempt 1" in run.log("worker-1")


async def test_init_containers_run_one_after_the_other_before_the_others(finish):
    share = {"volumeMounts": [{"name": "data", "mountPath": "/shared"}]}
    first = container("echo one > /shared/log", name="first", **share)
    second = container("echo two >> /shared/log", name="second", **share)
    main = container("cat /shared/log", **share)
    pod = {"initContainers": [first, second], "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]}
    run = await finish(job(worker=role(1, containers=[main], **pod)))
    assert run.log("worker-0") == "one\ntwo\n"


async def test_a_failed_init_container_fails_the_pod(finish):
    bad = container("echo cannot fetch; exit 4", name="fetch")
    run = await finish(job(worker=role(1, "echo never", initContainers=[bad])))
    assert run.container("worker-0").state.waiting.reason == "PodInitializing"
    assert run.status.message == "worker-0 exited with code 4 in init container fetch: cannot fetch"
    assert run.log("worker-0") == ""


SHARED = {"volumeMounts": [{"name": "data", "mountPath": "/shared"}]}
# The job ends with its training container, whatever runs beside it: that one waits for the other.
AWAITS_THE_OTHER = container("until test -e /shared/up; do sleep 0.05; done", **SHARED)
NEVER_ENDS = FOREVER.replace("echo up", "echo up; touch /shared/up")


async def test_a_sidecar_that_never_ends_does_not_keep_the_job_alive(finish):
    sidecar = container(NEVER_ENDS, name="sidecar", **SHARED)
    pod = {"restartPolicy": "Never", "volumes": [{"name": "data", "emptyDir": {}}]}
    run = await finish(job(worker=role(1, containers=[AWAITS_THE_OTHER, sidecar], **pod)))
    assert await run.ended() is Ending.COMPLETED


async def test_a_restartable_init_container_runs_beside_the_others(finish):
    sidecar = container(NEVER_ENDS, name="proxy", restartPolicy="Always", **SHARED)
    pod = {"initContainers": [sidecar], "volumes": [{"name": "data", "emptyDir": {}}]}
    run = await finish(job(worker=role(1, containers=[AWAITS_THE_OTHER], **pod)))
    assert await run.ended() is Ending.COMPLETED
    assert run.log("worker-0", "proxy") == "up\n"


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(start):
    run = await start(job(worker=role(1, STUBBORN, terminationGracePeriodSeconds=1)))
    await run.said("worker-0", "up")
    run.runner.interrupt()
    assert await run.ended() is Ending.INTERRUPTED
    assert run.container("worker-0").state.terminated.exit_code == 137


async def test_a_second_interrupt_does_not_wait_for_the_grace_period(start):
    run = await start(job(worker=role(2, STUBBORN, terminationGracePeriodSeconds=3600)))
    await run.said("worker-0", "up")
    await run.said("worker-1", "up")
    run.runner.interrupt()
    run.runner.interrupt()
    assert await run.ended() is Ending.INTERRUPTED
    assert not marked(run.mark)


async def test_a_pod_may_save_its_work_when_it_is_stopped(start):
    run = await start(
        job(worker=role(1, "trap 'echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"))
    )
    await run.said("worker-0", "up")
    run.runner.interrupt()
    await run.ended()
    assert run.log("worker-0").endswith("saved\n")


async def test_workers_can_be_added_and_taken_away(start):
    run = await start(job(worker=role(1, FOREVER)))
    await run.phase("Running")
    run.runner.scale(3)
    await eventually_async(lambda: run.status.worker.ready == "3/3" and str(run.status.phase) == "Running")
    assert run.env("worker-0")["PADDLE_TRAINERS_NUM"] == "3"
    run.runner.scale(2)
    await eventually_async(lambda: run.status.worker.ready == "2/2" and str(run.status.phase) == "Running")
    assert run.runner.job.metadata.generation == 3


async def test_a_size_that_the_job_does_not_allow_is_refused(start):
    run = await start(job(worker=role(1, FOREVER)))
    await run.phase("Running")
    with pytest.raises(InputError, match=r"spec\.worker\.replicas: Invalid value: 0"):
        run.runner.scale(0)


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(start):
    run = await start(job(worker=role(2, FOREVER)))
    await run.phase("Running")
    run.runner.suspend()
    await eventually_async(lambda: str(run.status.phase) == "Suspended" and not run.runner.pods)
    assert not marked(run.mark)
    run.runner.resume()
    await run.phase("Running")
    assert run.env("worker-0")["PADDLEJOB_ATTEMPT"] == "1"


async def test_a_deleted_job_ends(start):
    run = await start(job(worker=role(2, FOREVER)))
    await run.phase("Running")
    run.runner.delete()
    assert await run.ended() is Ending.STOPPED
    with pytest.raises(InputError, match="the job has ended"):
        run.runner.scale(3)


CLEANINGS = {
    "Always removes the pods of a failed job": ("Always", 2),
    "OnFailure removes the pods of a failed job": ("OnFailure", 2),
    "OnCompletion stops and keeps them": ("OnCompletion", 0),
    "Never stops and keeps them": ("Never", 0),
}


@pytest.mark.parametrize(("policy", "removed"), CLEANINGS.values(), ids=CLEANINGS)
async def test_clean_pod_policy(start, tmp_path, policy, removed):
    worker = role(1, f"until [ -e {tmp_path}/fail ]; do sleep 0.1; done; exit 1")
    run = await start(job(ps=role(1, FOREVER), worker=worker, cleanPodPolicy=policy))
    removed_by_core, reasons = [], {}
    original = run.runner._delete_pods

    async def clear():
        removed_by_core.extend(run.notebook.gone)
        reasons.update({pod.name: pod.view().status.reason for pod in run.runner.pods})
        await original()

    run.runner._delete_pods = clear
    await run.phase("Running")
    (tmp_path / "fail").touch()
    await run.ended()
    assert len(removed_by_core) == removed
    assert reasons == ({} if removed else {"job-ps-0": "DeadlineExceeded", "job-worker-0": ""})
    assert "worker-0 exited with code 1" in run.status.message


async def test_a_job_in_service_mode_finds_its_peers_by_name(finish):
    names = "job-worker-0.default job-worker-1.default job-worker-0 $HOSTNAME"
    script = f'for host in {names}; do getent hosts $host | cut -d" " -f1; done'
    run = await finish(job(worker=role(2, script), intranet="Service"))
    first, second, again, own = run.log("worker-1").split()
    assert first == again != second == own
    assert run.env("worker-0")["PADDLE_TRAINERS"] == "job-worker-0.default,job-worker-1.default"


async def test_a_pod_that_runs_learns_the_name_of_a_new_peer(start):
    script = "until getent hosts job-worker-1; do sleep 0.1; done; while :; do sleep 60; done"
    run = await start(job(ps=role(1, script), worker=role(1, FOREVER), intranet="Service", withGloo=0))
    await run.phase("Running")
    run.runner.scale(2)
    await run.said("ps-0", "job-worker-1")


async def test_host_mode_uses_the_jobs_own_ports(finish):
    run = await finish(job(intranet="Host"))
    assert await run.ended() is Ending.COMPLETED
    assert run.env("worker-0")["PADDLE_PORT"] == str(run.status.host_port)


async def test_a_config_map_of_the_same_file_reaches_the_pods(finish):
    one = container("echo $GREETING", envFrom=[{"configMapRef": {"name": "words"}}])
    run = await finish(job(worker=role(1, containers=[one])), config_map("words", GREETING="hello"))
    assert run.log("worker-0") == "hello\n"


async def test_a_missing_key_of_a_config_map_is_awaited_and_named(start):
    wanted = {"configMapKeyRef": {"name": "words", "key": "x"}}
    one = container("true", env=[{"name": "X", "valueFrom": wanted}])
    run = await start(job(worker=role(1, containers=[one])), config_map("words", y="1"))
    await eventually_async(lambda: _waiting(run, "worker-0") == "CreateContainerConfigError")
    await eventually_async(lambda: "couldn't find key x in ConfigMap default/words" in run.status.message)


@pytest.mark.parametrize(("script", "code"), [(FOREVER, 143), (STUBBORN, 137)])
async def test_a_pod_ends_at_its_active_deadline_within_its_grace_period(finish, script, code):
    limits = {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 1}
    run = await finish(job(worker=role(1, script, restartPolicy="Never", **limits), backoffLimit=0))
    assert "DeadlineExceeded" in run.status.message
    assert run.status.last_failure.exit_code == code


async def test_a_pod_of_a_failed_job_that_has_not_started_is_stopped(start):
    wanted = {"configMapKeyRef": {"name": "words", "key": "x"}}
    late = container("true", env=[{"name": "X", "valueFrom": wanted}])
    workers = {"ps": role(1, containers=[late]), "worker": role(1, "exit 1")}
    run = await start(job(**workers, cleanPodPolicy="Never", withGloo=0), config_map("words", y="1"))
    assert await run.ended() is Ending.FAILED
    assert run.pods["job-ps-0"].status.reason == "DeadlineExceeded"


async def test_a_bug_in_the_runner_ends_the_run(start):
    run = await start(job(worker=role(2, FOREVER)))
    await run.phase("Running")

    def broken(name):
        raise RuntimeError("a mistake")

    run.notebook.on_pod_gone = broken
    run.runner.suspend()
    with pytest.raises(RuntimeError, match="a mistake"):
        await run.ended()
    assert not marked(run.mark)


def _waiting(run, pod):
    pods = run.pods.get(f"job-{pod}")
    waiting = pods and pods.status.container_statuses[0].state.waiting
    return waiting.reason if waiting else ""


async def test_a_slow_pod_removal_does_not_block_the_run(start, monkeypatch):
    leaving, released, decide = threading.Event(), threading.Event(), runner.plan
    monkeypatch.setattr(PodVolumes, "remove", lambda _: (leaving.set(), released.wait(60)))
    snapshots = []

    def counted(snapshot):
        snapshots.append(snapshot)
        if len(snapshots) > 1000:
            released.set()
            raise AssertionError("the run spins")
        return decide(snapshot)

    monkeypatch.setattr(runner, "plan", counted)
    settings = Settings(force_delete_seconds=0.0)
    run = await start(job(worker=role(1, FOREVER, terminationGracePeriodSeconds=0)), settings=settings)
    await run.said("worker-0", "up")
    run.runner.suspend()
    await eventually_async(lambda: run.task.done() or leaving.is_set())
    # A run that spins makes a plan at least every other turn of the event loop.
    for _ in range(3000):
        await asyncio.sleep(0)
    released.set()
    await eventually_async(lambda: run.task.done() or run.notebook.gone == ["job-worker-0"])
    run.runner.interrupt()
    assert await run.ended() is Ending.INTERRUPTED
