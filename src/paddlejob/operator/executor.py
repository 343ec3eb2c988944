"""Executes the actions of a plan: stages in order, the actions of a stage concurrently."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import assert_never

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob
from paddlejob.core.actions import (
    STOP_DEADLINE_SECONDS,
    Action,
    AnnotatePod,
    Create,
    Delete,
    DeleteJob,
    InstallRecorder,
    Kind,
    PatchGroup,
    RemoveFinalizer,
    ReplaceConfig,
    StopPod,
)
from paddlejob.core.gang.model import GANG_RESOURCES
from paddlejob.core.recorder import fingerprint_of, foreign_recorder
from paddlejob.core.snapshot import WriteFailure
from paddlejob.kube import decoding, errors
from paddlejob.kube.client import Client, PatchType
from paddlejob.kube.consistency import Consistency
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SERVICES
from paddlejob.kube.responses import Written
from paddlejob.operator import limits

log = logging.getLogger(__name__)

_PlainAction = (
    Create | ReplaceConfig | PatchGroup | AnnotatePod | StopPod | Delete | DeleteJob | RemoveFinalizer
)

RESOURCE_OF = {Kind.POD: PODS, Kind.SERVICE: SERVICES, Kind.CONFIG_MAP: CONFIG_MAPS, **GANG_RESOURCES}
FIRST_BATCH = 8
"""Number of writes of a stage to try first; the rest follows only if all of these succeed."""
MAX_FAILURE_LENGTH = 4096
"""A refusal may quote the whole object, and is kept in memory until a write succeeds."""


class Outcome(msgspec.Struct):
    """The result of a plan's actions."""

    failures: list[WriteFailure] = []
    stale: bool = False
    """An object has changed since the snapshot: reconcile again, without reporting a failure."""

    @property
    def went_well(self) -> bool:
        """Whether every write succeeded."""
        return not self.failures and not self.stale


class Executor:
    """Writes objects of jobs, and notes each write so that reconciles wait until the caches show it."""

    def __init__(
        self,
        client: Client,
        consistency: Consistency,
        *,
        writes_per_job: int,
        on_recorder_obstacle: Callable[[str, str], None] = lambda _namespace, _obstacle: None,
    ) -> None:
        """`on_recorder_obstacle` gets a namespace and the reason why its pods must not mount the recorder."""
        self._client = client
        self._on_recorder_obstacle = on_recorder_obstacle
        self._consistency = consistency
        self._writes_per_job = writes_per_job

    async def run(self, job: PaddleJob, stages: tuple[tuple[Action, ...], ...]) -> Outcome:
        """Run the stages in order, up to the first one in which a write fails."""
        outcome = Outcome()
        for stage in stages:
            await self._run_stage(job, stage, outcome)
            if not outcome.went_well:
                break
        return outcome

    async def _run_stage(self, job: PaddleJob, stage: tuple[Action, ...], outcome: Outcome) -> None:
        actions = iter(stage)
        await self._run_some(job, itertools.islice(actions, FIRST_BATCH), FIRST_BATCH, outcome)
        if outcome.went_well:
            await self._run_some(job, actions, self._writes_per_job, outcome)
        if outcome.failures:
            # The job's message shows the first failure, which must not depend on the order of responses.
            position = {_failure(action, "").name: number for number, action in enumerate(stage)}
            outcome.failures.sort(key=lambda failure: position[failure.name])

    async def _run_some(
        self, job: PaddleJob, actions: Iterator[Action], width: int, outcome: Outcome
    ) -> None:
        """Run the actions, up to `width` at a time, until one fails."""

        async def lane() -> None:
            for action in actions:
                await self._run_one(job, action, outcome)
                if not outcome.went_well:
                    return

        first = list(itertools.islice(actions, width))
        if not first:
            return
        if len(first) == 1:
            await self._run_one(job, first[0], outcome)
            return
        actions = itertools.chain(first, actions)
        async with asyncio.TaskGroup() as group:
            for _ in first:
                group.create_task(lane())

    async def _run_one(self, job: PaddleJob, action: Action, outcome: Outcome) -> None:
        try:
            if isinstance(action, InstallRecorder):
                outcome.stale = not await self._install_recorder(job, action) or outcome.stale
            else:
                await self._perform(job, action)
        except errors.AlreadyExistsError:
            await self._settle_existing(job, action, outcome)
        except (errors.ConflictError, errors.NotFoundError):
            outcome.stale = True
        except errors.KubeError as error:
            rejected = isinstance(error, errors.BadRequestError | errors.InvalidError)
            outcome.failures.append(_failure(action, str(error), rejected=rejected))

    async def _perform(self, job: PaddleJob, action: _PlainAction) -> None:
        match action:
            case Create():
                await self._create(job, action)
            case ReplaceConfig():
                await self._replace_config(job, action)
            case PatchGroup():
                await self._patch_group(job, action)
            case AnnotatePod():
                await _unless_gone(lambda: self._annotate(job, action))
            case StopPod():
                await _unless_gone(lambda: self._stop(job, action))
            case Delete():
                await _unless_gone(lambda: self._delete(job, action))
            case DeleteJob():
                await _unless_gone(lambda: self._delete_job(job))
            case RemoveFinalizer():
                await self._remove_finalizer(job, action)
            case _:
                assert_never(action)

    async def _create(self, job: PaddleJob, action: Create) -> None:
        resource = RESOURCE_OF[action.kind]
        written = await self._client.create(
            resource, job.metadata.namespace, action.manifest, strict=True, type=Written
        )
        self._consistency.record_write(job.metadata.key, resource, written.metadata.resource_version)

    async def _install_recorder(self, job: PaddleJob, action: InstallRecorder) -> bool:
        """Create the ConfigMap that jobs share, and return whether pods may mount it.

        The content of an existing one is verified, since any user who can create ConfigMaps can take the
        name. If it differs, the job is planned again without the recorder.
        """
        namespace = job.metadata.namespace
        try:
            written = await self._client.create(CONFIG_MAPS, namespace, action.manifest, type=Written)
        except errors.AlreadyExistsError:
            return await self._verify_recorder(namespace, action)
        except errors.REFUSALS as error:
            log.warning("%s: pods start without the recorder: %s", job.metadata.key, error)
            self._on_recorder_obstacle(namespace, f"cannot create ConfigMap {action.name}: {error}")
            return False
        self._consistency.record_write(job.metadata.key, CONFIG_MAPS, written.metadata.resource_version)
        return True

    async def _verify_recorder(self, namespace: str, action: InstallRecorder) -> bool:
        try:
            encoded = await self._client.get(CONFIG_MAPS, namespace, action.name, type=msgspec.Raw)
            found = limits.decode_config_map(encoded)
        except errors.NotFoundError:
            return False
        except decoding.DECODE_ERRORS:
            found = None
        if found is not None and found[0].fingerprint == fingerprint_of(action.manifest["data"]):
            return True
        self._on_recorder_obstacle(namespace, foreign_recorder(namespace, action.name))
        return False

    async def _replace_config(self, job: PaddleJob, action: ReplaceConfig) -> None:
        metadata = {**action.manifest["metadata"], "resourceVersion": action.resource_version}
        body = {**action.manifest, "metadata": metadata}
        written = await self._client.replace(CONFIG_MAPS, job.metadata.namespace, action.name, body)
        self._consistency.record_write(job.metadata.key, CONFIG_MAPS, written.metadata.resource_version)

    async def _patch_group(self, job: PaddleJob, action: PatchGroup) -> None:
        resource = RESOURCE_OF[action.kind]
        patch = {"metadata": action.metadata, action.part: action.changes}
        subresource = action.part if action.part == "status" else None
        written = await self._client.patch(
            resource, job.metadata.namespace, action.name, patch, subresource=subresource
        )
        self._consistency.record_write(job.metadata.key, resource, written.metadata.resource_version)

    async def _annotate(self, job: PaddleJob, action: AnnotatePod) -> None:
        annotations = {names.ANNOTATION_CONFIG_HASH: action.config_hash}
        await self._patch_pod(job, action.name, {"metadata": {"uid": action.uid, "annotations": annotations}})

    async def _stop(self, job: PaddleJob, action: StopPod) -> None:
        metadata = {"uid": action.uid}
        if not action.version_without_node:
            spec = {"activeDeadlineSeconds": STOP_DEADLINE_SECONDS}
            await self._patch_pod(job, action.name, {"metadata": metadata, "spec": spec})
            return
        metadata["resourceVersion"] = action.version_without_node
        message = f"{names.KIND} {job.name} ended before the pod had a node"
        status = {"phase": "Failed", "reason": names.POD_REASON_JOB_ENDED, "message": message}
        await self._patch_pod(job, action.name, {"metadata": metadata, "status": status}, "status")

    async def _patch_pod(
        self, job: PaddleJob, name: str, patch: JsonObject, subresource: str | None = None
    ) -> None:
        # A strategic merge patch costs the API server least.
        written = await self._client.patch(
            PODS,
            job.metadata.namespace,
            name,
            patch,
            patch_type=PatchType.STRATEGIC,
            subresource=subresource,
        )
        self._consistency.record_write(job.metadata.key, PODS, written.metadata.resource_version)

    async def _delete(self, job: PaddleJob, action: Delete) -> None:
        resource, namespace = RESOURCE_OF[action.kind], job.metadata.namespace
        grace = 0 if action.force else None
        await self._client.delete(resource, namespace, action.name, uid=action.uid, grace_seconds=grace)
        key = ObjectKey(namespace, action.name)
        self._consistency.record_delete(job.metadata.key, resource, key, action.uid)

    async def _delete_job(self, job: PaddleJob) -> None:
        metadata = job.metadata
        await self._client.delete(PADDLE_JOBS, metadata.namespace, metadata.name, uid=metadata.uid)

    async def _remove_finalizer(self, job: PaddleJob, action: RemoveFinalizer) -> None:
        """Remove a finalizer. The job is read again because the cache does not keep other finalizers."""
        metadata = job.metadata
        found = await self._client.find(PADDLE_JOBS, metadata.namespace, metadata.name, type=Written)
        finalizers = found.metadata.finalizers if found else ()
        kept = [finalizer for finalizer in finalizers if finalizer != action.finalizer]
        patch = {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": kept}}
        await self._client.patch(PADDLE_JOBS, metadata.namespace, metadata.name, patch)

    async def _settle_existing(self, job: PaddleJob, action: Action, outcome: Outcome) -> None:
        """Handle an object that already exists: ours if a response was lost, otherwise a foreign one."""
        assert isinstance(action, Create)
        resource = RESOURCE_OF[action.kind]
        try:
            found = await self._client.get(resource, job.metadata.namespace, action.name, type=Written)
        except errors.NotFoundError:
            outcome.stale = True
            return
        except errors.KubeError as error:
            outcome.failures.append(_failure(action, str(error)))
            return
        metadata = found.metadata
        if metadata.controller_uid == job.metadata.uid:
            self._consistency.record_write(job.metadata.key, resource, metadata.resource_version)
            outcome.stale = outcome.stale or metadata.deletion_timestamp is not None
        elif action.kind in GANG_RESOURCES:
            # The next reconcile sees it and handles foreign groups.
            outcome.stale = True
        elif metadata.deletion_timestamp is not None or metadata.controller_uid:
            outcome.failures.append(
                _failure(action, "one of a previous owner still exists and must be deleted first")
            )
        else:
            sentence = "one that does not belong to this job already exists; delete it or rename the job"
            outcome.failures.append(_failure(action, sentence))


async def _unless_gone(write: Callable[[], Awaitable[None]]) -> None:
    """Ignore the error if the object no longer exists or has changed, which causes another reconcile.

    With a different UID, the API server responds 409 to a delete and 422 to a patch.
    """
    try:
        await write()
    except (errors.NotFoundError, errors.ConflictError, errors.InvalidError):
        return


def _failure(action: Action, message: str, *, rejected: bool = False) -> WriteFailure:
    match action:
        case Create():
            verb, kind, name = "create", str(action.kind), action.name
        case InstallRecorder():
            verb, kind, name = "create", "ConfigMap", action.name
        case ReplaceConfig():
            verb, kind, name = "update", "ConfigMap", action.name
        case PatchGroup():
            verb, kind, name = "update", str(action.kind), action.name
        case AnnotatePod():
            verb, kind, name = "annotate", "Pod", action.name
        case StopPod():
            verb, kind, name = "stop", "Pod", action.name
        case Delete():
            verb, kind, name = "delete", str(action.kind), action.name
        case DeleteJob():
            verb, kind, name = "delete", names.KIND, action.name
        case RemoveFinalizer():
            verb, kind, name = "update", names.KIND, action.finalizer
        case _:
            assert_never(action)
    return WriteFailure(verb, kind, name, message[:MAX_FAILURE_LENGTH], rejected)
