"""Names that users and other programs rely on: labels, annotations, environment variables, reasons, ports."""

from __future__ import annotations

from typing import Final

GROUP: Final = "batch.paddlepaddle.org"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "PaddleJob"
PLURAL: Final = "paddlejobs"
SHORT_NAME: Final = "pdj"

# Labels on all objects of a job. Earlier operators used the two `paddle-res-*` labels: users' scripts select
# on them, and they identify the pods of such an operator.
LABEL_JOB: Final = f"{GROUP}/job-name"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_INDEX: Final = f"{GROUP}/index"
LABEL_RESOURCE_NAME: Final = "paddle-res-name"
LABEL_RESOURCE_TYPE: Final = "paddle-res-type"

ANNOTATION_ROLE: Final = "paddle-resource"
ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
"""On a pod: hash of the ConfigMap with which the pod was started or updated."""
ANNOTATION_SUPERVISED: Final = f"{GROUP}/supervised"
"""On a pod whose program can be restarted in place: hash of its template."""
ANNOTATION_SPARE: Final = f"{GROUP}/spare"
"""Marks a pod that was created without a rank."""

ANNOTATION_TOTAL_STEPS: Final = f"{GROUP}/total-steps"
"""On a job: the number of steps of the whole training, for programs that do not print it."""

ANNOTATION_GANG: Final = f"{GROUP}/gang"
"""On a pod: its gang scheduler; absent on a pod that is scheduled individually."""

# The name of Volcano's scheduler, and the annotations that identify a pod's gang.
VOLCANO: Final = "volcano"
ANNOTATION_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
ANNOTATION_TASK: Final = "volcano.sh/task-spec"
ANNOTATION_VOLCANO_JOB: Final = "volcano.sh/job-name"
ANNOTATION_VOLCANO_JOB_VERSION: Final = "volcano.sh/job-version"
ANNOTATION_QUEUE: Final = "volcano.sh/queue-name"

LABEL_KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""On a job: its LocalQueue of Kueue."""
ANNOTATION_POD_SETS: Final = f"{GROUP}/pod-sets"
"""On a Workload: hash of the pods in it."""

LABEL_ATTEMPT: Final = f"{GROUP}/attempt"

LABEL_HISTORY: Final = f"{GROUP}/history"
"""On a ConfigMap with the record of a deleted job; the value is the version of the record."""
ANNOTATION_SUMMARY: Final = f"{GROUP}/summary"
"""On such a ConfigMap: the job's outcome, as JSON."""
RECORDER: Final = "paddlejob-recorder"
"""The recorder's volume in a pod, the audience of its token, and the prefix of its ConfigMap's name."""
RECORDER_MOUNT: Final = "/etc/paddlejob/recorder"
LAUNCHER_LOGS: Final = "paddlejob-logs"
"""The volume with the logs of the processes that Paddle's launcher starts in a pod."""
LAUNCHER_LOG_DIR: Final = "/var/log/paddlejob"

CONTROLLER_NAME: Final = "paddlepaddle.org/paddlejob-operator"
"""Value of `spec.managedBy` in jobs of this operator, unless it is empty."""

LEGACY_FINALIZER: Final = "finalizers.paddlepaddle.org"
"""Earlier operators put it on every job; this operator does not need it and only removes it."""

# Twenty consecutive ports per pod: launchers before Paddle 2.3 use one per accelerator, from the base upward.
BASE_PORT: Final = 36000
PORTS_PER_POD: Final = 20
MASTER_PORT_OFFSET: Final = 1
LAUNCHER_PORT_OFFSET: Final = 2
"""The first port for the processes of Paddle's launcher, up to the end of the block."""
GLOO_PORT_OFFSET: Final = 18
HOST_PORT_RANGE: Final = (35000, 65000)

GLOO_RENDEZVOUS_FILE: Final = "2"
GLOO_RENDEZVOUS_HTTP: Final = "3"

POD_REASON_JOB_ENDED: Final = "JobEnded"
"""`status.reason` of a pod that had no node when its job ended."""

TERMINATION_MESSAGE_POLICY: Final = "FallbackToLogsOnError"
"""Makes the kubelet keep the end of a failed container's log, which explains the failure."""


class Env:
    """Environment variables of PaddlePaddle and paddlejob."""

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
    LOCAL_SIZE: Final = "PADDLE_LOCAL_SIZE"
    LOCAL_RANK: Final = "PADDLE_LOCAL_RANK"
    RANK_IN_NODE: Final = "PADDLE_RANK_IN_NODE"
    GLOBAL_SIZE: Final = "PADDLE_GLOBAL_SIZE"
    GLOBAL_RANK: Final = "PADDLE_GLOBAL_RANK"
    DISTRI_BACKEND: Final = "PADDLE_DISTRI_BACKEND"
    XCCL_BACKEND: Final = "PADDLE_XCCL_BACKEND"
    SELECTED_DEVICES: Final = "FLAGS_selected_{}s"
    """Cards of a process; the gap is for the type of device, such as `gpu`."""
    PORT_RANGE: Final = "PORT_RANGE"
    LAUNCH_WITH_ARGS: Final = "PADDLE_LAUNCH_WITH_ARGS"
    MASTER_ADDR: Final = "MASTER_ADDR"
    MASTER_PORT: Final = "MASTER_PORT"
    WITH_GLOO: Final = "PADDLE_WITH_GLOO"
    GLOO_RENDEZVOUS: Final = "PADDLE_GLOO_RENDEZVOUS"
    GLOO_HTTP_ENDPOINT: Final = "PADDLE_GLOO_HTTP_ENDPOINT"
    GLOO_FS_PATH: Final = "PADDLE_GLOO_FS_PATH"
    SYS_JOB_ID: Final = "SYS_JOB_ID"
    """Prefix of gloo's keys, which must differ from those of earlier jobs and attempts."""
    ALL_HETER_ENDPOINTS: Final = "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"
    NEXT_HETER_ENDPOINTS: Final = "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"
    PREVIOUS_HETER_ENDPOINTS: Final = "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"
    HETER_DEVICE_TYPE: Final = "HETER_DEVICE_TYPE"
    STAGE_ID: Final = "STAGE_ID"
    STAGE_NUM: Final = "STAGE_NUM"
    STAGE_TRAINERS_NUM: Final = "PADDLE_STAGE_TRAINERS_NUM"
    ATTEMPT: Final = "PADDLEJOB_ATTEMPT"
    """Number of the job's attempt, from 0; user programs may read it."""
    REPORT_URL: Final = "PADDLEJOB_REPORT_URL"
    """URL for the recorder's reports."""
    TRAINJOB_URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"
    """URL for reports of Kubeflow's SDK."""
    TRAINJOB_CA: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
    TRAINJOB_TOKEN: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105  (a name)
    ATTEND_URL: Final = "PADDLEJOB_ATTEND_URL"
    """URL at which the supervisor of a pod asks for orders."""
    KEEP_ENV: Final = "PADDLEJOB_KEEP_ENV"
    """Variables of the template that a restart in place must not change."""
    PARKED: Final = "PADDLEJOB_PARKED"
    """Whether the supervisor keeps a process with Paddle imported."""
    PROCESS_ATTEMPT: Final = "PADDLEJOB_PROCESS_ATTEMPT"
    """The attempt whose addresses the ConfigMap has after a restart in place."""
    GIVEN_PYTHONPATH: Final = "PADDLEJOB_GIVEN_PYTHONPATH"
    """The template's PYTHONPATH if it has a valueFrom; ours refers to it."""
    ELASTIC_LEVEL: Final = "PADDLE_ELASTIC_LEVEL"
    ELASTIC_TIMEOUT: Final = "PADDLE_ELASTIC_TIMEOUT"
    MAX_RESTART: Final = "PADDLE_MAX_RESTART"
    LOG_DIR: Final = "PADDLE_LOG_DIR"


SPARE_GUARD: Final = f"{Env.ATTEMPT}_SPARE_"
"""Prefix of the ConfigMap keys that a spare pod waits for: its rank, and the attempt in which it got it."""
ATTEMPT_GUARD: Final = f"{Env.ATTEMPT}_"
"""Prefix of the ConfigMap keys that block containers until it has the addresses of their attempt."""
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
"""Variables with the identity of a pod and the addresses of its peers; a user's value would break the job."""


class Reason:
    """Stable reasons of conditions and events, for `kubectl wait` and alerts."""

    INVALID_SPEC: Final = "InvalidSpec"
    ALIAS_USED: Final = "AliasUsed"
    MASTER_OVERRIDDEN: Final = "MasterOverridden"
    NO_EFFECT: Final = "NoEffect"
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
    PEER_LOST: Final = "PeerLost"
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
