"""Jobs on a cluster through the client: what every verb does, and what it says when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from client.scene import Scene, play
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.client import ranks
from paddlejob.client.cluster import cluster_config
from paddlejob.client.errors import (
    ClientError,
    GoalMissedError,
    InvalidJobError,
    NoSuchJobError,
    WaitTimeoutError,
    sentence,
)
from paddlejob.client.job import run_time, running_seconds
from paddlejob.kube.errors import (
    AlreadyExistsError,
    ConfigError,
    ForbiddenError,
    Status,
    UnauthorizedError,
    api_error,
)
from paddlejob.kube.resource import CONFIG_MAPS, EVENTS, PODS
from simkube.build import job
from simkube.kubelet.outcomes import Exit, FailImagePull, Unschedulable


def body(built, **metadata):
    manifest = built.manifest
    return {**manifest, "metadata": {"name": manifest["metadata"]["name"], **metadata}}


def test_a_job_is_submitted_waited_for_and_deleted():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(0, 5))
        demo = await scene.cluster.submit(body(job().worker(1)))
        assert (await demo.wait("running", timeout_seconds=60)).status.phase == "Running"
        assert (await demo.wait(timeout_seconds=60)).status.phase == "Completed"
        assert [pod.metadata.name for pod in await demo.pods()] in ([], ["demo-worker-0"])
        deleting = asyncio.create_task(demo.wait("deleted", timeout_seconds=60))
        assert await demo.delete() == "deleted"
        await deleting
        assert await demo.delete() == "deleted already"
        with pytest.raises(NoSuchJobError, match="was deleted"):
            await demo.refresh()

    play(act)


def test_waiting_ends_in_time_and_when_there_is_no_hope():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1).spec(backoffLimit=0))
        with pytest.raises(WaitTimeoutError, match="demo is not completed after 30s: it is Running"):
            await demo.wait("completed", timeout_seconds=30)
        scene.fates.set("other-worker-0", Exit(1, 2))
        other = await scene.submitted(job("other").worker(1).spec(backoffLimit=0))
        with pytest.raises(GoalMissedError, match=r"other is Failed: .*, and will not be completed"):
            await other.wait("completed", timeout_seconds=60)
        with pytest.raises(ClientError, match="cannot wait for 'finsihed'; choose ended, deleted"):
            await demo.wait("finsihed")
        await demo.delete()
        with pytest.raises((GoalMissedError, NoSuchJobError)):
            await demo.wait("completed", timeout_seconds=60)

    play(act)


def test_conditions_can_be_waited_for():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        state = await demo.wait("condition=Running", timeout_seconds=60)
        assert any(each.type == "Running" for each in state.status.conditions)

    play(act)


def test_names_are_exact_and_near_ones_are_suggested():
    async def act(scene: Scene) -> None:
        await scene.submitted(job("resnet").worker(1))
        with pytest.raises(
            NoSuchJobError, match="no PaddleJob resne in namespace default; did you mean resnet"
        ):
            await scene.cluster.get("resne")
        assert (await scene.cluster.get("pdj/resnet")).name == "resnet"
        assert (await scene.cluster.get("paddlejob.batch.paddlepaddle.org/resnet")).name == "resnet"
        with pytest.raises(ClientError, match="pod is not a kind of job"):
            await scene.cluster.get("pod/resnet")

    play(act)


def test_latest_is_the_newest_job():
    async def act(scene: Scene) -> None:
        with pytest.raises(NoSuchJobError, match="there are no PaddleJobs in namespace default"):
            await scene.cluster.get("@latest")
        for name in ("b", "a"):
            await scene.submitted(job(name).worker(1))
            await asyncio.sleep(2)
        assert (await scene.cluster.get("@latest")).name == "a"

    play(act)


def test_jobs_are_listed_by_name_and_label():
    async def act(scene: Scene) -> None:
        await scene.cluster.submit(body(job("b").worker(1), labels={"team": "x"}))
        await scene.cluster.submit(body(job("a").worker(1)))
        assert [each.name for each in await scene.cluster.list()] == ["a", "b"]
        assert [each.name for each in await scene.cluster.list(selector="team=x")] == ["b"]
        assert [each.name for each in await scene.cluster.list(all_namespaces=True)] == ["a", "b"]

    play(act)


def test_a_second_job_of_a_name_is_refused_with_a_way_out():
    async def act(scene: Scene) -> None:
        await scene.cluster.submit(body(job().worker(1)))
        with pytest.raises(ClientError, match=r"demo already exists .* submit this one under another name$"):
            await scene.cluster.submit(body(job().worker(1)))

    play(act)


def config_map(name="demo-files", **fields):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}


def test_what_a_job_owns_is_created_with_it_and_deleted_with_it():
    async def act(scene: Scene) -> None:
        demo = await scene.cluster.submit(
            body(job().worker(1)), owned=[config_map(data={"train.py": "print(1)"})]
        )
        stored = await scene.client.get(CONFIG_MAPS, "default", "demo-files")
        assert stored["data"] == {"train.py": "print(1)"}
        assert [each["uid"] for each in stored["metadata"]["ownerReferences"]] == [demo.state.metadata.uid]
        await demo.delete()
        await scene.gone(CONFIG_MAPS)

    play(act)


def test_what_a_deleted_job_owned_is_waited_for():
    async def act(scene: Scene) -> None:
        demo = await scene.cluster.submit(body(job().worker(1)), owned=[config_map()])
        await demo.delete()
        assert await scene.names(CONFIG_MAPS), "it has not been collected yet"
        again = await scene.cluster.submit(body(job("again").worker(1)), owned=[config_map()])
        stored = await scene.client.get(CONFIG_MAPS, "default", "demo-files")
        assert [each["uid"] for each in stored["metadata"]["ownerReferences"]] == [again.state.metadata.uid]

    play(act)


def test_what_a_job_owns_stays_until_its_retry_is_deleted_too():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(1, 2))
        built = body(job().worker(1).spec(backoffLimit=0))
        volume = {"name": "files", "configMap": {"name": "demo-files"}}
        built["spec"]["worker"]["template"]["spec"]["volumes"] = [volume]
        demo = await scene.cluster.submit(built, owned=[config_map()])
        await demo.wait()
        assert [each["kind"] for each in await demo.manifests()] == ["ConfigMap", "PaddleJob"]
        again = await demo.retry()
        await demo.delete()
        await scene.until(lambda: _is_gone(scene, "demo"), "demo is deleted")
        await asyncio.sleep(5)
        assert "demo-files" in await scene.names(CONFIG_MAPS)
        await again.delete()
        await scene.gone(CONFIG_MAPS)

    play(act)


async def _is_gone(scene: Scene, name: str) -> bool:
    return name not in [each.name for each in await scene.cluster.list()]


def test_a_job_that_cannot_have_what_it_owns_is_not_left_behind():
    async def act(scene: Scene) -> None:
        await scene.client.create(CONFIG_MAPS, "default", config_map())
        with pytest.raises(AlreadyExistsError, match="demo-files"):
            await scene.cluster.submit(body(job().worker(1)), owned=[config_map("first"), config_map()])
        claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
        with pytest.raises(ClientError, match="PersistentVolumeClaim data cannot belong to a job"):
            await scene.cluster.submit(body(job().worker(1)), owned=[claim])
        assert await scene.cluster.list() == []
        await scene.gone(CONFIG_MAPS)

    play(act)


def test_a_job_is_explained():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        await demo.wait("running")
        assert (await demo.explain()).cause == "Running"

    play(act)


def _template(epochs="1", path="/a", **container):
    env = [{"name": "EPOCHS", "value": epochs}, {"name": "PYTHONPATH", "value": path}]
    return job().worker(1, env=env, **container).manifest["spec"]


CHANGES = {
    "nothing": ({}, None),
    "the image": ({"image": "paddle:new"}, "image"),
    "a variable": ({"epochs": "2"}, "env EPOCHS"),
    "arguments and a variable": ({"epochs": "2", "args": ["--fast"]}, "args, env EPOCHS"),
    "a variable that the recorder sets": ({"path": "/b"}, None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_template_is_said_to_wait_for_the_next_restart(name):
    changes, fields = CHANGES[name]

    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().spec(**_template()))
        await demo.wait("running", timeout_seconds=60)
        assert (await demo.explain()).findings[0].details == ()
        await scene.edit(**_template(**changes), backoffLimit=2)
        expected = (
            f"the worker pods run with another {fields} than spec.worker.template: a change of the template "
            "waits for the next restart"
        )
        assert (await demo.explain()).findings[0].details == ((expected,) if fields else ())
        await demo.suspend()
        await demo.wait("suspended", timeout_seconds=60)
        await demo.resume()
        await demo.wait("running", timeout_seconds=60)
        assert (await demo.explain()).findings[0].details == ()

    play(act)


def test_a_job_is_scaled_suspended_and_resumed():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        await demo.wait("running")
        assert await demo.scale(3) == "scaling to 3 workers"
        await scene.runs(*(f"demo-worker-{index}" for index in range(3)))
        assert await demo.suspend() == "suspending"
        await demo.wait("suspended", timeout_seconds=60)
        assert await demo.suspend() == "suspended already"
        assert await demo.resume() == "resuming"
        await demo.wait("running", timeout_seconds=60)

    play(act)


def test_a_suspended_job_has_no_pods_when_the_wait_is_over():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        await demo.wait("running", timeout_seconds=60)
        await _hold_pod(scene, "example.com/slow")
        await demo.suspend()
        with pytest.raises(
            WaitTimeoutError, match="demo is not suspended after 5s: its pods are terminating"
        ):
            await demo.wait("suspended", timeout_seconds=5)
        await _hold_pod(scene)
        await demo.wait("suspended", timeout_seconds=60)
        assert await demo.pods() == []

    play(act)


async def _hold_pod(scene: Scene, *finalizers: str) -> None:
    patch = {"metadata": {"finalizers": list(finalizers)}}
    await scene.client.patch(PODS, "default", "demo-worker-0", patch)


async def _forbid_pods(scene: Scene) -> None:
    scene.server.forbidden.add(PODS)


ENDS = {
    "the pod is gone": _hold_pod,
    "pods may not be listed": _forbid_pods,
    "the job is deleted": lambda scene: scene.client.delete(PADDLE_JOBS, "default", "demo"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_wait_for_the_pods_of_a_suspended_job_is_announced_and_ends_when(end):
    async def act(scene: Scene) -> None:
        notes: list[str] = []
        demo = await scene.submitted(job().worker(1))
        await demo.wait("running", timeout_seconds=60)
        await _hold_pod(scene, "example.com/slow")
        await demo.suspend()
        waiting = asyncio.create_task(demo.wait("suspended", timeout_seconds=600, on_note=notes.append))
        await asyncio.sleep(60)
        assert not waiting.done()
        await end(scene)
        assert (await waiting).status.phase == "Suspended"
        assert notes == ["demo is suspended; waiting for its pods to terminate"]

    play(act)


def test_the_duration_stops_while_a_job_is_suspended():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        assert running_seconds(demo.state, scene.client.server_now()) is None
        await demo.wait("running", timeout_seconds=60)
        await asyncio.sleep(100)
        await demo.suspend()
        state = await demo.wait("suspended", timeout_seconds=60)
        assert run_time(state)[1] is None
        await asyncio.sleep(1000)
        assert 95 <= running_seconds(await demo.refresh(), scene.client.server_now()) <= 110
        await demo.resume()
        scene.fates.set("demo-worker-0", Exit(0, 50))
        state = await demo.wait(timeout_seconds=600)
        assert 145 <= running_seconds(state, scene.client.server_now()) <= 165
        assert (await demo.explain()).summary.startswith("the worker succeeded in 2m")

    play(act)


def test_a_finished_job_is_retried_as_a_new_one_and_not_changed():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(1, 2))
        demo = await scene.cluster.submit(body(job().worker(1).spec(backoffLimit=0), labels={"team": "x"}))
        with pytest.raises(ClientError, match="only a finished job can be retried"):
            await demo.retry()
        await demo.wait()
        for change in (demo.scale(2), demo.suspend(), demo.resume()):
            with pytest.raises(ClientError, match="it is Failed; `retry` runs it again as a new job"):
                await change
        second = await demo.retry()
        assert second.name.startswith("demo-")
        assert second.body["metadata"]["labels"] == {"team": "x"}
        scene.fates.set(f"{second.name}-worker-0", Exit(1, 2))
        await second.wait()
        third = await second.retry()
        assert third.name.startswith("demo-")
        assert third.name.count("-") == 1
        assert third.state.spec == demo.state.spec

    play(act)


def _event(pod: str) -> dict:
    """What a kubelet reports about a pod; `demo-worker-worker-0` is one of the job demo-worker."""
    involved = {"kind": "Pod", "name": pod, "namespace": "default"}
    return {"metadata": {"name": f"{pod}.1"}, "involvedObject": involved, "reason": "Pulled"}


def test_events_of_the_job_and_its_pods_are_in_order():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", Exit(0, 5))
        demo = await scene.submitted(job().worker(1))
        await demo.wait()
        for pod in ("demo-worker-0", "demo-worker-worker-0"):
            await scene.client.create(EVENTS, "default", _event(pod))
        found = await demo.events()
        assert {each.object for each in found} == {"PaddleJob/demo", "Pod/demo-worker-0"}
        assert [each.time for each in found] == sorted(each.time for each in found)

    play(act)


WAITS = ("Normal", "Waiting", "waits for the addresses of the other pods")
KUBELET = {
    'Error: configmap "demo" not found': WAITS,
    "Error: couldn't find key PADDLEJOB_ATTEMPT_1_EB0E251C in ConfigMap default/demo": WAITS,
    'Error: configmap "mine" not found': ("Warning", "Failed", 'Error: configmap "mine" not found'),
    'Error: secret "demo" not found': ("Warning", "Failed", 'Error: secret "demo" not found'),
}


@pytest.mark.parametrize("message", KUBELET)
def test_a_wait_for_addresses_is_not_a_warning(message):
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().worker(1))
        told = {**_event("demo-worker-0"), "type": "Warning", "reason": "Failed", "message": message}
        await scene.client.create(EVENTS, "default", told)
        (found,) = [each for each in await demo.events() if each.object == "Pod/demo-worker-0"]
        assert (found.type, found.reason, found.message) == KUBELET[message]

    play(act)


def test_a_rank_that_waits_for_addresses_is_shown_as_waiting():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-1", Unschedulable())
        demo = await scene.submitted(job().worker(2))

        async def states() -> list[str]:
            return [ranks.state_of(demo.state, pod) for pod in await demo.pods()]

        async def waits() -> bool:
            first, *_ = await states() or [""]
            assert first != "CreateContainerConfigError"
            return first == "Waiting"

        await scene.until(waits, "worker-0 waits")
        await scene.edit(worker={**job().worker(1).manifest["spec"]["worker"]})
        await demo.wait("running", timeout_seconds=120)
        assert await states() == ["Running"]

    play(act)


def test_the_environment_of_a_rank_is_that_of_the_kubelet():
    async def act(scene: Scene) -> None:
        demo = await scene.submitted(job().ps(1).worker(2))
        await demo.wait("running")
        for rank, pod in (("1", "demo-worker-1"), ("ps-0", "demo-ps-0")):
            started = scene.kubelet.started(pod)[-1]
            assert await demo.environment(rank) == started.environment
        with pytest.raises(
            ClientError, match="worker means 2 pods of demo; choose one of worker-0, worker-1"
        ):
            await demo.environment("worker")
        with pytest.raises(ClientError, match="demo has no rank 9; it has ps-0, worker-0, worker-1"):
            await demo.environment("9")

    play(act)


def test_the_first_error_is_that_of_the_rank_that_failed_first():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-1", Exit(3, 5, message="ValueError: bad shape"))
        demo = await scene.submitted(job().worker(2).spec(backoffLimit=0, cleanPodPolicy="Never"))
        assert await demo.first_error() is None
        await scene.runs("demo-worker-0", "demo-worker-1")
        scene.write("demo-worker-0", "Traceback (most recent call last):", "connection reset")
        scene.write("demo-worker-1", "epoch 1", "Traceback (most recent call last):", "ValueError: bad shape")
        await demo.wait()
        found = await demo.first_error()
        assert found is not None
        assert (found.rank, found.exit_code) == ("worker-1", 3)
        assert found.lines == ("Traceback (most recent call last):", "ValueError: bad shape")

    play(act)


def test_an_image_that_cannot_be_pulled_is_the_reason_that_is_shown():
    async def act(scene: Scene) -> None:
        scene.fates.set("demo-worker-0", FailImagePull())
        demo = await scene.submitted(job().worker(1))
        with pytest.raises(
            WaitTimeoutError, match=r"ImagePullBackOff: Back-off pulling image \"paddle:test\""
        ):
            await demo.wait("running", timeout_seconds=60)

    play(act)


def test_refusals_are_put_into_words():
    denied = Status(
        code=403,
        reason="Forbidden",
        message='paddlejobs.batch.paddlepaddle.org is forbidden: User "eve" cannot list resource '
        '"paddlejobs" in API group "batch.paddlepaddle.org" in the namespace "team-a"',
    )
    assert sentence(ForbiddenError(denied)) == (
        "cannot list paddlejobs in namespace team-a: needs get and list on paddlejobs.batch.paddlepaddle.org"
    )
    pods = 'cannot get resource "pods/log" in API group "" in the namespace "team-a"'
    assert sentence(ForbiddenError(Status(code=403, message=pods))) == (
        "cannot get pods/log in namespace team-a: needs get on pods/log"
    )
    scale = 'cannot patch resource "paddlejobs/scale" in API group "batch" at the cluster scope'
    assert sentence(ForbiddenError(Status(code=403, message=scale))) == (
        "cannot patch paddlejobs/scale in all namespaces: needs patch on paddlejobs.batch/scale"
    )
    quota = Status(code=403, message="exceeded quota: pods")
    assert sentence(api_error(quota)) == "exceeded quota: pods"
    assert "log in again" in sentence(UnauthorizedError(Status(code=401, message="Unauthorized")))
    unknown = Status(code=404, reason="NotFound", message="the server could not find the requested resource")
    assert sentence(api_error(unknown)).startswith(
        "this cluster does not know PaddleJobs; install the operator"
    )


def test_the_api_server_checks_what_is_submitted():
    async def act(scene: Scene) -> None:
        manifest = body(job().worker(1))
        del manifest["metadata"]["name"]
        with pytest.raises(InvalidJobError):
            await scene.cluster.submit(manifest)

    play(act)


def write_kubeconfig(path: Path, server: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""
clusters: [{{name: c, cluster: {{server: "https://{server}"}}}}]
contexts:
- {{name: one, context: {{cluster: c}}}}
- {{name: two, context: {{cluster: c, namespace: team-a}}}}
current-context: one
"""
    )
    return path


def test_the_cluster_is_the_one_that_kubectl_means(tmp_path: Path):
    home = {"HOME": str(tmp_path)}
    write_kubeconfig(tmp_path / ".kube" / "config", "home")
    given = write_kubeconfig(tmp_path / "given", "given")
    listed = write_kubeconfig(tmp_path / "listed", "listed")
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    # A kubeconfig comes before the service account of the pod that we may be in.
    assert cluster_config(env={**home, **pod}).server == "https://home"
    assert cluster_config(env={**home, "KUBECONFIG": str(listed)}).server == "https://listed"
    assert cluster_config(kubeconfig=given, env={**home, "KUBECONFIG": str(listed)}).server == "https://given"
    assert cluster_config(env=home).namespace == "default"
    assert cluster_config(context="two", env=home).namespace == "team-a"
    with pytest.raises(ConfigError, match="context 'three' does not exist; choose one of: one, two"):
        cluster_config(context="three", env=home)


def test_jobs_and_pods_are_followed_as_a_whole():
    async def act(scene: Scene) -> None:
        listings = scene.cluster.listings()
        assert (await anext(listings)).jobs == ()
        demo = await scene.submitted(job().worker(1))
        before = (await anext(listings)).jobs
        assert [each.name for each in before] == ["demo"]
        async with contextlib.aclosing(demo.watch_with_pods()) as updates:
            async for current in updates:
                if current.state.status.phase == "Running":
                    assert [pod.metadata.name for pod in current.pods] == ["demo-worker-0"]
                    break
            await demo.delete()
            assert all(each.state.name == "demo" for each in [each async for each in updates])  # and ends
        async for listing in listings:
            if not listing.jobs:
                break
        await listings.aclose()

    play(act)
