from __future__ import annotations

import itertools

import msgspec
import pytest

from paddlejob import kubelet
from paddlejob.api import names
from paddlejob.api.names import Env
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJobStatus, Phase, Role, WorldSize
from paddlejob.core.attempts.processes import (
    NO_ORDER,
    STOP_SECONDS,
    Order,
    Process,
    ProcessState,
    apparent_pod,
    is_lost,
    is_outdated,
    is_supervised,
    may_run_outdated,
    order_of,
    published_attempt,
    required_attempt,
    template_hash,
)
from paddlejob.core.paddle_env import PORT_BLOCKS, process_env
from paddlejob.core.pod_set import Replica
from paddlejob.core.render import render_pod
from paddlejob.kubelet import Sources
from simkube.build import NOW, job, snapshot

DOWN = ProcessState.DOWN


def pod(attempt: int = 0, state: str = "running", phase: str = "Running") -> Pod:
    labels = {names.LABEL_ATTEMPT: str(attempt)}
    states = {
        "running": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        "waiting": {"waiting": {"reason": "ContainerCreating"}},
        "ended": {"terminated": {"exitCode": 1}},
    }
    statuses = [
        {"name": "paddle", "ready": state == "running", "state": states[state]},
        {"name": "sidecar", "ready": True, "state": {"running": {}}},
    ]
    manifest = {
        "metadata": {"name": "demo-worker-0", "uid": "u", "labels": labels},
        "status": {"phase": phase, "containerStatuses": statuses},
    }
    return msgspec.convert(manifest, Pod, strict=False)


ENDED = pod(0, "ended", "Failed")
LEAVING = msgspec.structs.replace(
    pod(0), metadata=msgspec.structs.replace(pod(0).metadata, deletion_timestamp=NOW)
)


def status(process: int = 0, base: int = 0, phase: Phase = Phase.RESTARTING, complete: int | None = None):
    world_size = None if complete is None else WorldSize(complete, 0, 2, 0)
    attempt = max(process, base)
    return PaddleJobStatus(
        phase=phase, attempt=attempt, base_attempt=base, process_attempt=process, world_size=world_size
    )


@pytest.mark.parametrize(("attempt", "process", "expected"), [(0, 0, 0), (0, 2, 2), (3, 2, 3), (2, 2, 2)])
def test_a_pod_has_to_run_the_program_of_its_own_attempt_or_of_the_last_restart(attempt, process, expected):
    assert required_attempt(pod(attempt), status(process)) == expected


OUTDATED = {
    "never restarted in place": (pod(0), None, status(0), 0, False),
    "runs the present attempt": (pod(0), Process(2), status(2), 0, False),
    "runs an earlier attempt": (pod(0), Process(1), status(2), 0, True),
    "an earlier attempt is down": (pod(0), Process(1, DOWN), status(2), 0, True),
    "created for the attempt": (pod(2), None, status(2), 0, False),
    "created after the restart": (pod(3), Process(3), status(2), 0, False),
    "unknown": (pod(0), None, status(2), 0, True),
    "unknown, an earlier ConfigMap": (pod(0), None, status(2), 1, True),
    "unknown, but the ConfigMap was published": (pod(0), None, status(2), 2, False),
    "unknown, but all were up": (pod(0), None, status(2, complete=2), 0, False),
    "unknown, all were up before": (pod(0), None, status(2, complete=1), 0, True),
    "known to be earlier, whatever was published": (pod(0), Process(1), status(2, complete=2), 2, True),
}


@pytest.mark.parametrize(("of", "process", "state", "published", "expected"), OUTDATED.values(), ids=OUTDATED)
def test_which_programs_are_outdated(of, process, state, published, expected):
    assert is_outdated(of, process, state, published) is expected
    is_down = process is not None and process.is_down
    assert may_run_outdated(of, process, state, published) is (expected and not is_down)


def test_no_program_runs_in_a_pod_that_has_ended():
    assert is_outdated(ENDED, Process(0), status(1))
    assert not may_run_outdated(ENDED, Process(0), status(1))


LOST = {
    "it has time to stop": (pod(0), Process(0), STOP_SECONDS - 1, False),
    "it does not stop": (pod(0), Process(0), STOP_SECONDS, True),
    "its supervisor does not report": (pod(0), None, STOP_SECONDS, True),
    "it is down and waits": (pod(0), Process(0, DOWN), 1000.0, False),
    "it runs again": (pod(0), Process(1), 1000.0, False),
    "its container has ended": (ENDED, Process(0, DOWN), 0.0, True),
    "the container of the new program has ended": (ENDED, Process(1), 1000.0, False),
}


@pytest.mark.parametrize(("of", "process", "seconds", "expected"), LOST.values(), ids=LOST)
def test_which_pods_are_replaced_because_they_did_not_take_part(of, process, seconds, expected):
    assert is_lost(of, process, status(1), seconds) is expected


ORDERS = {
    "nothing to do": (pod(0), Process(0), status(0), 0, NO_ORDER),
    "failed, not judged yet": (pod(0), Process(0, DOWN), status(0, phase=Phase.RUNNING), 0, NO_ORDER),
    "it has to stop": (pod(0), Process(0), status(1), 0, Order(stop=0)),
    "it has to stop, another was ordered": (pod(0), Process(1), status(2), 1, Order(stop=1)),
    "others still run": (pod(0), Process(0, DOWN), status(1), 0, NO_ORDER),
    "the ConfigMap is of an earlier restart": (pod(0), Process(1, DOWN), status(2), 1, NO_ORDER),
    "all are down": (pod(0), Process(0, DOWN), status(1), 1, Order(run=1)),
    "all are down, but the pod is deleted": (LEAVING, Process(0, DOWN), status(1), 1, NO_ORDER),
    "the pod is deleted, and runs": (LEAVING, Process(0), status(1), 0, Order(stop=0)),
    "it missed a restart": (pod(0), Process(0, DOWN), status(2), 2, Order(run=2)),
    "it runs again": (pod(0), Process(1), status(1), 1, NO_ORDER),
    "the pod is replaced": (pod(0), Process(0, DOWN), status(1, base=2), 1, NO_ORDER),
    "the pod is replaced, and runs": (pod(0), Process(0), status(1, base=2), 1, NO_ORDER),
    "the job has failed": (pod(0), Process(0, DOWN), status(1, phase=Phase.FAILED), 1, Order(exit=True)),
    "the job has completed": (pod(0), Process(0), status(0, phase=Phase.COMPLETED), 0, NO_ORDER),
}


@pytest.mark.parametrize(("of", "process", "state", "published", "expected"), ORDERS.values(), ids=ORDERS)
def test_the_order_follows_from_the_status_and_the_config_map(of, process, state, published, expected):
    assert order_of(of, process, state, published) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, 0),
        ({Env.PROCESS_ATTEMPT: "3"}, 3),
        ({Env.PROCESS_ATTEMPT: "x"}, 0),
        ({Env.PROCESS_ATTEMPT: "²"}, 0),
    ],
)
def test_the_published_attempt_is_in_the_config_map(data, expected):
    assert published_attempt(data) == expected


def training(of: Pod):
    return next(each for each in of.status.container_statuses if each.name == "paddle")


@pytest.mark.parametrize(
    ("of", "process", "state"),
    [
        pytest.param(pod(0), None, status(0), id="no supervisor"),
        pytest.param(pod(0), Process(0), status(0), id="it runs"),
        pytest.param(pod(0, "waiting"), Process(0, DOWN), status(0), id="the container waits"),
        pytest.param(ENDED, Process(0, DOWN, 1), status(0), id="the container has ended"),
        pytest.param(pod(0), Process(0, DOWN, 1), status(0, base=1), id="of an earlier attempt"),
    ],
)
def test_a_pod_appears_as_it_is(of, process, state):
    assert apparent_pod(of, process, state, "paddle") is of


def test_a_pod_appears_as_it_is_if_its_container_has_another_name():
    of = pod(0)
    assert apparent_pod(of, Process(0, DOWN, 1), status(0), "other") is of


@pytest.mark.parametrize(("is_oom", "reason"), [(False, "Error"), (True, "OOMKilled")])
def test_a_pod_appears_to_have_ended_with_its_program(is_oom, reason):
    process = Process(0, DOWN, 137, is_oom, "last words", NOW)
    seen = apparent_pod(pod(0), process, status(0), "paddle")
    ended = training(seen).state.terminated
    assert seen.status.phase == "Failed"
    assert (ended.exit_code, ended.reason, ended.message, ended.finished_at) == (
        137,
        reason,
        "last words",
        NOW,
    )
    assert not training(seen).ready
    assert [each.name for each in seen.status.container_statuses] == ["paddle", "sidecar"]


@pytest.mark.parametrize("process", [None, Process(0), Process(0, DOWN, 1)])
def test_a_pod_appears_to_wait_for_the_next_program(process):
    seen = apparent_pod(pod(0), process, status(1), "paddle")
    assert seen.status.phase == "Running"
    assert training(seen).state.waiting.reason == "RestartingInPlace"
    assert training(seen).state.running is None


def test_a_template_hash_does_not_depend_on_the_order_of_keys():
    assert template_hash({"a": 1, "b": {"c": 2, "d": 3}}) == template_hash({"b": {"d": 3, "c": 2}, "a": 1})
    assert template_hash({"a": 1}) != template_hash({"a": 2})


def test_a_pod_is_supervised_if_it_was_created_so():
    assert not is_supervised(pod(0))
    of = msgspec.convert({"metadata": {"annotations": {names.ANNOTATION_SUPERVISED: "x"}}}, Pod)
    assert is_supervised(of)


# --- the environment of a restarted program


def published(of, process: int) -> dict[str, str]:
    """Return the ConfigMap of a job after a restart in place."""
    built = snapshot(of.status(attempt=process, processAttempt=process)).pods_with_addresses()
    return dict(built.config().build().config_map.data)


@pytest.mark.parametrize("intranet", ["PodIP", "Service"])
@pytest.mark.parametrize(
    ("of", "role", "index", "expected"),
    [
        pytest.param(
            lambda: job().worker(2),
            Role.WORKER,
            1,
            {Env.GLOBAL_SIZE: "2", Env.TRAINERS_NUM: "2", Env.NNODES: "2"},
            id="collective",
        ),
        pytest.param(lambda: job().ps(2).worker(2), Role.PS, 1, {Env.TRAINERS_NUM: "2"}, id="server"),
        pytest.param(lambda: job().ps(1).worker(2).heter(1), Role.WORKER, 0, {}, id="heter, a worker"),
        pytest.param(lambda: job().ps(1).worker(2).heter(1), Role.HETER, 0, {}, id="heter"),
    ],
)
def test_a_restarted_program_gets_the_environment_of_a_new_pod(of, role, index, expected, intranet):
    """Compare with a pod that is created for the same attempt, as the kubelet resolves its environment."""
    data = published(of().spec(intranet=intranet), 3)
    env = process_env(data, role, index, 3)
    assert env[Env.ATTEMPT] == "3"
    assert env[Env.PROCESS_ATTEMPT] == "3"
    assert expected.items() <= env.items()
    assert not [name for name in env if name.startswith("PADDLEJOB_STARTS")]
    built = snapshot(of().spec(intranet=intranet).status(attempt=3, processAttempt=3))
    fresh = render_env(built, Replica(role, index), data)
    differing = {name: (value, fresh.get(name)) for name, value in env.items() if fresh.get(name) != value}
    assert not differing


def render_env(built, replica: Replica, data: dict[str, str]) -> dict[str, str]:
    manifest = render_pod(built.context(), replica)
    octet = {Role.PS: 1, Role.WORKER: 2, Role.HETER: 3}[replica.role]
    seen = {**manifest, "status": {"podIP": f"10.0.{octet}.{replica.index + 1}"}}
    contents = {name: value.encode() for name, value in data.items()}
    return kubelet.resolve(manifest["spec"]["containers"][0], Sources(seen, lambda _: contents))


def test_an_endpoint_that_is_not_listed_is_left_out():
    assert Env.CURRENT_ENDPOINT not in process_env({Env.TRAINER_ENDPOINTS: "a:1"}, Role.WORKER, 1, 1)


def test_each_restart_in_place_uses_other_ports():
    def ports(process: int, base: int = 0, intranet: str = "PodIP") -> str:
        of = job().worker(2).spec(intranet=intranet)
        of.status(attempt=process, processAttempt=process, baseAttempt=base, hostPort=40000)
        return snapshot(of).context().process_port

    first = [ports(process) for process in range(PORT_BLOCKS + 1)]
    assert len(set(first)) == PORT_BLOCKS
    assert first[0] == first[PORT_BLOCKS]
    assert {later - earlier for earlier, later in itertools.pairwise(first[:-1])} == {names.PORTS_PER_POD}
    assert ports(5, base=5) == first[0]
    assert ports(3, base=5) == first[0]
    assert ports(5, intranet="Host") == 40000
