"""Jobs that are refused, and in which words: one table for `validate` and for a real API server."""

from __future__ import annotations

from typing import Any, NamedTuple

from paddlejob.testing.build import JobBuilder, job

LONG = "a" * 55


class BadJob(NamedTuple):
    case: str
    job: JobBuilder
    field: str
    words: str
    """What `validate` says of the field."""
    server: str | None
    """What the API server says; None where only the operator can know."""


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
PADDLE = {"name": "paddle", "image": "paddle:test"}

BAD_NAMES = [
    BadJob(
        "a dot in the name",
        job("wide.deep").worker(),
        "metadata.name",
        "is \"wide.deep\", but a hostname begins with it; write '-'",
        "metadata.name: Invalid value: a hostname begins with the job's name; write '-' for each '.'",
    ),
    BadJob(
        "an upper-case letter in the name",
        job("Wide").worker(),
        "metadata.name",
        'is "Wide"; use lower-case letters',
        'metadata.name: Invalid value: "Wide"',
    ),
    BadJob(
        "a name that ends with a dash",
        job("wide-").worker(),
        "metadata.name",
        "no '-' at either end",
        'metadata.name: Invalid value: "wide-"',
    ),
    BadJob(
        "a service's name cannot begin with a digit",
        job("7b").worker().spec(intranet="Service"),
        "metadata.name",
        'is "7b", but a service\'s name begins with a letter',
        "metadata.name: Invalid value: a service's name begins with a letter; put one in front",
    ),
    BadJob(
        "a digit first and service written in lower case",
        job("7b").worker().spec(intranet="service"),
        "metadata.name",
        "a service's name begins with a letter",
        "a service's name begins with a letter",
    ),
    BadJob(
        "a worker's hostname would be too long",
        job(LONG).worker(11),
        "metadata.name",
        f"is 55 characters long, so that the pod {LONG}-worker-10 would have 65, "
        "but a hostname has at most 63; shorten it by 2",
        "metadata.name: Invalid value: the hostname <name>-worker-<highest index> would have more than 63",
    ),
    BadJob(
        "a heter pod's hostname would be too long although the workers' are not",
        job("a" * 53).worker(1).ps(1).heter(5000),
        "metadata.name",
        "-heter-4999 would have 64, but a hostname has at most 63; shorten it by 1",
        "metadata.name: Invalid value: the hostname <name>-heter-<highest index> would have more than 63",
    ),
]

BAD_TEXTS = [
    BadJob(
        "an unknown clean policy",
        job().worker().spec(cleanPodPolicy="Sometimes"),
        "spec.cleanPodPolicy",
        'is "Sometimes"; write Always, Never, OnFailure or OnCompletion',
        'spec.cleanPodPolicy: Invalid value: "Sometimes": write Always, Never, OnFailure or OnCompletion',
    ),
    BadJob(
        "an unknown clean policy under its other name",
        job().worker().spec(cleanPolicy="Sometimes"),
        "spec.cleanPolicy",
        'is "Sometimes"; write Always, Never, OnFailure or OnCompletion',
        'spec.cleanPolicy: Invalid value: "Sometimes": write Always, Never, OnFailure or OnCompletion',
    ),
    BadJob(
        "an unknown network",
        job().worker().spec(intranet="Mesh"),
        "spec.intranet",
        'is "Mesh"; write PodIP, Service or Host',
        'spec.intranet: Invalid value: "Mesh": write PodIP, Service or Host',
    ),
    BadJob(
        "gloo that does not exist",
        job().ps().worker().spec(withGloo=3),
        "spec.withGloo",
        "is 3; write 0 (off), 1 (workers) or 2 (workers and servers)",
        "spec.withGloo: Invalid value: 3: spec.withGloo in body should be less than or equal to 2",
    ),
    BadJob(
        "negative gloo",
        job().ps().worker().spec(withGloo=-1),
        "spec.withGloo",
        "is -1; write 0",
        "should be greater than or equal to 0",
    ),
]

BAD_ROLES = [
    BadJob(
        "no role at all",
        job(),
        "spec.worker",
        "is missing and nobody would train; add it",
        "spec: Invalid value: a job needs workers; add spec.worker with replicas and a template",
    ),
    BadJob(
        "servers without workers",
        job().ps(2),
        "spec.worker",
        "is missing and its parameter servers would serve nobody",
        "a job needs workers",
    ),
    BadJob(
        "heter without workers and servers",
        job().heter(),
        "spec.worker",
        "is missing and nobody would train",
        "a job needs workers",
    ),
    BadJob(
        "heter without servers",
        job().heter().worker(),
        "spec.heter",
        "needs parameter servers; add spec.ps",
        "spec.heter: Invalid value: heter pods need parameter servers; add spec.ps with 1 replica or more",
    ),
    BadJob(
        "heter with servers scaled to nothing",
        job().heter().worker().ps(0),
        "spec.heter",
        "needs parameter servers",
        "heter pods need parameter servers",
    ),
    BadJob(
        "zero workers",
        job().worker(0),
        "spec.worker.replicas",
        "is 0; write a number from 1 to 5000",
        "spec.worker.replicas in body should be greater than or equal to 1",
    ),
    BadJob(
        "less than no server",
        job().worker().ps(-1),
        "spec.ps.replicas",
        "is -1; write a number from 0 to 5000",
        "spec.ps.replicas in body should be greater than or equal to 0",
    ),
    BadJob(
        "more workers than endpoints fit",
        job().worker(5001),
        "spec.worker.replicas",
        "is 5001; write a number from 1 to 5000",
        "spec.worker.replicas in body should be less than or equal to 5000",
    ),
    BadJob(
        "more services than names fit into a variable",
        job("a" * 40, namespace="n" * 60).worker(4000).spec(intranet="Service"),
        "spec.worker.replicas",
        "is 4000, but only the names of 1091 pods fit into an environment variable; write less",
        None,
    ),
    BadJob(
        "a minimum above the replicas",
        job().spec(worker={"replicas": 2, "requests": 3, "template": {"spec": {"containers": [PADDLE]}}}),
        "spec.worker.requests",
        "is 3, more than the 2 replicas whose minimum it is; lower it",
        "spec.worker.requests: Invalid value: requests is the minimum of replicas; lower it",
    ),
    BadJob(
        "a maximum below the replicas",
        job().spec(worker={"replicas": 2, "limits": 1, "template": {"spec": {"containers": [PADDLE]}}}),
        "spec.worker.limits",
        "is 1, less than the 2 replicas whose maximum it is; raise it",
        "spec.worker.limits: Invalid value: limits is the maximum of replicas; raise it",
    ),
    BadJob(
        "a negative minimum",
        job().spec(worker={"replicas": 2, "requests": -1, "template": {"spec": {"containers": [PADDLE]}}}),
        "spec.worker.requests",
        "is -1; write a number from 0 to 5000",
        "should be greater than or equal to 0",
    ),
    BadJob(
        "a gang larger than the job",
        job().ps(1).worker(2).spec(schedulingPolicy={"minAvailable": 4}),
        "spec.schedulingPolicy.minAvailable",
        "is 4, but the job has 3 pods; write a number from 0 to 3",
        "spec.schedulingPolicy.minAvailable: Invalid value: minAvailable is more than all pods of the job",
    ),
    BadJob(
        "an amount that is none",
        job().worker().spec(schedulingPolicy={"minResources": {"memory": "4 Gi"}}),
        "spec.schedulingPolicy.minResources[memory]",
        'is "4 Gi"; write a quantity such as 2 or 4Gi',
        'spec.schedulingPolicy.minResources.memory: Invalid value: "4 Gi"',
    ),
]

BAD_TEMPLATES = [
    BadJob(
        "no template",
        job().spec(worker={"replicas": 2}),
        TEMPLATE,
        "is missing; describe the pods there, at least spec.containers",
        "spec.worker: Invalid value: template is missing; describe the pods there, at least spec.containers",
    ),
    BadJob(
        "a template without spec",
        template({"metadata": {}}),
        f"{TEMPLATE}.spec",
        "is missing; describe the pods there",
        "spec.worker.template.spec: Required value",
    ),
    BadJob(
        "a spec that is text",
        template({"spec": "containers"}),
        f"{TEMPLATE}.spec",
        'is "containers", but must be an object; check the indentation',
        "spec.worker.template.spec in body must be of type object",
    ),
    BadJob(
        "a template without containers",
        template({"spec": {"nodeName": "a"}}),
        CONTAINERS,
        "has no container; give at least one, with a name and an image",
        "spec.worker.template.spec.containers: Required value",
    ),
    BadJob(
        "an empty list of containers",
        containers(),
        CONTAINERS,
        "has no container",
        "spec.worker.template.spec.containers in body should have at least 1 items",
    ),
    BadJob(
        "containers that are no list",
        template({"spec": {"containers": PADDLE}}),
        CONTAINERS,
        "is an object, but must be a list; check the indentation",
        'unknown field "spec.worker.template.spec.containers.name"',
    ),
    BadJob(
        "a container that is only a name",
        containers("paddle"),
        FIRST,
        'is "paddle", but must be an object',
        "must be of type object",
    ),
    BadJob(
        "a container without a name",
        containers({"image": "paddle:test"}),
        f"{FIRST}.name",
        "is missing; name the container, for example paddle",
        "spec.worker.template.spec.containers[0].name: Required value",
    ),
    BadJob(
        "a container with an impossible name",
        containers({"name": "Paddle_1", "image": "paddle:test"}),
        f"{FIRST}.name",
        'is "Paddle_1"; use at most 63 lower-case letters',
        'spec.worker.template.spec.containers[0].name: Invalid value: "Paddle_1"',
    ),
    BadJob(
        "two containers of one name",
        containers(PADDLE, PADDLE),
        f"{CONTAINERS}[1].name",
        'is "paddle", like a container before it; rename one of them',
        "spec.worker.template.spec.containers[1]: Duplicate value",
    ),
    BadJob(
        "a container without an image",
        containers(PADDLE, {"name": "sidecar"}),
        f"{CONTAINERS}[1].image",
        "is missing; name the image that the container runs",
        "spec.worker.template.spec.containers[1].image: Required value",
    ),
    BadJob(
        "an empty image",
        containers({"name": "paddle", "image": ""}),
        f"{FIRST}.image",
        'is ""; name the image',
        "spec.worker.template.spec.containers[0].image in body should be at least 1 chars long",
    ),
    BadJob(
        "a restart policy that does not exist",
        job().worker(pod={"restartPolicy": "Newer"}),
        f"{TEMPLATE}.spec.restartPolicy",
        'is "Newer", which does not exist; write OnFailure or Never',
        'restartPolicy: Unsupported value: "Newer": supported values: "Always", "OnFailure", "Never"',
    ),
    BadJob(
        "workers that always start again",
        job().worker(pod={"restartPolicy": "Always"}),
        f"{TEMPLATE}.spec.restartPolicy",
        'is "Always", so that a worker which ended well would start again',
        "a worker which ended well would start again and the job would never be Completed; write OnFailure",
    ),
    BadJob(
        "a label that is a number",
        template({"metadata": {"labels": {"rank": 1}}, "spec": {"containers": [PADDLE]}}),
        f"{TEMPLATE}.metadata.labels[rank]",
        'is 1 without quotes, but must be text; write "1"',
        "spec.worker.template.metadata.labels.rank in body must be of type string",
    ),
    BadJob(
        "annotations that are a list",
        template({"metadata": {"annotations": ["a"]}, "spec": {"containers": [PADDLE]}}),
        f"{TEMPLATE}.metadata.annotations",
        "is a list, but must be an object",
        "spec.worker.template.metadata.annotations in body must be of type object",
    ),
]

BAD_ENVIRONMENTS = [
    BadJob(
        "the user's own rank",
        job().worker(env=env("PADDLE_TRAINER_ID")),
        f"{FIRST}.env[0]",
        "sets PADDLE_TRAINER_ID, which every pod gets its own value of; remove it",
        "every pod gets its own value of PADDLE_TRAINER_ID; remove it from env of the first container",
    ),
    BadJob(
        "the user's own address",
        job().worker(env=env("POD_IP")),
        f"{FIRST}.env[0]",
        "sets POD_IP, which every pod gets its own value of",
        "every pod gets its own value of POD_IP; remove it",
    ),
    BadJob(
        "the host's address for the pod's",
        job().worker(env=env("POD_IP", **from_status("status.hostIP"))),
        f"{FIRST}.env[0]",
        "sets POD_IP",
        "every pod gets its own value of POD_IP",
    ),
    BadJob(
        "the pod's address where the service's name is needed",
        job().worker(env=env("POD_IP", **from_status("status.podIP"))).spec(intranet="Service"),
        f"{FIRST}.env[0]",
        "sets POD_IP",
        None,
    ),
    BadJob(
        "a server's own port",
        job().worker().ps(env=[{"name": "A", "value": "1"}, *env("PADDLE_PORT")]),
        "spec.ps.template.spec.containers[0].env[1]",
        "sets PADDLE_PORT",
        "spec.ps.template.spec: Invalid value: every pod gets its own value of PADDLE_PORT",
    ),
    BadJob(
        "a variable that is a number",
        job().worker(env=env("EPOCHS", value=3)),
        f"{FIRST}.env[0].value",
        'is 3 without quotes, but must be text; write "3"',
        "spec.worker.template.spec.containers[0].env[0].value in body must be of type string",
    ),
    BadJob(
        "a variable without a name",
        job().worker(env=[{"value": "3"}]),
        f"{FIRST}.env[0].name",
        "is empty; name the variable",
        "spec.worker.template.spec.containers[0].env[0].name: Required value",
    ),
    BadJob(
        "variables as a map",
        job().worker(env={"EPOCHS": "3"}),
        f"{FIRST}.env",
        "is an object, but must be a list",
        'unknown field "spec.worker.template.spec.containers[0].env.EPOCHS"',
    ),
    BadJob(
        "a variable that is text",
        job().worker(env=["EPOCHS=3"]),
        f"{FIRST}.env[0]",
        'is "EPOCHS=3", but must be an object',
        "must be of type object",
    ),
    BadJob(
        "sources of variables as a map",
        job().worker(envFrom={"configMapRef": {"name": "a"}}),
        f"{FIRST}.envFrom",
        "is an object, but must be a list",
        None,
    ),
    BadJob(
        "limits that are a list",
        job().worker(resources={"limits": ["nvidia.com/gpu: 1"]}),
        f"{FIRST}.resources.limits",
        "is a list, but must be an object",
        None,
    ),
    BadJob(
        "claims that are no objects",
        job().worker(resources={"claims": ["gpu"]}),
        f"{FIRST}.resources.claims[0]",
        'is "gpu", but must be an object',
        None,
    ),
]

BAD_PORTS = [
    BadJob(
        "a port beyond the last",
        job().worker(ports=[port(70000)]),
        f"{FIRST}.ports[0].containerPort",
        "is 70000; write a number from 1 to 65535",
        None,
    ),
    BadJob(
        "a port without a number",
        job().worker(ports=[{"name": "http"}]),
        f"{FIRST}.ports[0].containerPort",
        "is empty; write a number from 1 to 65535",
        None,
    ),
    BadJob(
        "a port that is text",
        job().worker(ports=[port("80")]),
        f"{FIRST}.ports[0].containerPort",
        'is "80"; write a number',
        None,
    ),
    BadJob(
        "two numbers for one port of the host",
        job().worker(ports=[port(8080, hostPort=9090)]).spec(intranet="Host"),
        f"{FIRST}.ports[0].hostPort",
        "is 9090, but with intranet Host it is the containerPort 8080; remove it",
        None,
    ),
    BadJob(
        "two containers on one port of the host",
        containers({**PADDLE, "ports": [port(80)]}, {"name": "b", "image": "b", "ports": [port(80)]}).spec(
            intranet="HostNetwork"
        ),
        f"{CONTAINERS}[1].ports[0].containerPort",
        f"is 80, like {FIRST}.ports[0]; with intranet Host only one of them can have it",
        None,
    ),
]

BAD_JOBS = [*BAD_NAMES, *BAD_TEXTS, *BAD_ROLES, *BAD_TEMPLATES, *BAD_ENVIRONMENTS, *BAD_PORTS]
