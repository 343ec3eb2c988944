"""Objects that a real API server stores and that no operator may be harmed by, each under a name.

They are JSON texts, since some are nested deeper than Python's own encoder goes. The job of a case is called
`hostile`; what else somebody may put beside it names the job's UID by a placeholder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.kube.resource import CONFIG_MAPS, PODS, Resource
from simkube.build import JobBuilder, job

NAME = "hostile"
DEEP, UID = "@deep@", "@uid@"
DEEPEST = 9_978
"""The API server reads 10,000 levels, and those above the value and those of its own envelope count."""
MEGABYTE = 2**20
LONG_AGO, FAR_AWAY = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Hostile:
    """A job that is stored, what is put beside it, and what its status has to say in the end."""

    body: JsonObject
    depth: int = 0
    beside: tuple[tuple[Resource, JsonObject], ...] = ()
    status: JsonObject | None = None
    says: str = ""
    """A regular expression of `reason: message`; empty where the job is odd but not wrong."""
    needs_volcano: bool = False

    @property
    def in_gang(self) -> bool:
        """Whether its pods are to be scheduled together."""
        return "schedulingPolicy" in self.body["spec"]

    def text(self) -> bytes:
        """Give the job as JSON."""
        return json.dumps(self.body).replace(f'"{DEEP}"', "[" * self.depth + "]" * self.depth).encode()

    def texts_beside(self, uid: str) -> Iterator[tuple[Resource, bytes]]:
        """Give the other objects as JSON, for a job with this UID."""
        for resource, body in self.beside:
            yield resource, json.dumps(body).replace(UID, uid).encode()


def hostile(built: JobBuilder, **fields: Any) -> Hostile:
    """Make a case of a job."""
    given = {
        key: value for key, value in built.manifest["metadata"].items() if key in ("labels", "annotations")
    }
    return Hostile({**built.manifest, "metadata": {"name": NAME, **given}}, **fields)


def nested(depth: int, **fields: Any) -> Hostile:
    """A template with a field that nobody knows and that is nested this deep."""
    return hostile(job().worker(1, pod={"fromTheFuture": DEEP}), depth=depth, **fields)


def quantity(text: Any, *, field: str = "requests", gang: bool = True) -> Hostile:
    """A container that asks for this much."""
    built = job().worker(2, resources={field: {"cpu": text}})
    return hostile(built.spec(schedulingPolicy={}) if gang else built, says=r"cpu|quantit")


def least(text: str) -> Hostile:
    """A gang that needs at least this much."""
    policy = {"minResources": {"cpu": text}}
    return hostile(
        job().worker(2).spec(schedulingPolicy=policy), says="minResources|cpu|quantit", needs_volcano=True
    )


def shaped(value: Any, *path: str, gang: bool = False) -> Hostile:
    """A template in which one field has this value, whatever its kind should be."""
    built = job().worker(1)
    template = built.manifest["spec"]["worker"]["template"]
    *way, last = path
    place: Any = template
    for key in way:
        place = place[0] if key == "0" else place.setdefault(key, {})
    place[last] = value
    return hostile(
        built.spec(schedulingPolicy={}) if gang else built,
        says=f"{_word(path)}|gang|PodGroup" if gang else _word(path),
    )


def _word(path: tuple[str, ...]) -> str:
    return next(key for key in reversed(path) if key != "0")


def owned(**metadata: Any) -> JsonObject:
    """Metadata of an object that says it belongs to the job."""
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": NAME,
        "uid": UID,
        "controller": True,
    }
    return {"ownerReferences": [owner], **metadata}


def pod(name: str, status: JsonObject | None = None, **labels: str) -> tuple[Resource, JsonObject]:
    """A pod that somebody made in the job's name."""
    own = {names.LABEL_JOB: NAME, names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0", **labels}
    spec = {"containers": [{"name": "paddle", "image": "paddle:test"}]}
    metadata = owned(name=name, labels=own)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return PODS, body | ({"status": status} if status else {})


def config_map(name: str, data: dict[str, str], metadata: JsonObject) -> tuple[Resource, JsonObject]:
    """A ConfigMap that somebody made in the job's way."""
    return CONFIG_MAPS, {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data,
    }


def ended_at(moment: str) -> JsonObject:
    """The status of a pod that failed at some time."""
    terminated = {"exitCode": 137, "reason": "OOMKilled", "startedAt": moment, "finishedAt": moment}
    container = {
        "name": "paddle",
        "ready": False,
        "restartCount": INT32_MAX,
        "image": "paddle:test",
        "imageID": "",
        "state": {"terminated": terminated},
    }
    return {"phase": "Failed", "startTime": moment, "containerStatuses": [container]}


def many_labels(size: int) -> dict[str, str]:
    """Labels that make metadata and its managedFields this large."""
    return {f"{number:05}.{'x' * 57}.example.org/{'y' * 60}": "z" * 60 for number in range(size // 200)}


DEPTHS = {f"nested {depth} deep": nested(depth) for depth in (500, 985, 1_100, 9_900, DEEPEST)}

QUANTITIES = {
    "an exponent of nine digits": quantity("1e999999999"),
    "an exponent of eight digits": quantity("1e10000000"),
    "a negative exponent": quantity("1e-999999999"),
    "an exponent in a limit": quantity("1E+99999999", field="limits"),
    "100,000 digits": quantity("9" * 100_000),
    "100,000 digits after the point": quantity("0." + "1" * 100_000),
    "a quantity without a gang": quantity("1e999999999", gang=False),
    "a quantity that is a list": quantity(["1"]),
    "a quantity that is a number": quantity(1e300),
    "a least quantity with an exponent": least("1e999999999"),
    "a least quantity of 10,000 digits": least("9" * 10_000),
}

VALUES_OF: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("spec", "initContainers"): (5, "text", {"a": 1}, [5], [None], [[]]),
    ("spec", "overhead"): (5, [], {"cpu": []}, {"cpu": {"a": 1}}),
    ("spec", "volumes"): (5, "text", {"a": 1}, [5], [None]),
    ("spec", "tolerations"): ("text", [5], {"a": 1}),
    ("spec", "nodeSelector"): ("text", [5], {"a": {}}),
    ("spec", "affinity"): ("text", [5]),
    ("spec", "securityContext"): ("text", [5]),
    ("spec", "schedulingGates"): ("text", [5]),
    ("spec", "terminationGracePeriodSeconds"): ("text", 1e30, -1e30, [5]),
    ("spec", "activeDeadlineSeconds"): ("text", 1e30, []),
    ("spec", "hostNetwork"): ("text", 5, []),
    ("spec", "hostname"): (5, {}, "x" * 100),
    ("spec", "containers", "0", "resources"): (5, "text", [5], {"requests": 5}, {"limits": [5]}),
    ("spec", "containers", "0", "env"): (
        5,
        "text",
        [5],
        [None],
        [{"name": 5}],
        [{"name": "A", "valueFrom": 5}],
    ),
    ("spec", "containers", "0", "envFrom"): (5, "text", [5]),
    ("spec", "containers", "0", "ports"): (
        5,
        [5],
        [{"containerPort": 1e30}],
        [{"containerPort": "http"}],
    ),
    ("spec", "containers", "0", "volumeMounts"): (5, [5], "text"),
    ("spec", "containers", "0", "command"): (5, "text", [5], {"a": 1}),
    ("spec", "containers", "0", "readinessProbe"): (5, [5]),
}

PATHS = tuple(VALUES_OF)

SHAPES = {
    f"{'.'.join(path)} is {json.dumps(value)}{' in a gang' if gang else ''}": shaped(value, *path, gang=gang)
    for path, values in VALUES_OF.items()
    for value in values
    for gang in (False, True)
}

SIZES = {
    "5,000 workers": hostile(job().worker(5_000)),
    "5,000 workers in a gang": hostile(job().worker(5_000).spec(schedulingPolicy={})),
    "a template of a megabyte": hostile(
        job().worker(4, env=[{"name": "LARGE", "value": "x" * MEGABYTE}]), says="at most 256 KiB are allowed"
    ),
    "10,000 variables": hostile(
        job().worker(4, env=[{"name": f"A{n}", "value": "$(A0)"} for n in range(10_000)])
    ),
    "metadata of a megabyte": hostile(job().worker(1).metadata(labels=many_labels(500_000))),
    "64 containers with 200 ports each": hostile(
        job().spec(
            worker={
                "replicas": 2,
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": f"c{container}",
                                "image": "paddle:test",
                                "ports": [{"containerPort": 1 + port} for port in range(200)],
                            }
                            for container in range(64)
                        ]
                    }
                },
            },
            intranet="Host",
        )
    ),
}

NUMBERS = {
    "every bound at its largest": hostile(
        job()
        .worker(1)
        .spec(
            activeDeadlineSeconds=INT32_MAX,
            startupDeadlineSeconds=INT32_MAX,
            ttlSecondsAfterFinished=INT32_MAX,
            elastic=INT32_MAX,
            backoffLimit=1000,
            restartPolicy={"delaySeconds": 3600, "maxDelaySeconds": 86400, "nodeLostSeconds": 86400},
        )
    ),
    "a status from the beginning of time": hostile(
        job().worker(1).spec(activeDeadlineSeconds=INT32_MAX, ttlSecondsAfterFinished=INT32_MAX),
        status={
            "phase": "Running",
            "startTime": LONG_AGO,
            "attemptTime": LONG_AGO,
            "activeSince": LONG_AGO,
            "activeSeconds": INT32_MAX,
            "conditions": [{"type": "Running", "status": "True", "lastTransitionTime": LONG_AGO}],
        },
    ),
    "a status from the end of time": hostile(
        job().worker(1).spec(activeDeadlineSeconds=INT32_MAX, ttlSecondsAfterFinished=INT32_MAX),
        status={
            "phase": "Running",
            "startTime": FAR_AWAY,
            "attemptTime": FAR_AWAY,
            "activeSince": FAR_AWAY,
            "attempt": INT32_MAX,
            "restarts": INT32_MAX,
            "workers": INT32_MAX,
            "hostPort": INT32_MAX,
        },
    ),
    "an end at the end of time": hostile(
        job().worker(1).spec(ttlSecondsAfterFinished=INT32_MAX),
        status={"phase": "Failed", "completionTime": FAR_AWAY, "startTime": FAR_AWAY},
    ),
    "a negative status": hostile(
        job().worker(1).spec(elastic=1),
        status={
            "attempt": -(2**31),
            "restarts": -1,
            "workers": -5,
            "hostPort": -1,
            "activeSeconds": -(2**31),
        },
    ),
}

STRANGERS = {
    "a pod with an attempt that is not a number": hostile(
        job().worker(1), beside=(pod("hostile-worker-0", **{names.LABEL_ATTEMPT: "x"}),)
    ),
    "a pod of a huge attempt": hostile(
        job().worker(1), beside=(pod("hostile-worker-0", **{names.LABEL_ATTEMPT: "9" * 60}),)
    ),
    "a pod with an index that is not a number": hostile(
        job().worker(1), beside=(pod("hostile-worker-x", **{names.LABEL_INDEX: "x"}),)
    ),
    "a pod with a huge index": hostile(
        job().worker(1), beside=(pod("hostile-worker-9", **{names.LABEL_INDEX: "9" * 60}),)
    ),
    "a pod of a role that does not exist": hostile(
        job().worker(1), beside=(pod("hostile-king-0", **{names.LABEL_ROLE: "king"}),)
    ),
    "a pod that failed at the beginning of time": hostile(
        job().worker(1), beside=(pod("hostile-worker-0", ended_at(LONG_AGO)),)
    ),
    "a pod that failed at the end of time": hostile(
        job().worker(1), beside=(pod("hostile-worker-0", ended_at(FAR_AWAY)),)
    ),
    "a config map of a megabyte that is the job's": hostile(
        job().worker(1), beside=(config_map(NAME, {"large": "x" * (MEGABYTE - 1000)}, owned()),)
    ),
    "a config map that is another's": hostile(
        job().worker(1).spec(intranet="Service"),
        beside=(config_map(NAME, {"a": "b"}, {}),),
        says="does not belong to this job",
    ),
}

CORPUS = {**DEPTHS, **QUANTITIES, **SHAPES, **SIZES, **NUMBERS, **STRANGERS}


FAT_BYTES = 1_300_000
"""etcd stores 1.5 MB."""
OWN_LABEL = {names.LABEL_RESOURCE_NAME: "x", names.LABEL_RESOURCE_TYPE: "x"}


def fat_list(size: int = FAT_BYTES) -> list[JsonObject]:
    """A list whose JSON has this many bytes; in Python it takes 24 times as many."""
    return [{}] * (size // 3)


def fat_job(name: str = NAME, size: int = FAT_BYTES, **metadata: Any) -> JsonObject:
    """A job with this many bytes of a field that nobody knows; suspended, so that it costs no pod."""
    built = job(name).worker(1, pod={"fromTheFuture": fat_list(size)}).spec(suspend=True)
    return {**built.manifest, "metadata": {"name": name, **metadata}}


def fat_texts(size: int, *, length: int = 60) -> dict[str, str]:
    """Labels or annotations of this many bytes, with as many entries as fit."""
    return {f"k{number:06}": "" for number in range(size // 13)} if length == 0 else many_labels(size)


def fat_config_map(name: str, **metadata: Any) -> JsonObject:
    """A ConfigMap of a megabyte with many empty keys."""
    data = {f"k{number:05}": "" for number in range(75_000)}
    return config_map(name, data, {"labels": OWN_LABEL, **metadata})[1]


def fat_record(name: str, namespace: str) -> JsonObject:
    """A ConfigMap that looks like a record; with one wide character, each of a text takes four bytes."""
    uid = "0123456789"
    summary = {"name": name, "namespace": namespace, "uid": uid, "result": "Failed"}
    text = json.dumps({**summary, "message": "\U0001f600" + "x" * 240_000}, ensure_ascii=False)
    metadata = {
        "name": f"{name}-history-{uid[:8]}",
        "labels": {names.LABEL_HISTORY: "v1"},
        "annotations": {names.ANNOTATION_SUMMARY: text},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def fat_pod(**changes: Any) -> JsonObject:
    """A pod of the job with a megabyte of labels."""
    labels = {**fat_texts(1_000_000, length=0), **OWN_LABEL}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": owned(name="hostile-worker-0", labels=labels)}
    spec = {"containers": [{"name": "paddle", "image": "paddle:test"}]}
    return {**body, "spec": spec, **changes}
