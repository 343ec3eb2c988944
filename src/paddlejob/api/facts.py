"""What the types cannot say about a field: its meaning and its bounds. The CRD and the reference print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from paddlejob.api.defaulting import WITH_GLOO_RANGE
from paddlejob.api.meta import Condition, JsonObject
from paddlejob.api.v1 import (
    Intranet,
    PaddleJob,
    PaddleJobSpec,
    PaddleJobStatus,
    RoleSpec,
    RoleStatus,
    SchedulingPolicy,
)
from paddlejob.api.validation import MAX_REPLICAS, QUANTITY_PATTERN

WORD: Final = 32
"""Longest text of a field that holds one of a few words."""

_COUNT: Final = {"minimum": 0, "maximum": MAX_REPLICAS}

FACTS: Mapping[type, Mapping[str, JsonObject]] = {
    PaddleJob: {
        "spec": {"description": "What to train, with which pods."},
        "status": {"description": "How the job is doing. Written by the operator."},
    },
    PaddleJobSpec: {
        "clean_pod_policy": {
            "description": "When the pods of a finished job are deleted: Always, Never, OnFailure or "
            "OnCompletion (the default). Never is good for debugging: the logs stay.",
            "maxLength": WORD,
        },
        "clean_policy": {
            "description": "Another name of cleanPodPolicy, which wins where both are given.",
            "maxLength": WORD,
        },
        "intranet": {
            "description": "How pods find each other: by PodIP, by the name of a Service for each pod "
            "(pods may move), or on the Host's network with a port range of the job's own.",
            "maxLength": WORD,
            "default": str(Intranet.POD_IP),
        },
        "with_gloo": {
            "description": "Gloo barriers of parameter server jobs: 0 off, 1 workers, 2 workers and servers. "
            "1 unless given; without parameter servers there are none.",
            "minimum": WITH_GLOO_RANGE[0],
            "maximum": WITH_GLOO_RANGE[-1],
        },
        "ps": {"description": "The parameter servers. Without them the workers train collectively."},
        "worker": {"description": "The workers. Every job has at least one."},
        "heter": {"description": "The second stage of a heterogeneous parameter server job."},
        "elastic": {
            "description": "Present, with any value, it asks for a job that may be resized while it trains.",
            "minimum": 0,
        },
        "scheduling_policy": {"description": "How the pods are scheduled together, as one gang."},
    },
    RoleSpec: {
        "replicas": {"description": "How many pods; may be changed while the job runs.", **_COUNT},
        "requests": {"description": "The smallest number of replicas that the job can live with.", **_COUNT},
        "limits": {"description": "The greatest number of replicas; 0 is the same as none.", **_COUNT},
        "template": {
            "description": "The pods, as a Kubernetes PodTemplateSpec. It is passed on as it is; the first "
            "container is the one that trains and gets the job's environment."
        },
    },
    SchedulingPolicy: {
        "min_available": {
            "description": "Start only when this many pods fit; all of them unless given.",
            **_COUNT,
        },
        "queue": {"description": "The scheduler's queue that the job waits in.", "maxLength": 253},
        "priority_class": {"description": "The PriorityClass of the gang.", "maxLength": 253},
        "min_resources": {
            "description": "Start only when this much is free; the sum of the pods' requests unless given.",
            "maxProperties": 64,
            "additionalProperties": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY_PATTERN,
            },
        },
    },
    PaddleJobStatus: {
        "phase": {"description": "Pending, Starting, Running, Completed, Failed or Terminating."},
        "mode": {"description": "PS, Collective, Single or Heter."},
        "reason": {"description": "Why the job is in its phase, in one word for programs."},
        "message": {"description": "What the job waits for or what failed first, in one line for people."},
        "ps": {"description": "The parameter servers."},
        "worker": {"description": "The workers."},
        "heter": {"description": "The heter pods."},
        "conditions": {
            "description": "Facts about the job, for `kubectl wait --for=condition=...`.",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "start_time": {"description": "When all pods first ran."},
        "completion_time": {"description": "When the job ended, well or badly."},
        "observed_generation": {
            "description": "The generation of the spec this speaks of.",
            "format": "int64",
        },
        "host_port": {"description": "First port of the job's range on its nodes (intranet Host)."},
        "selector": {"description": "Label selector of the workers' pods, for autoscalers."},
    },
    RoleStatus: {
        "ready": {"description": "Running pods of wanted pods, such as 2/2."},
        "replicas": {"description": "Pods that exist."},
        "pending": {"description": "Pods that wait for a node or their environment."},
        "starting": {"description": "Pods whose containers start."},
        "running": {"description": "Pods that run."},
        "failed": {"description": "Pods that failed."},
        "succeeded": {"description": "Pods that ended well."},
        "unknown": {"description": "Pods whose node does not answer."},
    },
    Condition: {
        "type": {"description": "What the condition is about."},
        "status": {"description": "Whether it holds: True, False or Unknown."},
        "reason": {"description": "Why, in one word for programs."},
        "message": {"description": "Why, in one line for people."},
        "last_transition_time": {"description": "When its status last changed."},
        "observed_generation": {"description": "The generation of the spec it speaks of.", "format": "int64"},
    },
}
