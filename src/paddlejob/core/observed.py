"""A job as one reconcile sees it: the snapshot, and what follows from it before anything is decided."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

import msgspec

from paddlejob.api import defaulting, validation
from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.v1 import PaddleJob, PaddleJobStatus
from paddlejob.api.validation.errors import FieldError
from paddlejob.core import network
from paddlejob.core.attempts import elastic
from paddlejob.core.gang.registry import reconcile_gang
from paddlejob.core.gang.state import GangState
from paddlejob.core.paddle_env import DesiredConfig, JobContext, desired_config_of
from paddlejob.core.pod_set import Attempts, PodSet, pod_set_of
from paddlejob.core.policy import invalid_spec
from paddlejob.core.recording.recorder import usable_recorder
from paddlejob.core.snapshot import Snapshot


class Observed:
    """What is known of a job. What takes work, or needs a valid spec, is worked out when it is asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.given = snapshot

    @property
    def is_being_deleted(self) -> bool:
        """Whether the job itself is on its way out."""
        return self.given.job.metadata.deletion_timestamp is not None

    @property
    def is_finished(self) -> bool:
        """Whether the job has a verdict, which is never taken back."""
        return self.status.phase.is_terminal

    @property
    def is_suspended(self) -> bool:
        """Whether the user wants no pods for now."""
        return self.given.job.spec.suspend

    @property
    def status(self) -> PaddleJobStatus:
        """The status as it was last written."""
        return self.given.job.status

    @property
    def now(self) -> datetime:
        """The time of this reconcile."""
        return self.given.now

    @cached_property
    def spec_errors(self) -> tuple[FieldError, ...]:
        """What is wrong with the spec; while anything is, no pod is created."""
        known = self.given.spec_errors
        if known is None:
            return validation.validate(self.given.job, pods_have_ipv6=self.given.settings.pods_have_ipv6)
        return known

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, with those fields of a spec with errors that can be judged by."""
        if self.is_being_deleted or self.is_finished or not self.spec_errors:
            return self.given
        believed = invalid_spec.believed(self.given.job, self.spec_errors)
        return msgspec.structs.replace(self.given, job=believed)

    @property
    def job(self) -> PaddleJob:
        """The job, with those fields of a spec with errors that can be judged by."""
        return self.snapshot.job

    @property
    def has_failure_rules(self) -> bool:
        """Whether failures can be held against the job, which a spec with errors may leave open."""
        return not self.spec_errors or invalid_spec.has_failure_rules(self.given.job, self.spec_errors)

    @cached_property
    def spec(self) -> EffectiveSpec:
        """The spec with nothing left open, and with as many workers as an elastic job goes on with."""
        spec = elastic.with_workers(defaulting.effective_of(self.job), self.status.workers)
        return elastic.with_rendezvous(spec, self.job.spec, self.given.settings.etcd_server)

    @cached_property
    def pods(self) -> PodSet:
        """The job's pods, sorted."""
        given, attempts = self.given, Attempts.of(self.status)
        unsettled = {pod.metadata.uid for pod in given.pods if given.seconds_to_settle(pod)}
        pods = pod_set_of(self.job.name, self.spec.roles, given.pods, attempts, unsettled)
        return elastic.with_given_up(self.snapshot, self.spec, pods)

    @cached_property
    def host_port(self) -> int | None:
        """The job's block of host ports, 0 where it needs none, None where none is free."""
        return network.host_port(self.snapshot, self.spec)

    @cached_property
    def gang(self) -> GangState:
        """What the job's gang needs."""
        return reconcile_gang(self.snapshot, self.pods)

    @cached_property
    def context(self) -> JobContext:
        """What names, endpoints and environment of the pods follow from."""
        settings = self.given.settings
        port = self.host_port or settings.base_port
        return JobContext(
            self.job,
            self.spec,
            port,
            settings.pods_have_ipv6,
            self.status.attempt,
            self.gang.gang,
            usable_recorder(self.snapshot),
        )

    @cached_property
    def config(self) -> DesiredConfig:
        """The ConfigMap as it should be now."""
        published = self.given.config_map.data if self.given.config_map else {}
        return (
            DesiredConfig()
            if self.host_port is None
            else desired_config_of(self.context, self.pods, published)
        )
