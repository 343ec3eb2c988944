"""The environment contract: what each mode and network gives to each pod, as PaddlePaddle reads it."""

from __future__ import annotations

import msgspec
import pytest

from paddlejob.api import names
from paddlejob.api.names import LABEL_ROLE, PROTECTED_ENV
from paddlejob.api.v1 import Role
from paddlejob.core.attempts.elastic import with_rendezvous
from paddlejob.core.paddle_env import config_data, config_hash, hosts_of, pod_env
from paddlejob.core.pod_set import Replica, pod_set_of
from paddlejob.core.render import render_pod
from simkube.build import job, snapshot

PS = {"PADDLE_PSERVERS_IP_PORT_LIST"}
GLOO = {"PADDLE_WITH_GLOO", "PADDLE_GLOO_RENDEZVOUS", "PADDLE_GLOO_HTTP_ENDPOINT"}
GLOO_DIRECTORY = {"env": [{"name": "PADDLE_GLOO_FS_PATH", "value": "/shared/gloo"}]}
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


def test_servers_and_workers_meet_in_a_directory_apart_from_other_attempts():
    of = (
        job()
        .ps(1, **GLOO_DIRECTORY)
        .worker(1, **GLOO_DIRECTORY)
        .spec(withGloo=2, intranet="Service")
        .status(attempt=4, baseAttempt=3)
    )
    data = config_of(snapshot(of))
    assert (data["PADDLE_WITH_GLOO"], data["PADDLE_GLOO_RENDEZVOUS"]) == ("2", "2")
    assert data["SYS_JOB_ID"] == "default-demo-C28EEFEE-3"


HTTP_RENDEZVOUS = {
    "no directory": job().ps(1).worker(1).spec(withGloo=2),
    "a directory for the servers alone": job().ps(1, **GLOO_DIRECTORY).worker(1).spec(withGloo=2),
    "a directory for the workers alone": job().ps(1).worker(1, **GLOO_DIRECTORY).spec(withGloo=2),
    "gloo on workers": job().ps(1, **GLOO_DIRECTORY).worker(1, **GLOO_DIRECTORY),
    "heter pods, which Paddle would give the ranks of servers": job()
    .ps(1, **GLOO_DIRECTORY)
    .worker(1, **GLOO_DIRECTORY)
    .heter(1, **GLOO_DIRECTORY)
    .spec(withGloo=2),
}


@pytest.mark.parametrize("of", HTTP_RENDEZVOUS.values(), ids=HTTP_RENDEZVOUS)
def test_otherwise_the_workers_meet_over_http(of):
    data = config_of(snapshot(of).pods_with_addresses())
    assert data["PADDLE_GLOO_RENDEZVOUS"] == "3"
    assert "SYS_JOB_ID" not in data


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


def holding(resource: str, amount: int | str = 1) -> dict:
    return {"resources": {"limits": {resource: amount}}}


ONE_PROCESS = {
    "PADDLE_LOCAL_SIZE": "1",
    "PADDLE_LOCAL_RANK": "0",
    "PADDLE_RANK_IN_NODE": "0",
    "PADDLE_GLOBAL_RANK": "0",
    "PADDLE_GLOBAL_SIZE": {"configMapKeyRef": {"name": "demo", "key": "PADDLE_TRAINERS_NUM"}},
}
NO_DEVICE = {"PADDLE_XCCL_BACKEND": None, "FLAGS_selected_gpus": None, "PORT_RANGE": None}
ENV |= {
    "one process of a collective job": (job().worker(2), "worker", ONE_PROCESS | NO_DEVICE),
    "one process of a single job": (job().worker(1), "worker", ONE_PROCESS),
    "a heter pod with an NPU": (
        job().ps(1).worker(1).heter(1, **holding("huawei.com/Ascend910")),
        *("heter", {"HETER_DEVICE_TYPE": "npu"}),
    ),
    "one GPU": (
        job().worker(2, **GPU),
        "worker",
        {"FLAGS_selected_gpus": "0", "PADDLE_DISTRI_BACKEND": None},
    ),
    "a DCU, which is a GPU to Paddle": (
        job().worker(2, **holding("hygon.com/dcu")),
        *("worker", {"FLAGS_selected_gpus": "0", "PADDLE_XCCL_BACKEND": None}),
    ),
    "a part of a GPU": (
        job().worker(2, **holding("aliyun.com/gpu-mem", 8)),
        *("worker", {"FLAGS_selected_gpus": "0"}),
    ),
    "a part of a GPU of Baidu's cloud": (
        job().worker(2, **holding("baidu.com/a100_80g_cgpu")),
        *("worker", {"FLAGS_selected_gpus": "0", "FLAGS_selected_xpus": None}),
    ),
    "a claim": (
        job().worker(2, resources={"claims": [{"name": "card"}]}),
        *("worker", {"FLAGS_selected_gpus": "0"}),
    ),
    "one XPU": (
        job().worker(2, **holding("kunlunxin.com/xpu")),
        *("worker", {"FLAGS_selected_xpus": "0", "PADDLE_DISTRI_BACKEND": None, "FLAGS_selected_gpus": None}),
    ),
    "several cards need the launcher": (
        job().worker(2, **holding("nvidia.com/gpu", "8")),
        *("worker", {"FLAGS_selected_gpus": None, "PADDLE_DISTRI_BACKEND": None}),
    ),
    "several custom devices": (
        job().worker(2, **holding("huawei.com/ascend-1980", 8)),
        "worker",
        {"PADDLE_DISTRI_BACKEND": "xccl", "PADDLE_XCCL_BACKEND": "npu", "FLAGS_selected_npus": None},
    ),
    "a GPU of a PS trainer": (job().ps(1).worker(1, **GPU), "worker", {"FLAGS_selected_gpus": None}),
    "the launcher's ports on the host network": (
        job().worker(2).spec(intranet="Host").status(hostPort=40020),
        *("worker", {"PORT_RANGE": "40022:40039"}),
    ),
    "the launcher's ports behind services": (
        job().worker(2).spec(intranet="Service"),
        *("worker", {"PORT_RANGE": None}),
    ),
    "ports of parameter servers": (
        job().ps(1).worker(1).spec(intranet="Host").status(hostPort=40020),
        *("ps", {"PORT_RANGE": None}),
    ),
    **{
        f"one {resource}": (
            job().worker(2, **holding(resource)),
            "worker",
            {
                "PADDLE_DISTRI_BACKEND": "xccl",
                "PADDLE_XCCL_BACKEND": kind,
                f"FLAGS_selected_{kind}s": "0",
                "FLAGS_selected_gpus": None,
            },
        )
        for resource, kind in {
            "huawei.com/Ascend910": "npu",
            "huawei.com/Ascend310P": "npu",
            "cambricon.com/mlu": "mlu",
            "cambricon.com/mlu370": "mlu",
            "enflame.com/gcu": "gcu",
            "iluvatar.com/gpu": "iluvatar_gpu",
            "metax-tech.com/gpu": "metax_gpu",
        }.items()
    },
}


@pytest.mark.parametrize(("of", "role", "expected"), ENV.values(), ids=ENV.keys())
def test_the_environment_of(of, role, expected):
    env = env_of(snapshot(of), role)
    assert {name: env.get(name) for name in expected} == expected


def test_paddles_elastic_launcher_assigns_the_ranks():
    context = snapshot(job().worker(2, **holding("huawei.com/Ascend910")).spec(elastic=1)).context()
    spec = with_rendezvous(context.spec, context.job.spec, "10.0.0.9:2379")
    context = msgspec.structs.replace(context, spec=spec)
    env = {each["name"]: each.get("value") for each in pod_env(context, Replica(Role.WORKER, 1))}
    assert (env["PADDLE_RANK"], env["PADDLE_XCCL_BACKEND"]) == ("-1", "npu")
    assert not {"PADDLE_TRAINER_ID", "PADDLE_GLOBAL_RANK", "PADDLE_GLOBAL_SIZE"} & env.keys()


def test_the_launchers_ports_are_the_rest_of_the_block():
    """It needs one port for the master and one per process: a node has up to 16 cards."""
    first, last = names.LAUNCHER_PORT_OFFSET, names.PORTS_PER_POD - 1
    assert first > names.MASTER_PORT_OFFSET
    assert last - first + 1 >= 1 + 16


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
