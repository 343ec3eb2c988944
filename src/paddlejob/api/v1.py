"""PaddleJob, batch.paddlepaddle.org/v1, as immutable structs.

The pod templates stay plain JSON (`JsonObject`): a typed pod model would lose every field it does not know.
Text fields with several accepted spellings (`cleanPodPolicy`, `intranet`) hold what the user wrote;
`defaulting.effective` turns them into the enums.

Each field has its text and its bounds beside its type (`about`). The CRD, the reference and `validation` are
generated from them. Decoding does not check the bounds, so that the status can say what is wrong.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from paddlejob.api import names, quantity
from paddlejob.api.meta import Condition, JsonObject, ObjectMeta, OwnerReference, View, about
from paddlejob.api.training import Goodput as Goodput  # noqa: PLC0414 - part of this version of the API
from paddlejob.api.training import ProgressMark as ProgressMark  # noqa: PLC0414
from paddlejob.api.training import TrainingProgress as TrainingProgress  # noqa: PLC0414


class Role(enum.StrEnum):
    """What a pod does in a job; the order is the order of creation."""

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
    """Where a job is in its life."""

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
        """Read the phases that earlier operators may have left in a status."""
        return {"Succeed": cls.COMPLETED, "Terminated": cls.FAILED, "Aborted": cls.FAILED}.get(
            str(value), cls.NONE
        )

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended for good."""
        return self in (Phase.COMPLETED, Phase.FAILED)


class HangPolicy(enum.StrEnum):
    """What becomes of a job that makes no progress any more."""

    REPORT = "Report"
    RESTART = "Restart"


class StragglerPolicy(enum.StrEnum):
    """What becomes of a rank that slows the others down."""

    REPORT = "Report"
    REPLACE = "Replace"


class SuccessPolicy(enum.StrEnum):
    """Which workers have to succeed for the job to succeed."""

    ALL_WORKERS = "AllWorkers"
    WORKER_0 = "Worker0"


MAX_REPLICAS = 5000
"""The endpoints of this many pods, written as IPv4, still fit into one environment variable."""
MAX_BACKOFF_LIMIT = 1000
MAX_SECONDS = 2**31 - 1

_NAME_MAX = 253
_WORD_MAX = 32
"""Longest text of a field that holds one of a few words."""
_COUNT = {"minimum": 0, "maximum": MAX_REPLICAS}
_EXIT_CODES = {
    "maxItems": 255,
    "items": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 255},
}
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
    queue: Annotated[str, about("Queue of the scheduler that the job waits in.", maxLength=_NAME_MAX)] = ""
    priority_class: Annotated[str, about("PriorityClass of the gang.", maxLength=_NAME_MAX)] = ""
    min_resources: Annotated[
        dict[str, int | str],
        about(
            "Resources that must be free before any pod starts. Default: the sum of the pods' requests.",
            **_QUANTITIES,
        ),
    ] = {}


class RestartPolicy(View, frozen=True):
    """Which failures the job is restarted after, and how soon.

    By default exit codes from 1 to 127 are permanent and those from 128 on are retryable.
    """

    permanent_exit_codes: Annotated[
        tuple[int, ...], about("Exit codes that fail the job at once.", **_EXIT_CODES)
    ] = ()
    retryable_exit_codes: Annotated[
        tuple[int, ...],
        about("Exit codes that restart the job; the restart counts against backoffLimit.", **_EXIT_CODES),
    ] = ()
    ignored_exit_codes: Annotated[
        tuple[int, ...],
        about(
            "Exit codes that restart the job without counting against backoffLimit. If no list has them, 15, "
            "101 and 143 count only from the sixth consecutive restart on.",
            **_EXIT_CODES,
        ),
    ] = ()
    delay_seconds: Annotated[
        int, about("Delay before the first restart; doubles with every further one.", minimum=0, maximum=3600)
    ] = 5
    max_delay_seconds: Annotated[int, about("Longest delay before a restart.", minimum=0, maximum=86400)] = (
        300
    )
    node_lost_seconds: Annotated[
        int,
        about("How long a node may be unreachable before its pods are replaced.", minimum=10, maximum=86400),
    ] = 120
    no_progress_limit: Annotated[
        int | None,
        about(
            "Fails the job after this many consecutive restarts without a new step. If steps are known "
            "(status.progress), it replaces backoffLimit, and every new step resets the count. "
            "Default: only backoffLimit applies.",
            minimum=1,
            maximum=MAX_BACKOFF_LIMIT,
        ),
    ] = None


class PaddleJobSpec(View, frozen=True):
    """What the user asks for."""

    clean_pod_policy: Annotated[
        str,
        about(
            "When to delete the pods of a finished job: Always, Never, OnFailure or OnCompletion (default). "
            "Never keeps the logs for debugging.",
            maxLength=_WORD_MAX,
        ),
    ] = ""
    clean_policy: Annotated[
        str, about("Alias of cleanPodPolicy, which wins if both are set.", maxLength=_WORD_MAX)
    ] = ""
    intranet: Annotated[
        str,
        about(
            "How pods reach each other: by PodIP, by the name of a Service per pod (pods may move), or on "
            "the network of the Host with a port range of the job's own.",
            maxLength=_WORD_MAX,
            default=str(Intranet.POD_IP),
        ),
    ] = ""
    with_gloo: Annotated[
        int | None,
        about(
            "Gloo barriers of parameter server jobs: 0 off, 1 workers (default), 2 workers and servers, "
            "which Paddle 2.6 and 3.x treat like 1. Ignored without parameter servers.",
            minimum=0,
            maximum=2,
        ),
    ] = None
    ps: Annotated[
        RoleSpec | None, about("Parameter servers. Without them the workers train collectively.")
    ] = None
    worker: Annotated[RoleSpec | None, about("Workers; at least one.")] = None
    heter: Annotated[RoleSpec | None, about("Second stage of a heterogeneous parameter server job.")] = None
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
        RestartPolicy, about("Which failures the job is restarted after, and how soon.")
    ] = RestartPolicy()
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
            "How long the job may run; time in suspension does not count. Then its pods are stopped, "
            "whatever cleanPodPolicy says.",
            minimum=1,
            maximum=MAX_SECONDS,
        ),
    ] = None
    startup_deadline_seconds: Annotated[
        int | None,
        about(
            "How long the job may take until all its pods run for the first time. Then its pods are stopped, "
            "whatever cleanPodPolicy says.",
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
            "What to do when workers with the recorder make no progress for much longer than ever before: "
            "Report (default), or Restart, which counts against backoffLimit.",
            enum=[str(policy) for policy in HangPolicy],
        ),
    ] = ""
    straggler_policy: Annotated[
        str,
        about(
            "What to do when a worker with the recorder slows the others down in every step: Report "
            "(default), or Replace, which recreates its pod, preferably on another node, and counts against "
            "backoffLimit.",
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
        """Yield the roles that have pods, in order of creation; zero replicas is the same as no role."""
        for role, spec in ((Role.PS, self.ps), (Role.WORKER, self.worker), (Role.HETER, self.heter)):
            if spec is not None and spec.replicas > 0:
                yield role, spec

    def replicas(self, role: Role) -> int:
        """Return how many pods of a role the user wants."""
        spec: RoleSpec | None = getattr(self, role)
        return max(0, spec.replicas) if spec is not None else 0

    @property
    def mode(self) -> Mode:
        """How this job trains."""
        if self.replicas(Role.HETER):
            return Mode.HETER
        if self.replicas(Role.PS):
            return Mode.PS
        return Mode.COLLECTIVE if self.replicas(Role.WORKER) > 1 else Mode.SINGLE


class RoleStatus(View, frozen=True, omit_defaults=False):
    """Pods of one role; of a finished job, the pods that remain, and how many had failed or succeeded."""

    ready: Annotated[str, about("Running and wanted pods, such as 2/2.")] = "0/0"
    replicas: Annotated[int, about("Pods that exist.")] = 0
    pending: Annotated[int, about("Pods that wait for a node or for their environment.")] = 0
    starting: Annotated[int, about("Pods whose containers are starting.")] = 0
    running: Annotated[int, about("Running pods.")] = 0
    failed: Annotated[int, about("Failed pods.")] = 0
    succeeded: Annotated[int, about("Succeeded pods.")] = 0
    unknown: Annotated[int, about("Pods whose node is unreachable.")] = 0


class WorldSize(View, frozen=True, omit_defaults=False):
    """World size: the number of pods of each role that an attempt ran with."""

    attempt: Annotated[int, about("Attempt that the numbers belong to.")] = 0
    ps: Annotated[int, about("Parameter servers.")] = 0
    worker: Annotated[int, about("Workers.")] = 0
    heter: Annotated[int, about("Heter pods.")] = 0


class Failure(View, frozen=True, omit_defaults=False):
    """First failure of an attempt; kept after the restart."""

    attempt: Annotated[int, about("Attempt that failed.")] = 0
    pod: Annotated[str, about("Pod that failed first.")] = ""
    reason: Annotated[str, about("Reason, in one word for programs.")] = ""
    exit_code: Annotated[int, about("Exit code of its container, 0 if there was none.")] = 0
    message: Annotated[str, about("Reason, in one line for people.")] = ""
    time: Annotated[datetime | None, about("Time of the failure.")] = None
    counted: Annotated[bool, about("Whether the failure counted against backoffLimit.")] = True


class PaddleJobStatus(View, frozen=True):
    """What the operator reports about a job."""

    phase: Annotated[
        Phase,
        about(
            "Pending, Starting, Running, Restarting, Scaling, Suspended, Completed, Failed or Terminating."
        ),
    ] = Phase.NONE
    mode: Annotated[str, about("PS, Collective, Single or Heter.")] = ""
    reason: Annotated[str, about("Reason for the phase, in one word for programs.")] = ""
    message: Annotated[str, about("What the job waits for or what failed first, in one line for people.")] = (
        ""
    )
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
    attempt_time: Annotated[datetime | None, about("When the attempt began.")] = None
    consecutive_restarts: Annotated[
        int,
        about(
            "Consecutive restarts; reset after 10 minutes of running, or after one minute with a new step."
        ),
    ] = 0
    rounds: Annotated[int, about("How often objects were created or changed in this attempt.")] = 0
    retry_time: Annotated[datetime | None, about("Nothing is created before this time.")] = None
    resume_time: Annotated[datetime | None, about("When the job was last resumed.")] = None
    restarts: Annotated[int, about("Restarts that counted against backoffLimit.")] = 0
    workers: Annotated[
        int, about("Number of workers that an elastic job runs with while it cannot have all; otherwise 0.")
    ] = 0
    succeeded_workers: Annotated[
        str,
        about(
            "Indexes of the workers that have succeeded since all pods were last created, such as 0-2,5; "
            "they run again only when all pods do."
        ),
    ] = ""
    replaced_workers: Annotated[
        str, about("Indexes of the workers that the attempt replaces alone, such as 0-2,5.")
    ] = ""
    world_size: Annotated[WorldSize | None, about("World size that the job last ran with.")] = None
    formation: Annotated[WorldSize | None, about("Deprecated: the name of worldSize in version 0.1.0.")] = (
        None
    )
    last_failure: Annotated[Failure | None, about("First failure of the last failed attempt.")] = None
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
            "Nodes that rejected or lost pods, computed wrongly or slowed the job down; pods prefer others."
        ),
    ] = ()


class PaddleJob(View, frozen=True):
    """A training job."""

    metadata: ObjectMeta
    spec: Annotated[PaddleJobSpec, about("What to train, with which pods.")] = PaddleJobSpec()
    status: Annotated[PaddleJobStatus, about("State of the job, written by the operator.")] = (
        PaddleJobStatus()
    )
    undecodable: str = ""
    """Set by a shell when the stored object does not fit these types: the reason, in words."""

    @property
    def name(self) -> str:
        """The job's name, also that of its ConfigMap."""
        return self.metadata.name

    @property
    def owner_reference(self) -> OwnerReference:
        """What ties a child object to this job."""
        return OwnerReference(
            api_version=names.API_VERSION,
            kind=names.KIND,
            name=self.metadata.name,
            uid=self.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
