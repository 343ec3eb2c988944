"""PaddleJob, batch.paddlepaddle.org/v1, as immutable structs.

Pod templates are plain JSON (`JsonObject`), because a typed pod model would lose unknown fields. Text fields
with several accepted spellings (`cleanPodPolicy`, `intranet`) keep the user's spelling;
`defaulting.effective` converts them to enums.

Each field has a description and bounds (`about`), the source of the CRD, the reference and `validation`.
Decoding does not check the bounds, so that the status can report violations.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from paddlejob.api import names, quantity
from paddlejob.api.meta import Condition, JsonObject, ObjectMeta, OwnerReference, View, about
from paddlejob.api.pod_counts import Failure as Failure  # noqa: PLC0414 - part of this version of the API
from paddlejob.api.pod_counts import RoleStatus as RoleStatus  # noqa: PLC0414
from paddlejob.api.pod_counts import WorldSize as WorldSize  # noqa: PLC0414
from paddlejob.api.restart_policy import MAX_BACKOFF_LIMIT as MAX_BACKOFF_LIMIT  # noqa: PLC0414
from paddlejob.api.restart_policy import RestartPolicy as RestartPolicy  # noqa: PLC0414
from paddlejob.api.training import Goodput as Goodput  # noqa: PLC0414
from paddlejob.api.training import ProgressMark as ProgressMark  # noqa: PLC0414
from paddlejob.api.training import Recovery as Recovery  # noqa: PLC0414
from paddlejob.api.training import RecoveryKind as RecoveryKind  # noqa: PLC0414
from paddlejob.api.training import TrainingProgress as TrainingProgress  # noqa: PLC0414


class Role(enum.StrEnum):
    """The role of a pod in a job, in order of creation."""

    PS = "ps"
    WORKER = "worker"
    HETER = "heter"


class Mode(enum.StrEnum):
    """How a job trains, derived from its roles."""

    PS = "PS"
    COLLECTIVE = "Collective"
    SINGLE = "Single"
    HETER = "Heter"


class Intranet(enum.StrEnum):
    """How pods find each other."""

    POD_IP = "PodIP"
    SERVICE = "Service"
    HOST = "Host"


class CleanPodPolicy(enum.StrEnum):
    """When the pods of a finished job are deleted."""

    ALWAYS = "Always"
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ON_COMPLETION = "OnCompletion"


class Phase(enum.StrEnum):
    NONE = ""
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SCALING = "Scaling"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATING = "Terminating"

    @classmethod
    def _missing_(cls, value: object) -> Phase:
        """Map phases of the Go paddle-operator, which a status may still have."""
        return {"Succeed": cls.COMPLETED, "Terminated": cls.FAILED, "Aborted": cls.FAILED}.get(
            str(value), cls.NONE
        )

    @property
    def is_terminal(self) -> bool:
        return self in (Phase.COMPLETED, Phase.FAILED)


class HangPolicy(enum.StrEnum):
    """What to do with a job that stops making progress."""

    REPORT = "Report"
    RESTART = "Restart"


class StragglerPolicy(enum.StrEnum):
    """What to do with a rank that slows down the others."""

    REPORT = "Report"
    REPLACE = "Replace"


class SuccessPolicy(enum.StrEnum):
    """Which workers must succeed for the job to succeed."""

    ALL_WORKERS = "AllWorkers"
    WORKER_0 = "Worker0"


MAX_REPLICAS = 5000
"""The IPv4 endpoints of this many pods fit into one environment variable."""
MAX_SECONDS = 2**31 - 1

_NAME_MAX = 253
_WORD_MAX = 32
"""Maximum length of an enum-like text field."""
_COUNT = {"minimum": 0, "maximum": MAX_REPLICAS}
_TEXTS = {"maxProperties": 8, "additionalProperties": {"type": "string", "maxLength": 1024}}
_QUANTITIES = {
    "maxProperties": 64,
    "additionalProperties": {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": quantity.MAX_LENGTH,
        "pattern": f"^{quantity.PATTERN}$",
    },
}


class RoleSpec(View, frozen=True):
    """The pods of one role."""

    replicas: Annotated[int, about("Number of pods; may be changed while the job runs.", **_COUNT)] = 1
    requests: Annotated[
        int | None, about("Smallest number of replicas that the job can run with.", **_COUNT)
    ] = None
    limits: Annotated[int | None, about("Largest number of replicas; 0 means no limit.", **_COUNT)] = None
    template: Annotated[
        JsonObject,
        about(
            "Template of the pods, a Kubernetes PodTemplateSpec, passed on unchanged. The first container "
            "runs the training program and gets the job's environment."
        ),
    ] = {}


class SchedulingPolicy(View, frozen=True):
    """How the pods of a job are scheduled together."""

    min_available: Annotated[
        int | None, about("Number of pods that must fit before any starts. Default: all pods.", **_COUNT)
    ] = None
    queue: Annotated[str, about("Scheduler queue of the job.", maxLength=_NAME_MAX)] = ""
    priority_class: Annotated[str, about("PriorityClass of the gang.", maxLength=_NAME_MAX)] = ""
    min_resources: Annotated[
        dict[str, int | str],
        about(
            "Resources that must be free before any pod starts. Default: the sum of the pods' requests.",
            **_QUANTITIES,
        ),
    ] = {}


class PaddleJobSpec(View, frozen=True):
    """The desired state of a job, written by the user."""

    clean_pod_policy: Annotated[
        str,
        about(
            "When to delete the pods of a finished job: Always, Never, OnFailure or OnCompletion (default). "
            "With Never, the pods and their logs stay for debugging.",
            maxLength=_WORD_MAX,
        ),
    ] = ""
    clean_policy: Annotated[
        str, about("Alias of cleanPodPolicy, which wins if both are set.", maxLength=_WORD_MAX)
    ] = ""
    intranet: Annotated[
        str,
        about(
            "How pods address each other: PodIP, Service (one Service per pod, so pods may move) or Host "
            "(the node's network, with a port range for this job).",
            maxLength=_WORD_MAX,
            default=str(Intranet.POD_IP),
        ),
    ] = ""
    with_gloo: Annotated[
        int | None,
        about(
            "Gloo barriers of parameter server jobs: 0 off, 1 workers (default), 2 workers and servers; 2 "
            "needs PADDLE_GLOO_FS_PATH, a shared directory, in both templates.",
            minimum=0,
            maximum=2,
        ),
    ] = None
    ps: Annotated[
        RoleSpec | None, about("Parameter servers. Without them the workers train collectively.")
    ] = None
    worker: Annotated[RoleSpec | None, about("Workers; at least one.")] = None
    heter: Annotated[RoleSpec | None, about("Second stage of a heterogeneous parameter server job.")] = None
    sample_set_ref: Annotated[
        dict[str, str], about("A SampleSet of PaddleCloud; has no effect, mount a volume instead.", **_TEXTS)
    ] = {}
    elastic: Annotated[int | None, about("Enables elastic resizing; the value is ignored.", minimum=0)] = None
    scheduling_policy: Annotated[
        SchedulingPolicy | None, about("Schedules the pods together, as one gang.")
    ] = None
    backoff_limit: Annotated[
        int,
        about(
            "Number of restarts after failures of the program itself. Restarts after evictions, preemption, "
            "lost nodes and deleted pods do not count.",
            minimum=0,
            maximum=MAX_BACKOFF_LIMIT,
        ),
    ] = 3
    restart_policy: Annotated[
        RestartPolicy, about("Which failures restart the job, and after which delay.")
    ] = RestartPolicy()
    spares: Annotated[
        int,
        about(
            "Number of extra worker pods of a collective job that wait without a rank. One of them takes the "
            "rank of a worker whose pod is lost, and the other workers restart in place.",
            **_COUNT,
        ),
    ] = 0
    success_policy: Annotated[
        str,
        about(
            "Which workers must succeed: AllWorkers (default) or Worker0.",
            enum=[str(policy) for policy in SuccessPolicy],
        ),
    ] = ""
    suspend: Annotated[bool, about("Deletes the job's pods and creates none until this is false again.")] = (
        False
    )
    active_deadline_seconds: Annotated[
        int | None,
        about(
            "Maximum running time of the job in seconds; suspended time does not count. After that, its "
            "pods are stopped regardless of cleanPodPolicy.",
            minimum=1,
            maximum=MAX_SECONDS,
        ),
    ] = None
    startup_deadline_seconds: Annotated[
        int | None,
        about(
            "Maximum time in seconds until all pods run for the first time. After that, they are stopped "
            "regardless of cleanPodPolicy.",
            minimum=1,
            maximum=MAX_SECONDS,
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None,
        about(
            "How long to keep a finished job before deleting it. Default: forever.",
            minimum=0,
            maximum=MAX_SECONDS,
        ),
    ] = None
    recorder: Annotated[
        bool | None,
        about(
            "Whether workers report step, loss and phase from inside their Python, without changes to the "
            "program. Default: the operator's --recorder."
        ),
    ] = None
    hang_policy: Annotated[
        str,
        about(
            "What to do if workers with the recorder make no progress for much longer than their longest "
            "pause so far: Report (default), or Restart, which counts against backoffLimit.",
            enum=[str(policy) for policy in HangPolicy],
        ),
    ] = ""
    straggler_policy: Annotated[
        str,
        about(
            "What to do if a worker with the recorder slows down the others in every step: Report "
            "(default), or Replace, which recreates its pod, preferably on another node, and counts "
            "against backoffLimit.",
            enum=[str(policy) for policy in StragglerPolicy],
        ),
    ] = ""
    managed_by: Annotated[
        str,
        about(
            "Name of the controller that reconciles the job; the operator ignores jobs of other controllers.",
            maxLength=63,
        ),
    ] = ""

    def roles(self) -> Iterator[tuple[Role, RoleSpec]]:
        """Yield the roles with at least one replica, in order of creation."""
        for role, spec in ((Role.PS, self.ps), (Role.WORKER, self.worker), (Role.HETER, self.heter)):
            if spec is not None and spec.replicas > 0:
                yield role, spec

    def replicas(self, role: Role) -> int:
        spec: RoleSpec | None = getattr(self, role)
        return max(0, spec.replicas) if spec is not None else 0

    @property
    def mode(self) -> Mode:
        if self.replicas(Role.HETER):
            return Mode.HETER
        if self.replicas(Role.PS):
            return Mode.PS
        return Mode.COLLECTIVE if self.replicas(Role.WORKER) > 1 else Mode.SINGLE


class PaddleJobStatus(View, frozen=True):
    """The observed state of a job, written by the operator."""

    phase: Annotated[
        Phase,
        about(
            "Pending, Starting, Running, Restarting, Scaling, Suspended, Completed, Failed or Terminating."
        ),
    ] = Phase.NONE
    mode: Annotated[str, about("PS, Collective, Single or Heter.")] = ""
    reason: Annotated[str, about("Machine-readable reason for the phase (CamelCase).")] = ""
    message: Annotated[str, about("Human-readable details: the cause of waiting, or the first failure.")] = ""
    ps: Annotated[RoleStatus | None, about("Parameter servers.")] = None
    worker: Annotated[RoleStatus | None, about("Workers.")] = None
    heter: Annotated[RoleStatus | None, about("Heter pods.")] = None
    conditions: Annotated[
        tuple[Condition, ...],
        about(
            "Conditions of the job, for `kubectl wait --for=condition=...`.",
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    start_time: Annotated[datetime | None, about("When all pods first ran.")] = None
    completion_time: Annotated[datetime | None, about("When the job completed or failed.")] = None
    observed_generation: Annotated[
        int, about("Generation of the spec that the status describes.", format="int64")
    ] = 0
    host_port: Annotated[int, about("First port of the job's range on its nodes (intranet Host).")] = 0
    selector: Annotated[str, about("Label selector of the workers' pods, for autoscalers.")] = ""
    attempt: Annotated[
        int, about("Number of the attempt, from 0; grows with every restart, scaling and replacement.")
    ] = 0
    base_attempt: Annotated[
        int, about("Attempt in which all pods were last recreated; older pods no longer belong to the job.")
    ] = 0
    process_attempt: Annotated[
        int,
        about("Attempt in which all programs were last restarted in place; older processes must not run."),
    ] = 0
    attempt_time: Annotated[datetime | None, about("When the attempt began.")] = None
    consecutive_restarts: Annotated[
        int,
        about(
            "Consecutive restarts; reset after 10 minutes of running, or after one minute with a new step."
        ),
    ] = 0
    rounds: Annotated[
        int, about("Number of rounds in which objects were created or changed in this attempt.")
    ] = 0
    retry_time: Annotated[datetime | None, about("No objects are created before this time.")] = None
    resume_time: Annotated[datetime | None, about("When the job was last resumed.")] = None
    restarts: Annotated[int, about("Restarts that counted against backoffLimit.")] = 0
    workers: Annotated[
        int, about("Current number of workers of an elastic job that cannot get all of them; otherwise 0.")
    ] = 0
    succeeded_workers: Annotated[
        str,
        about(
            "Indexes of the workers that have succeeded since all pods were last created, such as 0-2,5; "
            "they rerun only if all pods are recreated."
        ),
    ] = ""
    replaced_workers: Annotated[
        str,
        about(
            "Indexes of the workers that the attempt replaces while the others keep running, such as 0-2,5."
        ),
    ] = ""
    moved_ranks: Annotated[
        str,
        about(
            "Ranks that former spare pods hold since all pods were last created, as rank:pod, such as 1:4."
        ),
    ] = ""
    spares: Annotated[
        str, about("Spare pods that are ready and those that are wanted, such as 1/2; empty without spares.")
    ] = ""
    world_size: Annotated[WorldSize | None, about("Last world size of the job.")] = None
    last_failure: Annotated[Failure | None, about("First failure of the last failed attempt.")] = None
    last_recovery: Annotated[Recovery | None, about("The last restart, and the parts of its time.")] = None
    active_since: Annotated[datetime | None, about("When the job started or was last resumed.")] = None
    active_seconds: Annotated[int, about("How long the job had run before its last suspension.")] = 0
    progress: Annotated[
        TrainingProgress | None,
        about("Training progress, as reported by worker 0 or read from its log."),
    ] = None
    goodput: Annotated[Goodput | None, about("How the job spent its time.")] = None
    progress_mark: Annotated[ProgressMark | None, about("Furthest step that earlier attempts reached.")] = (
        None
    )
    restarts_without_progress: Annotated[
        int, about("Counted restarts since the last new step, if steps are known.")
    ] = 0
    suspect_nodes: Annotated[
        tuple[str, ...],
        about(
            "Nodes that rejected or lost pods, computed wrong results or slowed down the job; new pods "
            "prefer other nodes."
        ),
    ] = ()

    @property
    def first_process_attempt(self) -> int:
        """The earliest attempt whose processes may run."""
        return max(self.base_attempt, self.process_attempt)


class PaddleJob(View, frozen=True):
    """A training job."""

    metadata: ObjectMeta
    spec: Annotated[PaddleJobSpec, about("What to train, with which pods.")] = PaddleJobSpec()
    status: Annotated[PaddleJobStatus, about("State of the job, written by the operator.")] = (
        PaddleJobStatus()
    )
    undecodable: str = ""
    """The decode error, if the stored object does not match these types; set by the caller."""

    @property
    def name(self) -> str:
        """The name of the job and of its ConfigMap."""
        return self.metadata.name

    @property
    def owner_reference(self) -> OwnerReference:
        """The owner reference for objects of this job."""
        return OwnerReference(
            api_version=names.API_VERSION,
            kind=names.KIND,
            name=self.metadata.name,
            uid=self.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
