"""A job as one reconcile sees it: the snapshot and everything derived from it before a decision.

A spec may become invalid while its job trains: by an edit, or because an earlier operator was less strict.
Success, failure and deadlines of the running pods still count, judged by the fields that can be trusted:

- Replicas are those of the last world size, because the sizes in the spec may be wrong.
- An unknown `successPolicy` means AllWorkers: if all workers have succeeded, so has any subset.
- Failures count against a job only by valid rules, because a verdict is final.
- An invalid time limit is ignored.
- Pods are kept after the end if the clean-up policy is invalid.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

import msgspec

from paddlejob.api import defaulting, names, validation
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import (
    MAX_BACKOFF_LIMIT,
    MAX_REPLICAS,
    PaddleJob,
    PaddleJobStatus,
    RestartPolicy,
    RoleSpec,
)
from paddlejob.api.validation.errors import FieldError
from paddlejob.core import network
from paddlejob.core.attempts import elastic
from paddlejob.core.attempts.new_attempt import was_established
from paddlejob.core.attempts.processes import apparent_pod
from paddlejob.core.gang.registry import reconcile_gang
from paddlejob.core.gang.state import GangState
from paddlejob.core.paddle_env import DesiredConfig, JobContext, desired_config_of
from paddlejob.core.pod_set import Attempts, PodSet, pod_set_of, training_container_name
from paddlejob.core.recorder import recorder_of
from paddlejob.core.snapshot import Snapshot

_FAILURE_RULES = ("spec.backoffLimit", "spec.restartPolicy")
_LENIENT_RULES = {"backoff_limit": MAX_BACKOFF_LIMIT, "restart_policy": RestartPolicy()}
_TIME_LIMITS = {
    "spec.activeDeadlineSeconds": "active_deadline_seconds",
    "spec.startupDeadlineSeconds": "startup_deadline_seconds",
}


class Observed(msgspec.Struct, frozen=True):
    """A job with its validated spec and its sorted pods."""

    stored: PaddleJob
    """The job as it is stored in the API server."""
    snapshot: Snapshot
    """The snapshot with the trusted job, and with pods that appear as their programs are."""
    spec_errors: tuple[FieldError, ...]
    """Errors in the spec; no pod is created while there are any. Empty if the job is over."""
    has_failure_rules: bool
    """Whether the rules that count failures against the job are valid."""
    spec: EffectiveSpec
    """The spec with all defaults, and with the current number of workers of an elastic job."""
    pods: PodSet

    @property
    def trusted(self) -> PaddleJob:
        """The job with only those fields of an invalid spec that can be trusted."""
        return self.snapshot.job

    @property
    def status(self) -> PaddleJobStatus:
        """The status as it was last written."""
        return self.stored.status

    @property
    def now(self) -> datetime:
        """The time of this reconcile."""
        return self.snapshot.now

    @property
    def is_being_deleted(self) -> bool:
        """Whether the job itself is being deleted."""
        return self.stored.metadata.deletion_timestamp is not None

    @property
    def is_finished(self) -> bool:
        """Whether the job has completed or failed, which is final."""
        return self.status.phase.is_terminal

    @property
    def is_suspended(self) -> bool:
        """Whether `spec.suspend` is set."""
        return self.stored.spec.suspend


class ValidJob(Observed, frozen=True):
    """An observed job with a valid spec, and the objects that it needs."""

    host_port: int | None
    """First port of the job's block of host ports, 0 if it needs none, None if none is free."""
    gang: GangState
    context: JobContext
    config: DesiredConfig
    stopping: tuple[Pod, ...]
    """Pods in which a program of an earlier attempt may still run."""


def observe(snapshot: Snapshot) -> Observed:
    """Validate the spec of a live job, and sort the pods of a job that is not being deleted."""
    stored, trusted = snapshot.job, snapshot
    errors: tuple[FieldError, ...] = ()
    is_being_deleted = stored.metadata.deletion_timestamp is not None
    if not is_being_deleted and not stored.status.phase.is_terminal:
        errors = validate(snapshot)
    has_failure_rules = not errors or _has_failure_rules(stored, errors)
    if errors:
        job = _trusted_job(stored, errors, has_failure_rules=has_failure_rules)
        trusted = msgspec.structs.replace(snapshot, job=job)
    spec = elastic.with_workers(defaulting.effective_of(trusted.job), stored.status.workers)
    spec = elastic.with_rendezvous(spec, trusted.job.spec, snapshot.settings.etcd_server)
    # The garbage collector deletes the pods of a deleted job; sorting them would cost time for nothing.
    if is_being_deleted:
        return Observed(stored, trusted, errors, has_failure_rules, spec, pod_set_of(stored.name, (), ()))
    lost = {pod.metadata.uid for pod in snapshot.pods if snapshot.is_lost(pod)}
    trusted = _with_apparent_pods(trusted, spec)
    return Observed(stored, trusted, errors, has_failure_rules, spec, _pod_set(trusted, spec, lost))


def resolve(job: Observed) -> ValidJob:
    """Work out which ports, gang and environment a job with a valid spec needs."""
    snapshot, settings = job.snapshot, job.snapshot.settings
    host_port = network.host_port(snapshot, job.spec)
    gang = reconcile_gang(snapshot, job.pods)
    recorder = None if snapshot.recorder_obstacle else recorder_of(job.trusted, snapshot.recorder)
    context = JobContext(
        job.trusted,
        job.spec,
        host_port or settings.base_port,
        settings.pods_have_ipv6,
        job.status.attempt,
        gang.gang,
        recorder,
        # Local runs use another recorder.
        keeps_launcher_logs=recorder is not None or not snapshot.has_scheduler,
    )
    published = snapshot.config_map.data if snapshot.config_map else {}
    config = DesiredConfig() if host_port is None else desired_config_of(context, job.pods, published)
    return ValidJob(
        job.stored,
        snapshot,
        job.spec_errors,
        job.has_failure_rules,
        job.spec,
        job.pods,
        host_port,
        gang,
        context,
        config,
        tuple(pod for pod in snapshot.pods if snapshot.may_run_outdated(pod)),
    )


def validate(snapshot: Snapshot) -> tuple[FieldError, ...]:
    """Return the errors in the spec, unless the caller has validated it already."""
    if snapshot.spec_errors is not None:
        return snapshot.spec_errors
    return validation.validate(snapshot.job, pods_have_ipv6=snapshot.settings.pods_have_ipv6)


def _with_apparent_pods(snapshot: Snapshot, spec: EffectiveSpec) -> Snapshot:
    """Return the snapshot with pods as if their containers had ended with their programs."""
    status = snapshot.job.status
    if not snapshot.processes and status.process_attempt <= status.base_attempt:
        return snapshot
    containers = {str(role): training_container_name(each) for role, each in spec.roles}

    def apparent(pod: Pod) -> Pod:
        container = containers.get(pod.metadata.labels.get(names.LABEL_RESOURCE_TYPE, ""), "")
        return apparent_pod(pod, snapshot.process(pod), status, container, snapshot.published_attempt)

    return msgspec.structs.replace(snapshot, pods=tuple(map(apparent, snapshot.pods)))


def _pod_set(snapshot: Snapshot, spec: EffectiveSpec, lost: AbstractSet[str]) -> PodSet:
    attempts = Attempts.of(snapshot.job.status)
    unsettled = {pod.metadata.uid for pod in snapshot.pods if snapshot.seconds_to_settle(pod)}
    unsettled |= snapshot.seconds_to_cause().keys()
    pods = pod_set_of(
        snapshot.job.name, spec.roles, snapshot.pods, attempts, unsettled, lost=lost, spares=snapshot.spares
    )
    return elastic.with_given_up(snapshot, spec, pods)


def _trusted_job(job: PaddleJob, errors: tuple[FieldError, ...], *, has_failure_rules: bool) -> PaddleJob:
    invalid = {error.field for error in errors}
    changes: dict[str, Any] = {name: None for field, name in _TIME_LIMITS.items() if field in invalid}
    changes |= _trusted_roles(job)
    changes |= {} if has_failure_rules else _LENIENT_RULES
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **changes))


def _has_failure_rules(job: PaddleJob, errors: tuple[FieldError, ...]) -> bool:
    return not job.undecodable and not any(error.field.startswith(_FAILURE_RULES) for error in errors)


def _trusted_roles(job: PaddleJob) -> dict[str, RoleSpec]:
    """Return the roles with the replicas of the world size, within the limit of the API."""
    written = {"ps": job.spec.ps, "worker": job.spec.worker, "heter": job.spec.heter}
    sizes = {role: each.replicas for role, each in written.items() if each}
    formed = job.status.world_size
    if formed is not None and was_established(job.status):
        sizes = {"ps": formed.ps, "worker": formed.worker, "heter": formed.heter}
    return {
        role: msgspec.structs.replace(written[role] or RoleSpec(), replicas=min(size, MAX_REPLICAS))
        for role, size in sizes.items()
    }
