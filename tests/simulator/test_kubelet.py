from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from paddlejob.api.meta import JsonObject
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from simkube.faults.transport import FaultRates, Faults
from simkube.kubelet.kubelet import Kubelet
from simkube.kubelet.outcomes import (
    Evict,
    Exit,
    FailImagePull,
    LoseNode,
    Outcome,
    Reject,
    RunForever,
    Unschedulable,
    crash,
    run_out_of_memory,
)
from simkube.kubelet.pod_worker import Timing
from tests.simulator.behaviour import config_map, pod
from tests.simulator.kubelet_world import running, with_config
from tests.support.simulated import simulated


@simulated
async def test_a_pod_runs_and_succeeds() -> None:
    async with running(Exit(0, 30, message="done")) as world:
        world.create()
        await asyncio.sleep(10)
        assert world.conditions() == dict.fromkeys(
            ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"), "True"
        )
        assert world.container()["ready"]
        assert world.status()["podIP"] == "10.244.0.1"
        await asyncio.sleep(30)
    assert world.phases() == ["Pending", "Running", "Succeeded"]
    ended = world.container()["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "done")
    assert ended["startedAt"] < ended["finishedAt"]
    assert world.conditions()["Ready"] == "False"


@pytest.mark.parametrize(
    ("outcome", "code", "reason"),
    [(crash(3), 3, "Error"), (run_out_of_memory(), 137, "OOMKilled")],
    ids=["a crash", "out of memory"],
)
@simulated
async def test_a_pod_fails_by(outcome: Exit, code: int, reason: str) -> None:
    async with running(outcome) as world:
        world.create()
        await asyncio.sleep(20)
    ended = world.container()["state"]["terminated"]
    assert (world.status()["phase"], ended["exitCode"], ended["reason"]) == ("Failed", code, reason)


@simulated
async def test_a_pod_that_runs_for_ever_is_stopped_within_its_grace() -> None:
    async with running(RunForever()) as world:
        world.create()
        await asyncio.sleep(1000)
        assert world.status()["phase"] == "Running"
        world.server.delete(PODS, "default", "a")
        assert world.exists()
        await asyncio.sleep(2)
        assert not world.exists()
    last = world.seen[-1]["status"]["containerStatuses"][0]["state"]["terminated"]
    assert last["exitCode"] == 143


@simulated
async def test_a_pod_that_ignores_the_wish_is_killed_after_its_grace() -> None:
    async with running(RunForever(), timing=Timing(stop_seconds=(60, 60))) as world:
        world.create(terminationGracePeriodSeconds=20)
        await asyncio.sleep(10)
        world.server.delete(PODS, "default", "a")
        await asyncio.sleep(19)
        assert world.exists()
        await asyncio.sleep(2)
        assert not world.exists()
    assert world.seen[-1]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


@simulated
async def test_a_rejected_pod_has_failed_without_a_container() -> None:
    async with running(Reject("OutOfpods", "no room")) as world:
        world.create()
        await asyncio.sleep(20)
    status = world.status()
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfpods")
    assert (status["message"], status["containerStatuses"]) == ("Pod was rejected: no room", [])


@simulated
async def test_an_evicted_pod_has_failed() -> None:
    async with running(Evict(5, message="low on memory")) as world:
        world.create()
        await asyncio.sleep(20)
    status = world.status()
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "low on memory")
    assert world.conditions()["DisruptionTarget"] == "True"


@simulated
async def test_a_pod_on_a_lost_node_hangs_in_deletion() -> None:
    outcome = LoseNode(after_seconds=5, toleration_seconds=300, removed_after_seconds=60)
    async with running(outcome) as world:
        world.create()
        await asyncio.sleep(20)
        assert (world.status()["phase"], world.conditions()["Ready"]) == ("Running", "False")
        await asyncio.sleep(300)
        assert world.pod()["metadata"]["deletionTimestamp"]
        await asyncio.sleep(40)
        assert world.exists()
        await asyncio.sleep(20)
        assert not world.exists()


@simulated
async def test_a_lost_node_can_stay_lost() -> None:
    async with running(LoseNode(5, 10, removed_after_seconds=None)) as world:
        world.create()
        await asyncio.sleep(3000)
        assert world.pod()["metadata"]["deletionTimestamp"]
        world.server.delete(PODS, "default", "a", options={"gracePeriodSeconds": 0})
        assert not world.exists()


@simulated
async def test_an_image_that_cannot_be_pulled_keeps_the_pod_pending() -> None:
    async with running(FailImagePull()) as world:
        world.create()
        await asyncio.sleep(5)
        assert world.container()["state"]["waiting"]["reason"] == "ErrImagePull"
        await asyncio.sleep(600)
        assert world.container()["state"]["waiting"]["reason"] == "ImagePullBackOff"
        assert world.status()["phase"] == "Pending"


@simulated
async def test_an_image_can_come_after_all() -> None:
    async with running(FailImagePull(60, Exit(0, 5))) as world:
        world.create()
        await asyncio.sleep(90)
        assert world.status()["phase"] == "Succeeded"


@simulated
async def test_a_pod_that_no_node_takes_is_pending_and_says_why() -> None:
    async with running(Unschedulable(100, Exit(0, 5))) as world:
        world.create()
        await asyncio.sleep(50)
        [condition] = world.status()["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "PodScheduled",
            "False",
            "Unschedulable",
        )
        assert not world.pod()["spec"].get("nodeName")
        await asyncio.sleep(70)
        assert world.status()["phase"] == "Succeeded"


@simulated
async def test_a_pod_waits_for_room() -> None:
    async with running(Exit(0, 100), nodes=1, pods_per_node=1) as world:
        world.create("a")
        await asyncio.sleep(5)
        world.create("b")
        await asyncio.sleep(50)
        assert (world.status("a")["phase"], world.status("b")["phase"]) == ("Running", "Pending")
        world.server.delete(PODS, "default", "a")
        await asyncio.sleep(20)
        assert world.status("b")["phase"] == "Running"


@simulated
async def test_a_missing_config_map_is_tried_again_after_a_while() -> None:
    async with running(RunForever()) as world:
        world.create(containers=with_config())
        await asyncio.sleep(5)
        waiting = world.container()["state"]["waiting"]
        assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "config" not found'}
        assert world.status()["podIP"]
        await asyncio.sleep(15)
        world.server.create(CONFIG_MAPS, config_map("config"))
        created = asyncio.get_running_loop().time()
        await asyncio.sleep(16)
        [start] = world.kubelet.starts
        assert 1 < start.at_seconds - created <= 15


@simulated
async def test_a_kick_makes_it_try_at_once() -> None:
    async with running(RunForever()) as world:
        world.create(containers=with_config())
        await asyncio.sleep(20)
        world.server.create(CONFIG_MAPS, config_map("config"))
        world.server.patch(PODS, "default", "a", {"metadata": {"annotations": {"kick": "1"}}})
        await asyncio.sleep(0.1)
        [start] = world.kubelet.starts
        assert start.at_seconds == pytest.approx(20, abs=0.1)


@simulated
async def test_a_change_of_the_status_is_no_kick() -> None:
    async with running(RunForever(), timing=Timing(config_retry_seconds=(1000, 1000))) as world:
        world.create(containers=with_config())
        await asyncio.sleep(20)
        world.server.create(CONFIG_MAPS, config_map("config"))
        world.server.patch(PODS, "default", "a", {"status": {"message": "hello"}}, subresource="status")
        await asyncio.sleep(100)
        assert world.kubelet.starts == []


@simulated
async def test_a_start_records_the_environment() -> None:
    async with running(RunForever()) as world:
        world.server.create(CONFIG_MAPS, config_map("config"))
        world.create(containers=with_config())
        await asyncio.sleep(5)
    [start] = world.kubelet.started("a", container="main")
    assert start.environment == {"key": "value", "POD_IP": "10.244.0.1", "ENDPOINT": "10.244.0.1:value"}
    assert (start.address, start.uid) == ("10.244.0.1", world.pod()["metadata"]["uid"])


@simulated
async def test_init_containers_come_first_and_one_after_the_other() -> None:
    inits = [{"name": name, "image": "i"} for name in ("one", "two")]
    async with running(RunForever()) as world:
        world.create(initContainers=inits)
        await asyncio.sleep(2)
        assert world.status()["phase"] == "Pending"
        assert world.container()["state"]["waiting"]["reason"] == "PodInitializing"
        await asyncio.sleep(10)
    assert [start.container for start in world.kubelet.starts] == ["one", "two", "main"]
    codes = [entry["state"]["terminated"]["exitCode"] for entry in world.status()["initContainerStatuses"]]
    assert (codes, world.conditions()["Initialized"]) == ([0, 0], "True")


@simulated
async def test_an_init_container_that_is_a_sidecar_stays() -> None:
    sidecar = {"name": "proxy", "image": "i", "restartPolicy": "Always"}
    async with running(RunForever()) as world:
        world.create(initContainers=[sidecar])
        await asyncio.sleep(5)
        assert "running" in world.status()["initContainerStatuses"][0]["state"]
        assert world.status()["phase"] == "Running"


@simulated
async def test_a_pod_has_succeeded_when_all_its_containers_have() -> None:
    containers = [{"name": name, "image": "i"} for name in ("main", "side")]
    behaviour = lambda _pod, name, _restarts: Exit(0, 10 if name == "main" else 50)  # noqa: E731
    async with running(behaviour) as world:
        world.create(containers=containers)
        await asyncio.sleep(30)
        assert (world.status()["phase"], world.container(index=0)["ready"]) == ("Running", False)
        await asyncio.sleep(30)
        assert world.status()["phase"] == "Succeeded"


@simulated
async def test_an_eviction_ends_all_containers() -> None:
    containers = [{"name": name, "image": "i"} for name in ("main", "side")]
    behaviour = lambda _pod, name, _restarts: Evict(5) if name == "side" else RunForever()  # noqa: E731
    async with running(behaviour) as world:
        world.create(containers=containers)
        await asyncio.sleep(20)
    assert world.status()["reason"] == "Evicted"
    assert all("terminated" in entry["state"] for entry in world.status()["containerStatuses"])


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [("Never", 1, False), ("OnFailure", 1, True), ("OnFailure", 0, False), ("Always", 0, True)],
)
@simulated
async def test_a_container_is_restarted_as_its_policy_says(policy: str, code: int, restarts: bool) -> None:
    async with running(Exit(code, 5)) as world:
        world.create(restartPolicy=policy)
        await asyncio.sleep(20)
    assert (len(world.kubelet.starts) > 1) is restarts
    assert (world.status()["phase"] == "Running") is restarts


@simulated
async def test_restarts_are_counted_and_back_off() -> None:
    async with running(crash(after_seconds=1), timing=Timing(start_seconds=(0, 0))) as world:
        world.create(restartPolicy="OnFailure")
        await asyncio.sleep(3)
        assert world.container()["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        assert world.container()["lastState"]["terminated"]["exitCode"] == 1
        assert world.container()["restartCount"] == 1
        await asyncio.sleep(100)
    moments = [start.at_seconds for start in world.kubelet.starts]
    assert moments == [0, 1, 12, 33, 74]
    assert [start.restarts for start in world.kubelet.starts] == [0, 1, 2, 3, 4]


@simulated
async def test_each_restart_has_its_own_outcome() -> None:
    async with running(lambda _pod, _name, restarts: Exit(0 if restarts == 2 else 1, 1)) as world:
        world.create(restartPolicy="OnFailure")
        await asyncio.sleep(60)
    assert (world.status()["phase"], world.container()["restartCount"]) == ("Succeeded", 2)


@simulated
async def test_readiness_can_take_time() -> None:
    async with running(RunForever(), timing=Timing(ready_seconds=(30, 30))) as world:
        world.create()
        await asyncio.sleep(10)
        assert (world.status()["phase"], world.container()["ready"]) == ("Running", False)
        await asyncio.sleep(30)
        assert world.container()["ready"]


@pytest.mark.parametrize(
    ("containers", "statuses"), [(None, 1), (with_config(), 2)], ids=["plain", "waiting"]
)
@simulated
async def test_fast_runs_in_few_status_writes(containers: list[JsonObject] | None, statuses: int) -> None:
    async with running(RunForever(), fast=True) as world:
        world.create(**({"containers": containers} if containers else {}))
        await asyncio.sleep(5)
        world.server.create(CONFIG_MAPS, config_map("config"))
        world.server.patch(PODS, "default", "a", {"metadata": {"labels": {"x": "1"}}})
        await asyncio.sleep(1)
        assert world.status()["phase"] == "Running"
        assert len(list(world.server.log.select(identity="kubelet", subresource="status"))) == statuses
        world.server.delete(PODS, "default", "a")
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert not world.exists()


@simulated
async def test_a_pod_that_is_deleted_while_it_starts_is_gone() -> None:
    async with running(Exit()) as world:
        for number in range(30):
            world.create(f"p{number}")
        for number in range(30):
            await asyncio.sleep(0.1)
            world.server.delete(PODS, "default", f"p{number}")
        await asyncio.sleep(30)
        assert world.server.objects(PODS) == []


@simulated
async def test_a_namesake_is_another_pod() -> None:
    async with running(RunForever()) as world:
        world.create()
        await asyncio.sleep(10)
        first = world.pod()["metadata"]["uid"]
        world.server.delete(PODS, "default", "a", options={"gracePeriodSeconds": 0})
        world.create()
        await asyncio.sleep(10)
    assert world.pod()["metadata"]["uid"] != first
    assert [start.address for start in world.kubelet.starts] == ["10.244.0.1", "10.244.0.2"]


@simulated
async def test_a_new_kubelet_takes_over_what_runs_and_keeps_the_address() -> None:
    async with running(RunForever()) as world:
        world.create()
        await asyncio.sleep(10)
        address = world.status()["podIP"]
    again = Kubelet(Client(world.server.transport("again")), behaviour=lambda *_: Exit(0, 5))
    task = asyncio.create_task(again.run())
    world.create("b")
    await asyncio.sleep(30)
    assert (world.status()["phase"], world.status()["podIP"]) == ("Succeeded", address)
    assert world.status("b")["podIP"] != address
    task.cancel()


@simulated
async def test_a_kubelet_survives_a_server_that_drops_and_forgets() -> None:
    async with running(Exit(0, 5)) as world:
        for number in range(10):
            world.create(f"p{number}")
            world.server.compact()
            world.server.drop_watches()
            await asyncio.sleep(3)
        await asyncio.sleep(30)
        assert {body["status"]["phase"] for body in world.server.objects(PODS)} == {"Succeeded"}


@pytest.mark.parametrize("seed", range(10))
def test_a_kubelet_survives_faults(seed: int) -> None:
    async def check() -> None:
        server = ApiServer(rng=random.Random(seed))
        faults = Faults(random.Random(seed), FaultRates.everything(0.1))
        kubelet = Kubelet(
            Client(faults.wrap(server.transport("kubelet")), rng=random.Random(seed)),
            behaviour=lambda *_: Exit(0, 20),
            rng=random.Random(seed),
        )
        task = asyncio.create_task(kubelet.run())
        for number in range(8):
            server.create(PODS, pod(f"p{number}", restartPolicy="Never"))
        await asyncio.sleep(120)
        faults.heal()
        await asyncio.sleep(300)
        assert not task.done(), task.exception()
        assert {body["status"]["phase"] for body in server.objects(PODS)} == {"Succeeded"}
        assert len(kubelet.starts) == 8
        task.cancel()

    virtual_loop.run(check(), seed=seed)


def test_one_seed_is_one_history() -> None:
    async def history(seed: int) -> list[Any]:
        fates: list[Outcome] = [Exit(), crash(), Evict(), run_out_of_memory(), FailImagePull(20)]
        async with running(lambda body, *_: fates[int(body["metadata"]["name"][1:]) % 5], seed=seed) as world:
            for number in range(20):
                world.create(f"p{number}", restartPolicy="OnFailure")
            await asyncio.sleep(200)
        return [(write.at_seconds, write.verb, write.name, write.body) for write in world.server.log.writes]

    assert virtual_loop.run(history(1), seed=1) == virtual_loop.run(history(1), seed=1)
    assert virtual_loop.run(history(1), seed=1) != virtual_loop.run(history(1), seed=2)


@simulated
async def test_when_a_kubelet_stops_all_its_tasks_end() -> None:
    async with running(RunForever()) as world:
        world.create()
        await asyncio.sleep(10)
    await asyncio.sleep(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}
