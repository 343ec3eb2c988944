from __future__ import annotations

import msgspec
import pytest

from paddlejob.api.v1 import Role
from paddlejob.core.pod_set import Replica
from paddlejob.core.render import render_config_map, render_pod, render_service
from simkube.build import job, snapshot

WORKER = Replica(Role.WORKER, 0)


def pod_of(of, replica: Replica = WORKER, **more):
    return render_pod(snapshot(of).context(), replica, **more)


def spec_of(of, replica: Replica = WORKER):
    return pod_of(of, replica)["spec"]


def first_of(of, replica: Replica = WORKER):
    return spec_of(of, replica)["containers"][0]


def test_a_pod_is_named_labelled_and_owned():
    metadata = pod_of(job("train", "team").worker(1))["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("train-worker-0", "team")
    assert metadata["labels"] == {
        "batch.paddlepaddle.org/job-name": "train",
        "batch.paddlepaddle.org/role": "worker",
        "batch.paddlepaddle.org/index": "0",
        "batch.paddlepaddle.org/attempt": "0",
        "paddle-res-name": "train-worker-0",
        "paddle-res-type": "worker",
    }
    assert metadata["annotations"] == {"paddle-resource": "worker"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "batch.paddlepaddle.org/v1",
            "kind": "PaddleJob",
            "name": "train",
            "uid": "uid-train",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_the_template_passes_through_with_fields_nobody_knows():
    pod = {
        "futureField": {"a": [1]},
        "nodeSelector": {"disk": "ssd"},
        "initContainers": [{"name": "prepare"}],
    }
    spec = spec_of(job().worker(1, pod=pod, securityContext={"futureFlag": True}))
    assert {key: spec[key] for key in pod} == pod
    assert spec["containers"][0]["securityContext"] == {"futureFlag": True}


def test_template_metadata_is_kept_and_ours_wins():
    of = job().worker(1)
    of.manifest["spec"]["worker"]["template"]["metadata"] = {
        "name": "ignored",
        "namespace": "kube-system",
        "labels": {"team": "ads", "paddle-res-type": "wrong"},
        "annotations": {"note": "x"},
    }
    metadata = pod_of(of)["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("demo-worker-0", "default")
    assert metadata["labels"]["team"] == "ads"
    assert metadata["labels"]["paddle-res-type"] == "worker"
    assert metadata["annotations"]["note"] == "x"


def test_rendering_leaves_the_job_untouched():
    built = snapshot(
        job()
        .worker(1, env=[{"name": "A", "value": "1"}], ports=[{"containerPort": 80}])
        .spec(intranet="Host")
    )
    before = repr(built.job)
    render_pod(built.context(), WORKER)
    assert repr(built.job) == before


def test_other_containers_are_untouched():
    of = job().worker(1)
    sidecar = {"name": "sidecar", "image": "x"}
    of.manifest["spec"]["worker"]["template"]["spec"]["containers"].append(sidecar)
    assert spec_of(of)["containers"][1] == sidecar


def test_the_environment_comes_from_the_config_map_after_the_users_sources():
    given = [{"secretRef": {"name": "mine"}}]
    assert first_of(job().worker(1, envFrom=given))["envFrom"] == [*given, {"configMapRef": {"name": "demo"}}]


def test_user_variables_come_after_ours_so_that_they_may_refer_to_them():
    env = first_of(job().worker(1, env=[{"name": "WHO", "value": "$(PADDLE_TRAINER_ID)"}]))["env"]
    names = [one["name"] for one in env]
    assert names.index("POD_IP") < names.index("PADDLE_CURRENT_ENDPOINT") < names.index("WHO")


def test_the_users_own_pod_ip_is_not_doubled():
    own = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    names = [one["name"] for one in first_of(job().worker(1, env=[own]))["env"]]
    assert names.count("POD_IP") == 1


RESTART = {
    "a worker behind a service restarts in place": ("Service", 0, "worker", {}, "OnFailure"),
    "but not into a gloo meeting that is over": ("Service", 1, "worker", {}, "Never"),
    "a server never does": ("Service", 0, "ps", {}, "Never"),
    "nor does a worker with an address": ("PodIP", 0, "worker", {}, "Never"),
    "nor on the host network": ("Host", 0, "worker", {}, "Never"),
    "null is the same as absent": ("PodIP", 1, "worker", {"restartPolicy": None}, "Never"),
    "the user's wish wins": ("PodIP", 1, "worker", {"restartPolicy": "Always"}, "Always"),
}


@pytest.mark.parametrize(
    ("intranet", "gloo", "role", "pod", "expected"), RESTART.values(), ids=RESTART.keys()
)
def test_restart_policy(intranet, gloo, role, pod, expected):
    of = job().ps(1, pod=pod).worker(1, pod=pod).spec(intranet=intranet, withGloo=gloo).status(hostPort=40000)
    assert spec_of(of, Replica(Role(role), 0))["restartPolicy"] == expected


def test_last_words_are_kept_unless_the_user_says_otherwise():
    assert first_of(job().worker(1))["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert first_of(job().worker(1, terminationMessagePolicy="File"))["terminationMessagePolicy"] == "File"


def test_the_host_network_declares_its_block_of_ports():
    of = job().worker(1).spec(intranet="Host").status(hostPort=40000)
    spec = spec_of(of)
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    ports = spec["containers"][0]["ports"]
    assert [port["hostPort"] for port in ports] == list(range(40000, 40020))
    assert all(port["containerPort"] == port["hostPort"] for port in ports)


PORTS = {
    "pod addresses need none": ("PodIP", [], None),
    "a service's port is declared": ("Service", [], [{"containerPort": 36000, "protocol": "TCP"}]),
    "but not twice": ("Service", [{"containerPort": 36000}], [{"containerPort": 36000}]),
    "the user's ports stay": (
        "Service",
        [{"containerPort": 80}],
        [{"containerPort": 80}, {"containerPort": 36000, "protocol": "TCP"}],
    ),
}


@pytest.mark.parametrize(("intranet", "given", "expected"), PORTS.values(), ids=PORTS.keys())
def test_ports(intranet, given, expected):
    of = job().worker(1, **({"ports": given} if given else {})).spec(intranet=intranet)
    assert first_of(of).get("ports") == expected


def test_a_pod_behind_a_service_has_its_name_as_hostname():
    spec = spec_of(job().worker(1).spec(intranet="Service"))
    assert (spec["hostname"], spec["subdomain"]) == ("demo-worker-0", "demo-worker-0")


def test_a_pod_with_an_ipv6_address_has_a_name_too():
    built = snapshot(job().worker(2)).with_settings(pods_have_ipv6=True)
    spec = render_pod(built.context(), Replica(Role.WORKER, 0))["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("demo-worker-0", "demo-worker-0")
    assert spec["containers"][0]["ports"] == [{"containerPort": 36000, "protocol": "TCP"}]


def test_a_pod_on_the_network_of_an_ipv6_node_keeps_its_host_ports():
    of = job().worker(2).spec(intranet="Host").status(hostPort=40020)
    spec = render_pod(snapshot(of).with_settings(pods_have_ipv6=True).context(), Replica(Role.WORKER, 0))[
        "spec"
    ]
    assert (spec["hostNetwork"], "hostname" in spec) == (True, False)
    assert [port["hostPort"] for port in spec["containers"][0]["ports"]] == list(range(40020, 40040))


def test_a_pod_created_after_its_config_map_is_marked_at_once():
    assert (
        pod_of(job().worker(1), config_hash="abc")["metadata"]["annotations"][
            "batch.paddlepaddle.org/config-hash"
        ]
        == "abc"
    )


def test_finalizers_of_the_template_are_on_the_pod():
    built = job().worker(1)
    built.manifest["spec"]["worker"]["template"]["metadata"] = {"finalizers": ["example.org/backup"]}
    pod = render_pod(snapshot(built).context(), Replica(Role.WORKER, 0))
    assert pod["metadata"]["finalizers"] == ["example.org/backup"]


def test_a_service_is_headless_and_answers_before_readiness():
    service = render_service(snapshot(job().ps(1).worker(1)).context(), Replica(Role.PS, 0))
    assert service["metadata"]["name"] == "demo-ps-0"
    spec = service["spec"]
    assert (spec["clusterIP"], spec["publishNotReadyAddresses"]) == ("None", True)
    assert spec["ipFamilyPolicy"] == "PreferDualStack"
    assert spec["selector"] == {"paddle-res-name": "demo-ps-0"}
    assert [port["port"] for port in spec["ports"]] == list(range(36000, 36020))
    assert [port["name"] for port in spec["ports"]][:2] == ["p-0", "p-1"]


def test_the_config_map_is_named_after_the_job():
    config = render_config_map(job().worker(1).build(), {"A": "1"})
    assert config["metadata"]["name"] == "demo"
    assert config["metadata"]["labels"]["paddle-res-name"] == "demo"
    assert config["data"] == {"A": "1"}


READ_ONLY = {"securityContext": {"readOnlyRootFilesystem": True}}
LAUNCH = ["python", "-m", "paddle.distributed.launch"]
OWN_LOG_DIR = [{"name": "PADDLE_LOG_DIR", "value": "/output/log"}]


@pytest.mark.parametrize(
    ("of", "role", "is_recorded", "has_logs"),
    [
        pytest.param(job().worker(2), Role.WORKER, True, True, id="recorded"),
        pytest.param(job().worker(1), Role.WORKER, True, True, id="recorded, single"),
        pytest.param(job().worker(2), Role.WORKER, False, False, id="not recorded"),
        pytest.param(job().worker(2, **READ_ONLY), Role.WORKER, False, True, id="read-only"),
        pytest.param(
            job().worker(2, securityContext={"readOnlyRootFilesystem": False}),
            *(Role.WORKER, False, False),
            id="writable",
        ),
        pytest.param(
            job().worker(2, securityContext={"runAsUser": 1000}), Role.WORKER, False, True, id="another user"
        ),
        pytest.param(
            job().worker(2, pod={"securityContext": {"runAsNonRoot": True}}),
            *(Role.WORKER, False, True),
            id="another user in all containers",
        ),
        pytest.param(
            job().worker(2, pod={"securityContext": {"runAsUser": 1000}}, securityContext={"runAsUser": 0}),
            *(Role.WORKER, False, False),
            id="root in this container",
        ),
        pytest.param(job().ps(1).worker(1), Role.PS, True, False, id="ps"),
        pytest.param(job().ps(1).worker(1, **READ_ONLY), Role.WORKER, True, False, id="trainer of a ps job"),
        pytest.param(
            job().worker(2, env=OWN_LOG_DIR), Role.WORKER, True, False, id="a variable of the template"
        ),
        pytest.param(
            job().worker(2, command=[*LAUNCH, "--log_dir=/output", "train.py"]),
            *(Role.WORKER, True, False),
            id="a flag of the command",
        ),
        pytest.param(
            job().worker(2, command=["sh", "-c"], args=["fleetrun --log_dir /output train.py"]),
            *(Role.WORKER, True, False),
            id="a flag in the arguments of a shell",
        ),
    ],
)
def test_the_launcher_logs_to_a_volume(of, role: Role, is_recorded: bool, has_logs: bool):
    context = msgspec.structs.replace(snapshot(of).context(), keeps_launcher_logs=is_recorded)
    spec = render_pod(context, Replica(role, 0))["spec"]
    first = spec["containers"][0]
    assert ({"name": "paddlejob-logs", "emptyDir": {}} in spec.get("volumes", ())) is has_logs
    assert ("/var/log/paddlejob" in [each["mountPath"] for each in first.get("volumeMounts", ())]) is has_logs
    logs = [each["value"] for each in first["env"] if each["name"] == "PADDLE_LOG_DIR"]
    assert (logs == ["/var/log/paddlejob"]) is has_logs
    assert len(logs) <= 1


@pytest.mark.parametrize("path", ["/var/log/paddlejob", "/var/log/paddlejob/"])
def test_the_launcher_logs_to_a_volume_of_the_template(path):
    mount = {"name": "shared", "mountPath": path}
    of = job().worker(2, volumeMounts=[mount])
    context = msgspec.structs.replace(snapshot(of).context(), keeps_launcher_logs=True)
    pod_spec = render_pod(context, Replica(Role.WORKER, 0))["spec"]
    (first,) = pod_spec["containers"]
    assert first["volumeMounts"] == [mount]
    assert {"name": "PADDLE_LOG_DIR", "value": "/var/log/paddlejob"} in first["env"]
    assert pod_spec["volumes"] == []


def test_a_volume_of_the_template_with_the_name_of_the_launchers_is_not_added_twice():
    volume, mount = (
        {"name": "paddlejob-logs", "emptyDir": {}},
        {"name": "paddlejob-logs", "mountPath": "/logs"},
    )
    spec = spec_of(job().worker(1, pod={"volumes": [volume]}, volumeMounts=[mount], **READ_ONLY))
    assert spec["volumes"] == [volume]
    assert spec["containers"][0]["volumeMounts"] == [mount, {**mount, "mountPath": "/var/log/paddlejob"}]


def test_the_volumes_of_the_template_are_kept():
    mount, volume = {"name": "data", "mountPath": "/data"}, {"name": "data"}
    spec = spec_of(job().worker(1, pod={"volumes": [volume]}, volumeMounts=[mount], **READ_ONLY))
    assert spec["volumes"][0] == volume
    assert spec["containers"][0]["volumeMounts"][0] == mount
