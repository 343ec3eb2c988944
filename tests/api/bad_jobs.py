"""Jobs that are refused, and in which words: one table for `validate` and for a real API server."""

from __future__ import annotations

from typing import Any, NamedTuple

from paddlejob.api.validation.spares import NEEDS_IN_PLACE, NEEDS_POD_IP, NOT_ELASTIC, ONLY_COLLECTIVE
from simkube.build import JobBuilder, job

LONG = "a" * 55


class BadJob(NamedTuple):
    case: str
    job: JobBuilder
    field: str
    words: str
    """What `validate` says of the field."""
    server: str | None
    """What the API server says; None where only the operator can know."""


PADDLE = {"name": "paddle", "image": "paddle:test"}

BAD_NAMES = [
    BadJob(
        "a dot in the name",
        job("wide.deep").worker(),
        "metadata.name",
        "must not contain '.', which pods' hostnames cannot contain; use '-'",
        "metadata.name: Invalid value: must not contain '.', which pods' hostnames cannot contain; use '-'",
    ),
    BadJob(
        "an upper-case letter in the name",
        job("Wide").worker(),
        "metadata.name",
        "Invalid value: \"Wide\": must consist of lower-case letters, digits and '-', with a letter or",
        'metadata.name: Invalid value: "Wide"',
    ),
    BadJob(
        "a name that ends with a dash",
        job("wide-").worker(),
        "metadata.name",
        "Invalid value: \"wide-\": must consist of lower-case letters, digits and '-', with a letter or",
        'metadata.name: Invalid value: "wide-"',
    ),
    BadJob(
        "a service's name cannot begin with a digit",
        job("7b").worker().spec(intranet="Service"),
        "metadata.name",
        'Invalid value: "7b": must begin with a letter, as names of Services do; rename the job or',
        "metadata.name: Invalid value: must begin with a letter, as names of Services do",
    ),
    BadJob(
        "a digit first and service written in lower case",
        job("7b").worker().spec(intranet="service"),
        "metadata.name",
        'Invalid value: "7b": must begin with a letter, as names of Services do; rename the job or',
        "must begin with a letter, as names of Services do",
    ),
    BadJob(
        "a worker's hostname would be too long",
        job(LONG).worker(11),
        "metadata.name",
        f"must be at most 53 characters long, because pod {LONG}-worker-10 would have 65",
        "metadata.name: Invalid value: the hostname <name>-worker-<highest index> would have more than 63",
    ),
    BadJob(
        "a heter pod's hostname would be too long although the workers' are not",
        job("a" * 53).worker(1).ps(1).heter(5000),
        "metadata.name",
        'Invalid value: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": must be at most 52',
        "metadata.name: Invalid value: the hostname <name>-heter-<highest index> would have more than 63",
    ),
]

BAD_TEXTS = [
    BadJob(
        "an unknown clean policy",
        job().worker().spec(cleanPodPolicy="Sometimes"),
        "spec.cleanPodPolicy",
        'Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure", "OnCompletion"',
        'spec.cleanPodPolicy: Invalid value: "Sometimes": must be Always, Never, OnFailure or OnCompletion',
    ),
    BadJob(
        "an unknown clean policy under its other name",
        job().worker().spec(cleanPolicy="Sometimes"),
        "spec.cleanPolicy",
        'Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure", "OnCompletion"',
        'spec.cleanPolicy: Invalid value: "Sometimes": must be Always, Never, OnFailure or OnCompletion',
    ),
    BadJob(
        "an unknown network",
        job().worker().spec(intranet="Mesh"),
        "spec.intranet",
        'Unsupported value: "Mesh": supported values: "PodIP", "Service", "Host"',
        'spec.intranet: Invalid value: "Mesh": must be PodIP, Service or Host',
    ),
    BadJob(
        "gloo that does not exist",
        job().ps().worker().spec(withGloo=3),
        "spec.withGloo",
        "Invalid value: 3: must be between 0 and 2",
        "spec.withGloo: Invalid value: 3: spec.withGloo in body should be less than or equal to 2",
    ),
    BadJob(
        "negative gloo",
        job().ps().worker().spec(withGloo=-1),
        "spec.withGloo",
        "Invalid value: -1: must be between 0 and 2",
        "should be greater than or equal to 0",
    ),
]

BAD_ROLES = [
    BadJob(
        "no role at all",
        job(),
        "spec.worker",
        "Required value: a job needs workers; add replicas and a template",
        "spec: Invalid value: a job needs workers; add spec.worker with replicas and a template",
    ),
    BadJob(
        "servers without workers",
        job().ps(2),
        "spec.worker",
        "Required value: a job needs workers; add replicas and a template",
        "a job needs workers",
    ),
    BadJob(
        "heter without workers and servers",
        job().heter(),
        "spec.worker",
        "Required value: a job needs workers; add replicas and a template",
        "a job needs workers",
    ),
    BadJob(
        "heter without servers",
        job().heter().worker(),
        "spec.heter",
        "Forbidden: heter pods need parameter servers; add spec.ps or remove spec.heter",
        "spec.heter: Invalid value: heter pods need parameter servers; add spec.ps with 1 replica or more",
    ),
    BadJob(
        "heter with servers scaled to nothing",
        job().heter().worker().ps(0),
        "spec.heter",
        "Forbidden: heter pods need parameter servers; add spec.ps or remove spec.heter",
        "heter pods need parameter servers",
    ),
    BadJob(
        "zero workers",
        job().worker(0),
        "spec.worker.replicas",
        "Invalid value: 0: must be between 1 and 5000",
        "spec.worker.replicas in body should be greater than or equal to 1",
    ),
    BadJob(
        "less than no server",
        job().worker().ps(-1),
        "spec.ps.replicas",
        "Invalid value: -1: must be between 0 and 5000",
        "spec.ps.replicas in body should be greater than or equal to 0",
    ),
    BadJob(
        "more workers than endpoints fit",
        job().worker(5001),
        "spec.worker.replicas",
        "Invalid value: 5001: must be between 1 and 5000",
        "spec.worker.replicas in body should be less than or equal to 5000",
    ),
    BadJob(
        "more services than names fit into a variable",
        job("a" * 40, namespace="n" * 60).worker(4000).spec(intranet="Service"),
        "spec.worker.replicas",
        "Invalid value: 4000: must be at most 1091, because the names of all pods are in one",
        None,
    ),
    BadJob(
        "a minimum above the replicas",
        job().spec(worker={"replicas": 2, "requests": 3, "template": {"spec": {"containers": [PADDLE]}}}),
        "spec.worker.requests",
        "Invalid value: 3: must not exceed replicas (2)",
        "spec.worker.requests: Invalid value: must not exceed replicas",
    ),
    BadJob(
        "a maximum below the replicas",
        job().spec(worker={"replicas": 2, "limits": 1, "template": {"spec": {"containers": [PADDLE]}}}),
        "spec.worker.limits",
        "Invalid value: 1: must not be less than replicas (2)",
        "spec.worker.limits: Invalid value: must not be less than replicas",
    ),
    BadJob(
        "a negative minimum",
        job().spec(worker={"replicas": 2, "requests": -1, "template": {"spec": {"containers": [PADDLE]}}}),
        "spec.worker.requests",
        "Invalid value: -1: must be between 0 and 5000",
        "should be greater than or equal to 0",
    ),
    BadJob(
        "a gang larger than the job",
        job().ps(1).worker(2).spec(schedulingPolicy={"minAvailable": 4}),
        "spec.schedulingPolicy.minAvailable",
        "Invalid value: 4: must not exceed the job's number of pods (3)",
        "spec.schedulingPolicy.minAvailable: Invalid value: must not exceed the job's number of pods",
    ),
    BadJob(
        "an amount that is none",
        job().worker().spec(schedulingPolicy={"minResources": {"memory": "4 Gi"}}),
        "spec.schedulingPolicy.minResources[memory]",
        'Invalid value: "4 Gi": must be a quantity such as 2, 500m or 4Gi',
        'spec.schedulingPolicy.minResources.memory: Invalid value: "4 Gi"',
    ),
    BadJob(
        "an amount with an exponent that fills the memory",
        job().worker().spec(schedulingPolicy={"minResources": {"cpu": "1e999999999"}}),
        "spec.schedulingPolicy.minResources[cpu]",
        'Invalid value: "1e999999999": must be a quantity such as 2, 500m or 4Gi',
        'spec.schedulingPolicy.minResources.cpu: Invalid value: "1e999999999"',
    ),
    BadJob(
        "an amount with too many digits",
        job().worker().spec(schedulingPolicy={"minResources": {"cpu": "9" * 65}}),
        "spec.schedulingPolicy.minResources[cpu]",
        'Invalid value: "99999999999999999999999999999999999999999999999999999999999999999": must be a',
        "spec.schedulingPolicy.minResources.cpu: Too long: may not be more than 64",
    ),
]


def restarts(**fields: Any) -> JobBuilder:
    return job().worker().spec(restartPolicy=fields)


BAD_LIVES = [
    BadJob(
        "fewer than no restarts",
        job().worker().spec(backoffLimit=-1),
        "spec.backoffLimit",
        "Invalid value: -1: must be between 0 and 1000",
        "spec.backoffLimit in body should be greater than or equal to 0",
    ),
    BadJob(
        "the success of somebody unknown",
        job().worker().spec(successPolicy="Anybody"),
        "spec.successPolicy",
        'Unsupported value: "Anybody": supported values: "AllWorkers", "Worker0"',
        'spec.successPolicy: Unsupported value: "Anybody": supported values: "AllWorkers", "Worker0"',
    ),
    BadJob(
        "a hang that is ignored",
        job().worker().spec(hangPolicy="Ignore"),
        "spec.hangPolicy",
        'Unsupported value: "Ignore": supported values: "Report", "Restart"',
        'spec.hangPolicy: Unsupported value: "Ignore": supported values: "Report", "Restart"',
    ),
    BadJob(
        "a straggler that is ignored",
        job().worker().spec(stragglerPolicy="Ignore"),
        "spec.stragglerPolicy",
        'Unsupported value: "Ignore": supported values: "Report", "Replace"',
        'spec.stragglerPolicy: Unsupported value: "Ignore": supported values: "Report", "Replace"',
    ),
    BadJob(
        "no time to run",
        job().worker().spec(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds",
        "Invalid value: 0: must be between 1 and 2147483647",
        "spec.activeDeadlineSeconds in body should be greater than or equal to 1",
    ),
    BadJob(
        "no time to start",
        job().worker().spec(startupDeadlineSeconds=-5),
        "spec.startupDeadlineSeconds",
        "Invalid value: -5: must be between 1 and 2147483647",
        "spec.startupDeadlineSeconds in body should be greater than or equal to 1",
    ),
    BadJob(
        "deleted before it is finished",
        job().worker().spec(ttlSecondsAfterFinished=-1),
        "spec.ttlSecondsAfterFinished",
        "Invalid value: -1: must be between 0 and 2147483647",
        "spec.ttlSecondsAfterFinished in body should be greater than or equal to 0",
    ),
    BadJob(
        "a controller with an endless name",
        job().worker().spec(managedBy="x" * 64),
        "spec.managedBy",
        "Too long: may not be more than 63 characters",
        "spec.managedBy: Too long: may not be more than 63 bytes",
    ),
    BadJob(
        "an exit code that cannot be",
        restarts(permanentExitCodes=[1, 256]),
        "spec.restartPolicy.permanentExitCodes[1]",
        "Invalid value: 256: must be between 1 and 255",
        "spec.restartPolicy.permanentExitCodes[1] in body should be less than or equal to 255",
    ),
    BadJob(
        "an exit code that counts in two ways",
        restarts(permanentExitCodes=[1, 2], ignoredExitCodes=[2]),
        "spec.restartPolicy.ignoredExitCodes",
        "Duplicate value: 2: also in permanentExitCodes; remove it from one of them",
        "spec.restartPolicy: Invalid value: an exit code is in more than one list",
    ),
    BadJob(
        "a first wait longer than the longest",
        restarts(delaySeconds=600),
        "spec.restartPolicy.maxDelaySeconds",
        "Invalid value: 300: must not be less than delaySeconds (600)",
        "restartPolicy.maxDelaySeconds: Invalid value: must not be less than delaySeconds",
    ),
    BadJob(
        "a wait of days",
        restarts(delaySeconds=7200, maxDelaySeconds=7200),
        "spec.restartPolicy.delaySeconds",
        "Invalid value: 7200: must be between 0 and 3600",
        "spec.restartPolicy.delaySeconds in body should be less than or equal to 3600",
    ),
    BadJob(
        "a process parked for no restart in place",
        restarts(inPlace=False, parked=True),
        "spec.restartPolicy.parked",
        "Forbidden: needs restarts in place; remove inPlace: false",
        "spec.restartPolicy.parked: Invalid value: needs restarts in place; remove inPlace: false",
    ),
    BadJob(
        "a process parked without the recorder",
        restarts(parked=True).spec(recorder=False),
        "spec.restartPolicy.parked",
        "Forbidden: needs the recorder; remove recorder: false",
        "spec.restartPolicy.parked: Invalid value: needs the recorder; remove recorder: false",
    ),
    BadJob(
        "spares of a parameter server job",
        job().ps(1).worker(2).spec(spares=1),
        "spec.spares",
        f"Forbidden: {ONLY_COLLECTIVE}",
        f"spec.spares: Invalid value: {ONLY_COLLECTIVE}",
    ),
    BadJob(
        "spares of an elastic job",
        job().worker(2).spec(spares=1, elastic=1),
        "spec.spares",
        f"Forbidden: {NOT_ELASTIC}",
        f"spec.spares: Invalid value: {NOT_ELASTIC}",
    ),
    BadJob(
        "spares that are called by name",
        job().worker(2).spec(spares=1, intranet="Service"),
        "spec.spares",
        f"Forbidden: {NEEDS_POD_IP}",
        f"spec.spares: Invalid value: {NEEDS_POD_IP}",
    ),
    BadJob(
        "spares without the recorder",
        job().worker(2).spec(spares=1, recorder=False),
        "spec.spares",
        f"Forbidden: {NEEDS_IN_PLACE}",
        f"spec.spares: Invalid value: {NEEDS_IN_PLACE}",
    ),
    BadJob(
        "spares without restarts in place",
        restarts(inPlace=False).spec(spares=1),
        "spec.spares",
        f"Forbidden: {NEEDS_IN_PLACE}",
        f"spec.spares: Invalid value: {NEEDS_IN_PLACE}",
    ),
    BadJob(
        "a node given up at once",
        restarts(nodeLostSeconds=1),
        "spec.restartPolicy.nodeLostSeconds",
        "Invalid value: 1: must be between 10 and 86400",
        "spec.restartPolicy.nodeLostSeconds in body should be greater than or equal to 10",
    ),
    BadJob(
        "no restart to make progress in",
        restarts(noProgressLimit=0),
        "spec.restartPolicy.noProgressLimit",
        "Invalid value: 0: must be between 1 and 1000",
        "spec.restartPolicy.noProgressLimit in body should be greater than or equal to 1",
    ),
]

BAD_JOBS = [*BAD_NAMES, *BAD_TEXTS, *BAD_ROLES, *BAD_LIVES]
