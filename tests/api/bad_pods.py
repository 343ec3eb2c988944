"""Jobs that are refused for their pod templates: a table for `validate` and for a real API server."""

from __future__ import annotations

from typing import Any

from paddlejob.api.validation.template import HOST_NETWORK
from simkube.build import JobBuilder, job
from tests.api.bad_jobs import PADDLE, BadJob


def env(name: str, **source: Any) -> list[dict[str, Any]]:
    return [{"name": name, **(source or {"value": "1"})}]


def from_status(field: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": field}}}


def template(value: Any) -> JobBuilder:
    return job().spec(worker={"replicas": 1, "template": value})


def containers(*values: Any) -> JobBuilder:
    return template({"spec": {"containers": list(values)}})


def port(number: Any, **fields: Any) -> dict[str, Any]:
    return {"containerPort": number, **fields}


TEMPLATE = "spec.worker.template"
CONTAINERS = f"{TEMPLATE}.spec.containers"
FIRST = f"{CONTAINERS}[0]"

BAD_TEMPLATES = [
    BadJob(
        "no template",
        job().spec(worker={"replicas": 2}),
        TEMPLATE,
        "Required value: describe the pods, at least spec.containers",
        "spec.worker: Invalid value: template is missing; describe the pods there, at least spec.containers",
    ),
    BadJob(
        "a template without spec",
        template({"metadata": {}}),
        f"{TEMPLATE}.spec",
        "Required value: describe the pods, at least their containers",
        "spec.worker.template.spec: Required value",
    ),
    *(
        BadJob(
            f"the network of the node, with intranet {intranet}",
            job().ps(1).worker(2, pod={"hostNetwork": True}).spec(intranet=intranet),
            f"{TEMPLATE}.spec.hostNetwork",
            f"Invalid value: true: {HOST_NETWORK}",
            f"{TEMPLATE}.spec.hostNetwork: Invalid value: {HOST_NETWORK}",
        )
        for intranet in ("", "PodIP", "Service")
    ),
    BadJob(
        "the network of the node for servers alone",
        job().ps(1, pod={"hostNetwork": True}).worker(2),
        "spec.ps.template.spec.hostNetwork",
        f"Invalid value: true: {HOST_NETWORK}",
        f"spec.ps.template.spec.hostNetwork: Invalid value: {HOST_NETWORK}",
    ),
    BadJob(
        "a spec that is text",
        template({"spec": "containers"}),
        f"{TEMPLATE}.spec",
        'Invalid value: "containers": must be an object; check the indentation',
        "spec.worker.template.spec in body must be of type object",
    ),
    BadJob(
        "a template without containers",
        template({"spec": {"nodeName": "a"}}),
        CONTAINERS,
        "Required value: give at least one container, with a name and an image",
        "spec.worker.template.spec.containers: Required value",
    ),
    BadJob(
        "an empty list of containers",
        containers(),
        CONTAINERS,
        "Required value: give at least one container, with a name and an image",
        "spec.worker.template.spec.containers in body should have at least 1 items",
    ),
    BadJob(
        "containers that are no list",
        template({"spec": {"containers": PADDLE}}),
        CONTAINERS,
        "Invalid value: object: must be a list; check the indentation",
        'unknown field "spec.worker.template.spec.containers.name"',
    ),
    BadJob(
        "a container that is only a name",
        containers("paddle"),
        FIRST,
        'Invalid value: "paddle": must be an object; check the indentation',
        "must be of type object",
    ),
    BadJob(
        "a container without a name",
        containers({"image": "paddle:test"}),
        f"{FIRST}.name",
        "Required value: name the container, for example paddle",
        "spec.worker.template.spec.containers[0].name: Required value",
    ),
    BadJob(
        "a container with an impossible name",
        containers({"name": "Paddle_1", "image": "paddle:test"}),
        f"{FIRST}.name",
        "Invalid value: \"Paddle_1\": must be at most 63 lower-case letters, digits and '-', with a",
        'spec.worker.template.spec.containers[0].name: Invalid value: "Paddle_1"',
    ),
    BadJob(
        "two containers of one name",
        containers(PADDLE, PADDLE),
        f"{CONTAINERS}[1].name",
        'Duplicate value: "paddle": another container has this name',
        "spec.worker.template.spec.containers[1]: Duplicate value",
    ),
    BadJob(
        "a container without an image",
        containers(PADDLE, {"name": "sidecar"}),
        f"{CONTAINERS}[1].image",
        "Required value: name the image to run",
        "spec.worker.template.spec.containers[1].image: Required value",
    ),
    BadJob(
        "an empty image",
        containers({"name": "paddle", "image": ""}),
        f"{FIRST}.image",
        'Invalid value: "": must be the name of an image',
        "spec.worker.template.spec.containers[0].image in body should be at least 1 chars long",
    ),
    BadJob(
        "a restart policy that does not exist",
        job().worker(pod={"restartPolicy": "Newer"}),
        f"{TEMPLATE}.spec.restartPolicy",
        'Unsupported value: "Newer": supported values: "OnFailure", "Never"',
        'restartPolicy: Unsupported value: "Newer": supported values: "Always", "OnFailure", "Never"',
    ),
    BadJob(
        "workers that always start again",
        job().worker(pod={"restartPolicy": "Always"}),
        f"{TEMPLATE}.spec.restartPolicy",
        'Invalid value: "Always": must be OnFailure or Never: otherwise a worker that succeeded',
        "must be OnFailure or Never: otherwise a worker that succeeded would be restarted",
    ),
    BadJob(
        "a label that is a number",
        template({"metadata": {"labels": {"rank": 1}}, "spec": {"containers": [PADDLE]}}),
        f"{TEMPLATE}.metadata.labels[rank]",
        'Invalid value: 1: must be text; put it in quotes: "1"',
        "spec.worker.template.metadata.labels.rank in body must be of type string",
    ),
    BadJob(
        "annotations that are a list",
        template({"metadata": {"annotations": ["a"]}, "spec": {"containers": [PADDLE]}}),
        f"{TEMPLATE}.metadata.annotations",
        "Invalid value: list: must be an object; check the indentation",
        "spec.worker.template.metadata.annotations in body must be of type object",
    ),
]

BAD_ENVIRONMENTS = [
    BadJob(
        "the user's own rank",
        job().worker(env=env("PADDLE_TRAINER_ID")),
        f"{FIRST}.env[0]",
        "Forbidden: PADDLE_TRAINER_ID is set by the operator for every pod; remove it",
        "PADDLE_TRAINER_ID is set by the operator for every pod; remove it from env of the first container",
    ),
    BadJob(
        "the user's own address",
        job().worker(env=env("POD_IP")),
        f"{FIRST}.env[0]",
        "Forbidden: POD_IP is set by the operator for every pod; remove it",
        "POD_IP is set by the operator for every pod; remove it",
    ),
    BadJob(
        "the host's address for the pod's",
        job().worker(env=env("POD_IP", **from_status("status.hostIP"))),
        f"{FIRST}.env[0]",
        "Forbidden: POD_IP is set by the operator for every pod; remove it",
        "POD_IP is set by the operator for every pod",
    ),
    BadJob(
        "a server's own port",
        job().worker().ps(env=[{"name": "A", "value": "1"}, *env("PADDLE_PORT")]),
        "spec.ps.template.spec.containers[0].env[1]",
        "Forbidden: PADDLE_PORT is set by the operator for every pod; remove it",
        "spec.ps.template.spec: Invalid value: PADDLE_PORT is set by the operator for every pod",
    ),
    BadJob(
        "a variable that is a number",
        job().worker(env=env("EPOCHS", value=3)),
        f"{FIRST}.env[0].value",
        'Invalid value: 3: must be text; put it in quotes: "3"',
        "spec.worker.template.spec.containers[0].env[0].value in body must be of type string",
    ),
    BadJob(
        "a variable without a name",
        job().worker(env=[{"value": "3"}]),
        f"{FIRST}.env[0].name",
        "Required value: name the variable",
        "spec.worker.template.spec.containers[0].env[0].name: Required value",
    ),
    BadJob(
        "variables as a map",
        job().worker(env={"EPOCHS": "3"}),
        f"{FIRST}.env",
        "Invalid value: object: must be a list; check the indentation",
        'unknown field "spec.worker.template.spec.containers[0].env.EPOCHS"',
    ),
    BadJob(
        "a variable that is text",
        job().worker(env=["EPOCHS=3"]),
        f"{FIRST}.env[0]",
        'Invalid value: "EPOCHS=3": must be an object; check the indentation',
        "must be of type object",
    ),
    *(
        BadJob(
            f"{field} that are a map",
            job().worker(**{field: {"name": "a"}}),
            f"{FIRST}.{field}",
            "Invalid value: object: must be a list; check the indentation",
            None,
        )
        for field in ("envFrom", "volumeMounts")
    ),
    BadJob(
        "a volume mount that is text",
        job().worker(volumeMounts=["data"]),
        f"{FIRST}.volumeMounts[0]",
        'Invalid value: "data": must be an object; check the indentation',
        None,
    ),
    BadJob(
        "a volume that is text",
        job().worker(pod={"volumes": ["data"]}),
        f"{TEMPLATE}.spec.volumes[0]",
        'Invalid value: "data": must be an object; check the indentation',
        None,
    ),
    BadJob(
        "volumes that are a map",
        job().worker(pod={"volumes": {"name": "a"}}),
        f"{TEMPLATE}.spec.volumes",
        "Invalid value: object: must be a list; check the indentation",
        None,
    ),
    BadJob(
        "a security context that is text",
        job().worker(securityContext="readOnlyRootFilesystem"),
        f"{FIRST}.securityContext",
        'Invalid value: "readOnlyRootFilesystem": must be an object; check the indentation',
        None,
    ),
    BadJob(
        "limits that are a list",
        job().worker(resources={"limits": ["nvidia.com/gpu: 1"]}),
        f"{FIRST}.resources.limits",
        "Invalid value: list: must be an object; check the indentation",
        None,
    ),
    BadJob(
        "an amount with an exponent that fills the memory",
        job().worker(resources={"requests": {"cpu": "1e999999999"}}),
        f"{FIRST}.resources.requests[cpu]",
        'Invalid value: "1e999999999": must be a quantity such as 2, 500m or 4Gi',
        None,
    ),
    BadJob(
        "claims that are no objects",
        job().worker(resources={"claims": ["gpu"]}),
        f"{FIRST}.resources.claims[0]",
        'Invalid value: "gpu": must be an object; check the indentation',
        None,
    ),
]

BAD_MEETINGS = [
    *(
        BadJob(
            f"a master at {where}",
            job().worker(2, env=[*env("A"), *env("PADDLE_MASTER", value=where)]),
            f"{FIRST}.env[1]",
            f'Forbidden: PADDLE_MASTER "{where}" is a loopback address, so each worker would be its own',
            None,
        )
        for where in (
            "127.0.0.1:8080",
            "127.1.2.3",
            "localhost:36001",
            "LOCALHOST",
            "0.0.0.0:1",
            "[::1]:8080",
            "::1",
            "etcd://127.0.0.1:2379",
        )
    ),
    BadJob(
        "a launcher that ignores the master",
        job().worker(2, env=env("PADDLE_LAUNCH_WITH_ARGS")),
        f"{FIRST}.env[0]",
        'Forbidden: PADDLE_LAUNCH_WITH_ARGS "1" makes each launcher its own master, so the workers would',
        None,
    ),
    BadJob(
        "gloo without an endpoint",
        job().ps().worker(env=env("PADDLE_WITH_GLOO")).spec(withGloo=0),
        f"{FIRST}.env[0]",
        'Forbidden: PADDLE_WITH_GLOO "1" has no rendezvous endpoint while spec.withGloo is 0; remove',
        None,
    ),
    BadJob(
        "gloo with a rendezvous that needs an endpoint",
        job()
        .ps()
        .worker(env=[*env("PADDLE_WITH_GLOO", value="2"), *env("PADDLE_GLOO_RENDEZVOUS", value="3")])
        .spec(withGloo=0),
        f"{FIRST}.env[0]",
        'Forbidden: PADDLE_WITH_GLOO "2" has no rendezvous endpoint while spec.withGloo is 0; remove',
        None,
    ),
    BadJob(
        "gloo for the servers alone",
        job().ps().worker(env=env("PADDLE_WITH_GLOO", value="0")),
        f"{FIRST}.env[0]",
        'Forbidden: PADDLE_WITH_GLOO "0" for the worker alone makes the others wait forever; remove it,',
        None,
    ),
    BadJob(
        "gloo for the workers alone",
        job().ps(env=env("PADDLE_WITH_GLOO", value="0")).worker(env=env("PADDLE_WITH_GLOO")).spec(withGloo=2),
        "spec.ps.template.spec.containers[0].env[0]",
        'Forbidden: PADDLE_WITH_GLOO "0" for the ps alone makes the others wait forever; remove it, or',
        None,
    ),
]


def gloo_directory(path: str, *, volume: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a role whose pods meet in a directory."""
    return {
        "env": env("PADDLE_GLOO_FS_PATH", value=path),
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        "pod": {"volumes": [{"name": "shared", **volume}]},
    }


CLAIM = {"persistentVolumeClaim": {"claimName": "nfs-pvc"}}
BAD_MEETINGS += [
    BadJob(
        f"gloo in {name}",
        job().ps(**gloo_directory("/shared/gloo", volume=CLAIM)).worker(**fields).spec(withGloo=2),
        f"{FIRST}.env[0]",
        f'Forbidden: PADDLE_GLOO_FS_PATH "{fields["env"][0]["value"]}" is not on a volume that all pods '
        "share; mount a persistentVolumeClaim there in both templates, or set spec.withGloo to 1",
        None,
    )
    for name, fields in {
        "a directory of the container": gloo_directory("/tmp/gloo", volume=CLAIM),
        "a directory that begins like the mount": gloo_directory("/shared-2", volume=CLAIM),
        "an emptyDir": gloo_directory("/shared/gloo", volume={"emptyDir": {}}),
        "an emptyDir by default": gloo_directory("/shared/gloo", volume={}),
        "no volume": {"env": env("PADDLE_GLOO_FS_PATH", value="/shared")},
    }.items()
]

BAD_PORTS = [
    BadJob(
        "a port beyond the last",
        job().worker(ports=[port(70000)]),
        f"{FIRST}.ports[0].containerPort",
        "Invalid value: 70000: must be between 1 and 65535",
        None,
    ),
    BadJob(
        "a port without a number",
        job().worker(ports=[{"name": "http"}]),
        f"{FIRST}.ports[0].containerPort",
        "Required value: must be between 1 and 65535",
        None,
    ),
    BadJob(
        "a port that is text",
        job().worker(ports=[port("80")]),
        f"{FIRST}.ports[0].containerPort",
        'Invalid value: "80": must be between 1 and 65535',
        None,
    ),
    BadJob(
        "two numbers for one port of the host",
        job().worker(ports=[port(8080, hostPort=9090)]).spec(intranet="Host"),
        f"{FIRST}.ports[0].hostPort",
        "Invalid value: 9090: must be the containerPort 8080 with intranet Host; remove it",
        None,
    ),
    BadJob(
        "two containers on one port of the host",
        containers({**PADDLE, "ports": [port(80)]}, {"name": "b", "image": "b", "ports": [port(80)]}).spec(
            intranet="HostNetwork"
        ),
        f"{CONTAINERS}[1].ports[0].containerPort",
        f"Duplicate value: 80: also used by {FIRST}.ports[0]; with intranet Host remove one of them",
        None,
    ),
    BadJob(
        "two ports of one name",
        job().worker(ports=[port(80, name="a"), port(81, name="a")]),
        f"{FIRST}.ports[1].name",
        f'Duplicate value: "a": also used by {FIRST}.ports[0]',
        None,
    ),
    BadJob(
        "two ports of one name in a sidecar",
        containers(PADDLE, {"name": "b", "image": "b", "ports": [port(80, name="a"), port(81, name="a")]}),
        f"{CONTAINERS}[1].ports[1].name",
        f'Duplicate value: "a": also used by {CONTAINERS}[1].ports[0]',
        None,
    ),
    *(
        BadJob(
            f"a port called {name!r}",
            job().worker(ports=[port(80, name=name)]),
            f"{FIRST}.ports[0].name",
            "must be at most 15 lower-case letters, digits and single '-' between them",
            None,
        )
        for name in ("HTTP", "80", "a--b", "-a", "a-", "a.b", "sixteen-letters-", "seventeen-letters", 80)
    ),
    BadJob(
        "two containers with one port of the node",
        containers(
            {**PADDLE, "ports": [port(80, hostPort=8080)]},
            {"name": "b", "image": "b", "ports": [port(81, hostPort=8080)]},
        ),
        f"{CONTAINERS}[1].ports[0].hostPort",
        f"Duplicate value: 8080: also used by {FIRST}.ports[0]",
        None,
    ),
]


BAD_PODS = [*BAD_TEMPLATES, *BAD_ENVIRONMENTS, *BAD_MEETINGS, *BAD_PORTS]
