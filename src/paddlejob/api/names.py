"""Names that are a contract: labels, annotations, environment variables, reasons, ports."""

from __future__ import annotations

from typing import Final

GROUP: Final = "batch.paddlepaddle.org"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "PaddleJob"
PLURAL: Final = "paddlejobs"
SHORT_NAME: Final = "pdj"

# Labels on everything that belongs to a job. The two `paddle-res-*` labels are those of earlier operators:
# users' scripts select on them, and pods that such an operator left behind are recognised by them.
LABEL_JOB: Final = f"{GROUP}/job-name"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_INDEX: Final = f"{GROUP}/index"
LABEL_RESOURCE_NAME: Final = "paddle-res-name"
LABEL_RESOURCE_TYPE: Final = "paddle-res-type"

ANNOTATION_ROLE: Final = "paddle-resource"
ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
"""On a pod: hash of the ConfigMap that the pod was started (or woken) with."""

ANNOTATION_GANG: Final = f"{GROUP}/gang"
"""On a pod: who schedules it together with its peers; not there on a pod that is scheduled alone."""

# Volcano finds the gang of a pod by these; its scheduler answers to this name.
VOLCANO: Final = "volcano"
ANNOTATION_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
ANNOTATION_TASK: Final = "volcano.sh/task-spec"
ANNOTATION_VOLCANO_JOB: Final = "volcano.sh/job-name"
ANNOTATION_VOLCANO_JOB_VERSION: Final = "volcano.sh/job-version"
ANNOTATION_QUEUE: Final = "volcano.sh/queue-name"

LABEL_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""On a job: the LocalQueue of Kueue that it waits in."""
ANNOTATION_POD_SETS: Final = f"{GROUP}/pod-sets"
"""On a Workload: hash of the pods that it was made for."""

LABEL_ATTEMPT: Final = f"{GROUP}/attempt"

LABEL_HISTORY: Final = f"{GROUP}/history"
"""On a ConfigMap that keeps the record of a job after the job is gone; the value is the record's version."""
ANNOTATION_SUMMARY: Final = f"{GROUP}/summary"
"""On such a ConfigMap: how the job ended, as JSON."""
RECORDER: Final = "paddlejob-recorder"
"""The volume of the recorder in a pod, and the audience of its token; begins the name of its ConfigMap."""
RECORDER_MOUNT: Final = "/etc/paddlejob/recorder"

CONTROLLER_NAME: Final = "paddlepaddle.org/paddlejob-operator"
"""What `spec.managedBy` says, of jobs that this operator reconciles, if it is set at all."""

LEGACY_FINALIZER: Final = "finalizers.paddlepaddle.org"
"""Earlier operators put it on every job; nothing waits for it, so it is only ever removed."""

# Twenty consecutive ports a pod: launchers before Paddle 2.3 take one an accelerator, upward from the base.
BASE_PORT: Final = 36000
PORTS_PER_POD: Final = 20
MASTER_PORT_OFFSET: Final = 1
GLOO_PORT_OFFSET: Final = 18
HOST_PORT_RANGE: Final = (35000, 65000)

GLOO_RENDEZVOUS_HTTP: Final = "3"

LAST_WORDS_POLICY: Final = "FallbackToLogsOnError"
"""Makes the kubelet keep the end of a failed container's log, so that the job can say why it failed."""


class Env:
    """Environment variables that PaddlePaddle reads."""

    POD_IP: Final = "POD_IP"
    PADDLE_PORT: Final = "PADDLE_PORT"
    TRAINER_ID: Final = "PADDLE_TRAINER_ID"
    RANK: Final = "PADDLE_RANK"
    TRAINING_ROLE: Final = "TRAINING_ROLE"
    PADDLE_TRAINING_ROLE: Final = "PADDLE_TRAINING_ROLE"
    CURRENT_ENDPOINT: Final = "PADDLE_CURRENT_ENDPOINT"
    PSERVER_ENDPOINTS: Final = "PADDLE_PSERVERS_IP_PORT_LIST"
    TRAINER_ENDPOINTS: Final = "PADDLE_TRAINER_ENDPOINTS"
    TRAINERS: Final = "PADDLE_TRAINERS"
    TRAINERS_NUM: Final = "PADDLE_TRAINERS_NUM"
    TRAINER_PORTS_NUM: Final = "TRAINER_PORTS_NUM"
    MASTER: Final = "PADDLE_MASTER"
    NNODES: Final = "PADDLE_NNODES"
    JOB_ID: Final = "PADDLE_JOB_ID"
    DISTRI_BACKEND: Final = "PADDLE_DISTRI_BACKEND"
    WITH_GLOO: Final = "PADDLE_WITH_GLOO"
    GLOO_RENDEZVOUS: Final = "PADDLE_GLOO_RENDEZVOUS"
    GLOO_HTTP_ENDPOINT: Final = "PADDLE_GLOO_HTTP_ENDPOINT"
    ALL_HETER_ENDPOINTS: Final = "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"
    NEXT_HETER_ENDPOINTS: Final = "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"
    PREVIOUS_HETER_ENDPOINTS: Final = "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"
    HETER_DEVICE_TYPE: Final = "HETER_DEVICE_TYPE"
    STAGE_ID: Final = "STAGE_ID"
    STAGE_NUM: Final = "STAGE_NUM"
    STAGE_TRAINERS_NUM: Final = "PADDLE_STAGE_TRAINERS_NUM"
    ATTEMPT: Final = "PADDLEJOB_ATTEMPT"
    """Number of the job's attempt, from 0; our own, for programs that want to know."""
    REPORT_URL: Final = "PADDLEJOB_REPORT_URL"
    """Where the recorder reports to."""
    TRAINJOB_URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"
    """The same for programs that report with Kubeflow's SDK."""
    TRAINJOB_CA: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
    TRAINJOB_TOKEN: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105  (a name)
    GIVEN_PYTHONPATH: Final = "PADDLEJOB_GIVEN_PYTHONPATH"
    """A PYTHONPATH that the template takes from elsewhere, which ours refers to."""
    ELASTIC_LEVEL: Final = "PADDLE_ELASTIC_LEVEL"
    ELASTIC_TIMEOUT: Final = "PADDLE_ELASTIC_TIMEOUT"
    MAX_RESTART: Final = "PADDLE_MAX_RESTART"


ATTEMPT_GUARD: Final = f"{Env.ATTEMPT}_"
"""Begins the ConfigMap's keys that hold containers back until it has the addresses of their attempt."""
PROTECTED_ENV: Final = frozenset(
    {
        Env.POD_IP,
        Env.PADDLE_PORT,
        Env.TRAINER_ID,
        Env.RANK,
        Env.TRAINING_ROLE,
        Env.PADDLE_TRAINING_ROLE,
        Env.CURRENT_ENDPOINT,
        Env.PSERVER_ENDPOINTS,
        Env.TRAINER_ENDPOINTS,
        Env.TRAINERS,
        Env.TRAINERS_NUM,
        Env.GLOO_HTTP_ENDPOINT,
        Env.ALL_HETER_ENDPOINTS,
        Env.NEXT_HETER_ENDPOINTS,
        Env.PREVIOUS_HETER_ENDPOINTS,
        Env.STAGE_ID,
        Env.STAGE_NUM,
        Env.STAGE_TRAINERS_NUM,
        Env.ATTEMPT,
    }
)
"""Variables that say who a pod is and where its peers are: a user's own value would break the job."""


class Reason:
    """Reasons of conditions and events; PascalCase, stable, fit for `kubectl wait` and alerts."""

    INVALID_SPEC: Final = "InvalidSpec"
    ALIAS_USED: Final = "AliasUsed"
    CREATE_FAILED: Final = "CreateFailed"
    CREATED_PODS: Final = "CreatedPods"
    DELETED_PODS: Final = "DeletedPods"
    SCALED: Final = "Scaled"
    NO_HOST_PORT: Final = "NoHostPort"
    WAITING_FOR_PODS: Final = "WaitingForPods"
    WAITING_FOR_GANG: Final = "WaitingForGang"
    PODS_STARTING: Final = "PodsStarting"
    PODS_RUNNING: Final = "PodsRunning"
    WORKERS_SUCCEEDED: Final = "WorkersSucceeded"
    POD_FAILED: Final = "PodFailed"
    SERVER_EXITED_EARLY: Final = "ServerExitedEarly"
    DELETING: Final = "Deleting"
    NO_PROGRESS: Final = "NoProgress"
    LOSS_NAN: Final = "LossNaN"
    LOSS_INF: Final = "LossInf"
    AA_DIFF: Final = "AADiff"
    SHARDING_PAD_NON_ZERO: Final = "ShardingPadNonZero"
    DOWNLOAD_FAILED: Final = "DownloadFailed"
    CHECKPOINT_FAILED: Final = "CheckpointFailed"
    BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
    STARTUP_DEADLINE_EXCEEDED: Final = "StartupDeadlineExceeded"
    POD_LOST: Final = "PodLost"
    HUNG: Final = "Hung"
    STRAGGLER: Final = "Straggler"
    IDLE_ACCELERATORS: Final = "IdleAccelerators"
    NO_RECORDER: Final = "NoRecorder"
    ADDRESS_CHANGED: Final = "AddressChanged"
    QUOTA_LOST: Final = "QuotaLost"
    RESTARTING: Final = "Restarting"
    REPLACED_POD: Final = "ReplacedPod"
    WAITING_TO_RESTART: Final = "WaitingToRestart"
    SHRUNK: Final = "Shrunk"
    GROWN: Final = "Grown"
    SUSPENDED: Final = "Suspended"
