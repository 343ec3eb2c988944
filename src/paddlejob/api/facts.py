"""What the types cannot say about a field: its meaning and its bounds. The CRD and the reference print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from paddlejob.api import lifecycle, quantity
from paddlejob.api.defaulting import WITH_GLOO_RANGE
from paddlejob.api.meta import Condition, JsonObject
from paddlejob.api.v1 import (
    Failure,
    Intranet,
    PaddleJob,
    PaddleJobSpec,
    PaddleJobStatus,
    RestartPolicy,
    RoleSpec,
    RoleStatus,
    SchedulingPolicy,
    SuccessPolicy,
    WorldSize,
)
from paddlejob.api.validation import MAX_MIN_RESOURCES, MAX_NAME_LENGTH, MAX_REPLICAS

WORD: Final = 32
"""Longest text of a field that holds one of a few words."""


def _span(allowed: range) -> JsonObject:
    return {"minimum": allowed[0], "maximum": allowed[-1]}


_COUNT: Final = _span(range(MAX_REPLICAS + 1))
_EXIT_CODES: Final = {
    "maxItems": lifecycle.MAX_EXIT_CODES,
    "items": {"type": "integer", "format": "int32", **_span(lifecycle.EXIT_CODES)},
}

FACTS: Mapping[type, Mapping[str, JsonObject]] = {
    PaddleJob: {
        "spec": {"description": "What to train, with which pods."},
        "status": {"description": "How the job is doing. Written by the operator."},
    },
    PaddleJobSpec: {
        "clean_pod_policy": {
            "description": "When the pods of a finished job are deleted: Always, Never, OnFailure or "
            "OnCompletion (the default). Pods that still run when a job fails are stopped too, unless it is "
            "Never, which is good for debugging: the logs stay.",
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
            **_span(WITH_GLOO_RANGE),
        },
        "ps": {"description": "The parameter servers. Without them the workers train collectively."},
        "worker": {"description": "The workers. Every job has at least one."},
        "heter": {"description": "The second stage of a heterogeneous parameter server job."},
        "elastic": {
            "description": "Present, with any value, it asks for a job that may be resized while it trains.",
            "minimum": 0,
        },
        "scheduling_policy": {"description": "How the pods are scheduled together, as one gang."},
        "backoff_limit": {
            "description": "How many restarts after failures of the program itself. Restarts after "
            "evictions, preemption, lost nodes and deleted pods do not count.",
            **_span(range(lifecycle.MAX_BACKOFF_LIMIT + 1)),
        },
        "restart_policy": {"description": "Which failures the job is restarted after, and how soon."},
        "success_policy": {
            "description": "Whose success is the job's: AllWorkers (the default) or Worker0.",
            "enum": [str(policy) for policy in SuccessPolicy],
        },
        "suspend": {"description": "Whether the job's pods are taken away until this is false again."},
        "active_deadline_seconds": {
            "description": "How long the job may run; time in suspension does not count. Then its pods are "
            "stopped, whatever cleanPodPolicy says.",
            **_span(lifecycle.DEADLINE_SECONDS),
        },
        "startup_deadline_seconds": {
            "description": "How long the job may take until all its pods run for the first time. Then its "
            "pods are stopped, whatever cleanPodPolicy says.",
            **_span(lifecycle.DEADLINE_SECONDS),
        },
        "ttl_seconds_after_finished": {
            "description": "How long a finished job stays before it is deleted; for ever unless given.",
            **_span(lifecycle.TTL_SECONDS),
        },
        "managed_by": {
            "description": "Which controller works on the job. The operator leaves alone what names another.",
            "maxLength": lifecycle.MANAGED_BY_MAX,
        },
    },
    RestartPolicy: {
        "permanent_exit_codes": {"description": "Exit codes that end the job at once.", **_EXIT_CODES},
        "retryable_exit_codes": {"description": "Exit codes worth a restart, which counts.", **_EXIT_CODES},
        "ignored_exit_codes": {
            "description": "Exit codes worth a restart that does not count; 15, 101 and 143 always are.",
            **_EXIT_CODES,
        },
        "delay_seconds": {
            "description": "The wait before the first restart; it doubles with each one in a row.",
            **_span(lifecycle.DELAY_SECONDS),
        },
        "max_delay_seconds": {"description": "The longest wait.", **_span(lifecycle.MAX_DELAY_SECONDS)},
        "node_lost_seconds": {
            "description": "How long a pod's node may be silent before the pod is replaced.",
            **_span(lifecycle.NODE_LOST_SECONDS),
        },
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
        "queue": {
            "description": "The scheduler's queue that the job waits in.",
            "maxLength": MAX_NAME_LENGTH,
        },
        "priority_class": {"description": "The PriorityClass of the gang.", "maxLength": MAX_NAME_LENGTH},
        "min_resources": {
            "description": "Start only when this much is free; the sum of the pods' requests unless given.",
            "maxProperties": MAX_MIN_RESOURCES,
            "additionalProperties": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "maxLength": quantity.MAX_LENGTH,
                "pattern": f"^{quantity.PATTERN}$",
            },
        },
    },
    PaddleJobStatus: {
        "phase": {
            "description": "Pending, Starting, Running, Restarting, Scaling, Suspended, Completed, "
            "Failed or Terminating."
        },
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
        "attempt": {"description": "Which try this is, from 0: grows with every restart and scaling."},
        "base_attempt": {"description": "The attempt in which all pods were last made anew."},
        "attempt_time": {"description": "When the attempt began."},
        "consecutive_restarts": {
            "description": "Restarts in a row as of the last one; running for 10 minutes ends a row."
        },
        "rounds": {"description": "How often objects were created or changed in this attempt."},
        "retry_time": {"description": "When something is created again; not before."},
        "resume_time": {"description": "When the job was last resumed after a suspension."},
        "restarts": {"description": "Restarts that counted against backoffLimit."},
        "workers": {"description": "With how many workers an elastic job goes on while it cannot have all."},
        "succeeded_workers": {
            "description": "Indexes of the workers that have succeeded, such as 0-2,5; they never run again."
        },
        "world_size": {"description": "The pods that last found together."},
        "last_failure": {"description": "What broke the last attempt first."},
        "active_since": {"description": "When the job began to run, or ran again after a suspension."},
        "active_seconds": {"description": "How long the job had run before its last suspension."},
    },
    WorldSize: {
        "attempt": {"description": "The attempt it belongs to."},
        "ps": {"description": "Its parameter servers."},
        "worker": {"description": "Its workers."},
        "heter": {"description": "Its heter pods."},
    },
    Failure: {
        "attempt": {"description": "The attempt that it broke."},
        "pod": {"description": "The pod that failed first."},
        "reason": {"description": "Why, in one word for programs."},
        "exit_code": {"description": "The exit code of its container, 0 where there was none."},
        "message": {"description": "Why, in one line for people."},
        "time": {"description": "When."},
        "counted": {"description": "Whether it counted against backoffLimit."},
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
