"""The environment contract: what each mode and network gives to each pod, as PaddlePaddle reads it."""

from __future__ import annotations

import pytest

from paddlejob.api.names import LABEL_ROLE, PROTECTED_ENV
from paddlejob.api.v1 import Role
from paddlejob.core.paddle_env import config_data, config_hash, hosts_of, pod_env
from paddlejob.core.pod_set import Replica, pod_set_of
from paddlejob.core.render import render_pod
from paddlejob.testing.build import job, snapshot

PS = {"PADDLE_PSERVERS_IP_PORT_LIST"}
GLOO = {"PADDLE_WITH_GLOO", "PADDLE_GLOO_RENDEZVOUS", "PADDLE_GLOO_HTTP_ENDPOINT"}
COLLECTIVE = {"PADDLE_MASTER", "PADDLE_NNODES"}
ALWAYS = {
    "PADDLE_PORT",
    "TRAINER_PORTS_NUM",
    "PADDLE_JOB_ID",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_TRAINERS",
    "PADDLE_TRAINERS_NUM",
    "PADDLEJOB_ATTEMPT_0_C28EEFEE",
}
FROM_STATUS = {"fieldRef": {"fieldPath": "status.podIP"}}
GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def config_of(built) -> dict[str, str]:
    pod_set = pod_set_of(built.job.name, built.spec.roles, built.build().pods)
    return config_data(built.context(), hosts_of(built.context(), pod_set))


def env_of(built, role: str, index: int = 0) -> dict[str, object]:
    variables = list(pod_env(built.context(), Replica(Role(role), index)))
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in variables}


KEYS = {
    "PS has servers and gloo": (job().ps(2).worker(2), ALWAYS | PS | GLOO),
    "PS without gloo": (job().ps(1).worker(1).spec(withGloo=0), ALWAYS | PS),
    "collective has a master and no servers": (job().worker(2), ALWAYS | COLLECTIVE),
    "collective ignores withGloo": (job().worker(2).spec(withGloo=1), ALWAYS | COLLECTIVE),
    "single is a collective of one": (job().worker(1), ALWAYS | COLLECTIVE),
    "heter adds the heter pods": (
        job().ps(1).worker(1).heter(1),
        ALWAYS | PS | GLOO | {"PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"},
    ),
}


@pytest.mark.parametrize(("of", "keys"), KEYS.values(), ids=KEYS.keys())
def test_the_config_map_has_exactly(of, keys):
    assert set(config_of(snapshot(of).pods_with_addresses())) == keys


def test_the_values_of_a_ps_job():
    assert config_of(snapshot(job().ps(2).worker(2).spec(withGloo=2)).pods_with_addresses()) == {
        "PADDLE_PORT": "36000",
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_JOB_ID": "default-demo",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.2.1:36000,10.0.2.2:36000",
        "PADDLE_TRAINERS": "10.0.2.1,10.0.2.2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.1.1:36000,10.0.1.2:36000",
        "PADDLE_WITH_GLOO": "2",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "10.0.1.1:36018",
        "PADDLEJOB_ATTEMPT_0_C28EEFEE": "0",
    }


def test_service_endpoints_are_dotted_names_known_beforehand():
    data = config_of(snapshot(job().ps(1).worker(1).spec(intranet="Service")))
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == "demo-ps-0.default:36000"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "demo-worker-0.default:36000"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "demo-ps-0.default:36018"


def test_host_ports_reach_every_variable():
    of = job().ps(1).worker(1).spec(intranet="Host").status(hostPort=40020)
    data = config_of(snapshot(of).pods_with_addresses())
    assert data["PADDLE_PORT"] == "40020"
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == "10.0.1.1:40020"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == "10.0.1.1:40038"


@pytest.mark.parametrize("missing", ["ps", "worker"])
def test_there_is_no_config_before_the_last_address(missing):
    built = snapshot(job().ps(1).worker(1)).pods_with_addresses().pod(missing, 0)
    pod_set = pod_set_of("demo", built.spec.roles, built.build().pods)
    assert hosts_of(built.context(), pod_set) is None


def test_a_leaving_pod_lends_nobody_its_address():
    built = snapshot(job().worker(2)).pods_with_addresses().leaving("worker", 1)
    assert hosts_of(built.context(), pod_set_of("demo", built.spec.roles, built.build().pods)) is None


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
@pytest.mark.parametrize("pods_have_ipv6", [False, True])
def test_every_pod_finds_itself_in_the_lists_as_text(intranet, pods_have_ipv6):
    of = job().ps(1).worker(1).heter(1).spec(intranet=intranet)
    built = snapshot(of).with_settings(pods_have_ipv6=pods_have_ipv6).pods_with_addresses()
    config = config_of(built)
    lists = {
        "ps": "PADDLE_PSERVERS_IP_PORT_LIST",
        "worker": "PADDLE_TRAINER_ENDPOINTS",
        "heter": "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST",
    }
    for pod in built.build().pods:
        role = pod.metadata.labels[LABEL_ROLE]
        address = env_of(built, role)["POD_IP"]
        own = pod.status.pod_ip if address == FROM_STATUS else address
        assert config[lists[role]] == f"{own}:{config['PADDLE_PORT']}"
        assert env_of(built, role)["PADDLE_CURRENT_ENDPOINT"] == f"$(POD_IP):{config['PADDLE_PORT']}"


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
def test_pods_with_ipv6_addresses_are_called_by_names_that_paddle_can_split(intranet):
    of = job().ps(1).worker(1).spec(intranet=intranet)
    data = config_of(snapshot(of).with_settings(pods_have_ipv6=True))
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"].split(":") == ["demo-ps-0.default", "36000"]
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"].split(":") == ["demo-ps-0.default", "36018"]


ENV = {
    "a server": (
        job().ps(1).worker(1),
        "ps",
        {"TRAINING_ROLE": "PSERVER", "PADDLE_TRAINING_ROLE": "PSERVER"},
    ),
    "a trainer": (job().ps(1).worker(2), "worker", {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0"}),
    "a collective worker": (
        job().worker(2),
        "worker",
        {
            "PADDLE_RANK": "0",
            "PADDLE_DISTRI_BACKEND": "gloo",
            "PADDLE_CURRENT_ENDPOINT": "$(POD_IP):36000",
            "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
    ),
    "a pod behind a service": (
        job().worker(2).spec(intranet="Service"),
        "worker",
        {"POD_IP": "demo-worker-0.default", "PADDLE_CURRENT_ENDPOINT": "$(POD_IP):36000"},
    ),
    "a worker before a heter stage": (
        job().ps(1).worker(2).heter(3),
        "worker",
        {
            "STAGE_ID": "1",
            "STAGE_NUM": "2",
            "PADDLE_STAGE_TRAINERS_NUM": "[2, 3]",
            "HETER_DEVICE_TYPE": "cpu",
            "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST": "",
            "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST": {
                "configMapKeyRef": {"name": "demo", "key": "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"}
            },
        },
    ),
    "a heter pod with a GPU": (
        job().ps(1).worker(1).heter(1, **GPU),
        "heter",
        {
            "TRAINING_ROLE": "HETER_TRAINER",
            "STAGE_ID": "2",
            "HETER_DEVICE_TYPE": "gpu",
            "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST": "",
            "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST": {
                "configMapKeyRef": {"name": "demo", "key": "PADDLE_TRAINER_ENDPOINTS"}
            },
        },
    ),
}


@pytest.mark.parametrize(("of", "role", "expected"), ENV.values(), ids=ENV.keys())
def test_the_environment_of(of, role, expected):
    env = env_of(snapshot(of), role)
    assert {name: env.get(name) for name in expected} == expected


ABSENT = {
    "a GPU pod is not told to use gloo": (job().worker(2, **GPU), "worker", "PADDLE_DISTRI_BACKEND"),
    "a PS trainer has no collective backend": (job().ps(1).worker(1), "worker", "PADDLE_DISTRI_BACKEND"),
    "a server has no collective rank": (job().ps(1).worker(1), "ps", "PADDLE_RANK"),
    "a server of a heter job has no stage": (job().ps(1).worker(1).heter(1), "ps", "STAGE_ID"),
    "a PS trainer has no stage": (job().ps(1).worker(1), "worker", "STAGE_ID"),
}


@pytest.mark.parametrize(("of", "role", "name"), ABSENT.values(), ids=ABSENT.keys())
def test_the_environment_lacks(of, role, name):
    assert name not in env_of(snapshot(of), role)


def test_the_hash_follows_the_content_not_the_order():
    assert config_hash({"a": "1", "b": "2"}) == config_hash({"b": "2", "a": "1"})
    assert config_hash({"a": "1"}) != config_hash({"a": "2"})


def test_every_identity_variable_is_protected():
    identity = {"POD_IP", "PADDLE_TRAINER_ID", "TRAINING_ROLE", "PADDLE_CURRENT_ENDPOINT", "PADDLE_RANK"}
    assert identity <= PROTECTED_ENV


def test_a_name_takes_the_place_of_the_address_that_a_user_asks_for():
    address = {"name": "POD_IP", "valueFrom": FROM_STATUS}
    built = snapshot(job().worker(2, env=[address]).spec(intranet="Service"))
    env = render_pod(built.context(), Replica(Role.WORKER, 0))["spec"]["containers"][0]["env"]
    assert [one for one in env if one["name"] == "POD_IP"] == [
        {"name": "POD_IP", "value": "demo-worker-0.default"}
    ]


def test_a_user_variable_wins_where_it_is_safe():
    built = snapshot(job().worker(2, env=[{"name": "PADDLE_DISTRI_BACKEND", "value": "nccl"}]))
    env = render_pod(built.context(), Replica(Role.WORKER, 0))["spec"]["containers"][0]["env"]
    assert [one["value"] for one in env if one["name"] == "PADDLE_DISTRI_BACKEND"] == ["nccl"]
