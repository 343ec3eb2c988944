"""PaddleJob, batch.paddlepaddle.org/v1, as immutable structs.

The pod templates stay plain JSON (`JsonObject`): a typed pod model would lose every field it does not know.
Text fields with several accepted spellings (`cleanPodPolicy`, `intranet`) hold what the user wrote;
`defaulting.effective` turns them into the enums.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import datetime

from paddlejob.api import names
from paddlejob.api.meta import Condition, JsonObject, ObjectMeta, OwnerReference, View


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


class SuccessPolicy(enum.StrEnum):
    """Whose success is the job's."""

    ALL_WORKERS = "AllWorkers"
    WORKER_0 = "Worker0"


class RoleSpec(View, frozen=True):
    """The pods of one role."""

    replicas: int = 1
    requests: int | None = None
    limits: int | None = None
    template: JsonObject = {}


class SchedulingPolicy(View, frozen=True):
    """How the pods of a job are scheduled together."""

    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""
    min_resources: dict[str, int | str] = {}


class RestartPolicy(View, frozen=True):
    """Which failures a job is restarted after, and how soon.

    Without rules, exit codes from 1 to 127 are permanent and those from 128 on are retryable.
    """

    permanent_exit_codes: tuple[int, ...] = ()
    retryable_exit_codes: tuple[int, ...] = ()
    ignored_exit_codes: tuple[int, ...] = ()
    delay_seconds: int = 5
    max_delay_seconds: int = 300
    node_lost_seconds: int = 120


class PaddleJobSpec(View, frozen=True):
    """What the user asks for."""

    clean_pod_policy: str = ""
    clean_policy: str = ""
    intranet: str = ""
    with_gloo: int | None = None
    ps: RoleSpec | None = None
    worker: RoleSpec | None = None
    heter: RoleSpec | None = None
    elastic: int | None = None
    scheduling_policy: SchedulingPolicy | None = None
    backoff_limit: int = 3
    restart_policy: RestartPolicy = RestartPolicy()
    success_policy: str = ""
    suspend: bool = False
    active_deadline_seconds: int | None = None
    startup_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: str = ""

    def roles(self) -> Iterator[tuple[Role, RoleSpec]]:
        """Yield the roles that have pods, in order of creation; zero replicas is the same as no role."""
        for role, spec in ((Role.PS, self.ps), (Role.WORKER, self.worker), (Role.HETER, self.heter)):
            if spec is not None and spec.replicas > 0:
                yield role, spec

    def replicas(self, role: Role) -> int:
        """Return how many pods of a role the user wants."""
        return next((spec.replicas for name, spec in self.roles() if name is role), 0)

    @property
    def mode(self) -> Mode:
        """How this job trains."""
        if self.replicas(Role.HETER):
            return Mode.HETER
        if self.replicas(Role.PS):
            return Mode.PS
        return Mode.COLLECTIVE if self.replicas(Role.WORKER) > 1 else Mode.SINGLE


class RoleStatus(View, frozen=True, omit_defaults=False):
    """How the pods of one role are; of a finished job, how they were when it ended."""

    ready: str = "0/0"
    replicas: int = 0
    pending: int = 0
    starting: int = 0
    running: int = 0
    failed: int = 0
    succeeded: int = 0
    unknown: int = 0


class WorldSize(View, frozen=True, omit_defaults=False):
    """The pods that have found together: of which attempt, and how many of each role."""

    attempt: int = 0
    ps: int = 0
    worker: int = 0
    heter: int = 0


class Failure(View, frozen=True, omit_defaults=False):
    """What broke an attempt first; it stays in the status after the restart."""

    attempt: int = 0
    pod: str = ""
    reason: str = ""
    exit_code: int = 0
    message: str = ""
    time: datetime | None = None
    counted: bool = True
    """Whether it used up one of `backoffLimit`."""


class PaddleJobStatus(View, frozen=True):
    """What the operator says about a job."""

    phase: Phase = Phase.NONE
    mode: str = ""
    reason: str = ""
    message: str = ""
    ps: RoleStatus | None = None
    worker: RoleStatus | None = None
    heter: RoleStatus | None = None
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None
    completion_time: datetime | None = None
    observed_generation: int = 0
    host_port: int = 0
    selector: str = ""
    attempt: int = 0
    """Grows by one with every restart, scaling and replacement."""
    base_attempt: int = 0
    """The attempt in which all pods were last made anew; older pods do not belong to the job any more."""
    attempt_time: datetime | None = None
    consecutive_restarts: int = 0
    """How many attempts in a row, up to this one, were reactions; progress ends the row."""
    rounds: int = 0
    """How often something was created or changed for this attempt."""
    retry_time: datetime | None = None
    """Before this time nothing is created."""
    resume_time: datetime | None = None
    restarts: int = 0
    """How many restarts counted against `backoffLimit`."""
    workers: int = 0
    """With how many workers an elastic job goes on when it cannot have all; 0 when it has all."""
    succeeded_workers: str = ""
    """Indexes of the workers that have succeeded since `base_attempt`, such as `0-2,5`: their pods may go."""
    world_size: WorldSize | None = None
    last_failure: Failure | None = None
    active_since: datetime | None = None
    active_seconds: int = 0
    """How long the job had been active before it was last suspended."""


class PaddleJob(View, frozen=True):
    """A training job."""

    metadata: ObjectMeta
    spec: PaddleJobSpec = PaddleJobSpec()
    status: PaddleJobStatus = PaddleJobStatus()
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
