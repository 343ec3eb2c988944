"""Jobs on a cluster, read and changed with the permissions of the user."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paddlejob.api import names
from paddlejob.api.meta import JsonObject, ObjectKey
from paddlejob.api.pod import Pod
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.api.v1 import PaddleJob, Role
from paddlejob.client import containers, ranks
from paddlejob.client import manifest as manifests
from paddlejob.client.containers import POD_METRICS, PodMetrics
from paddlejob.client.errors import ClientError, InvalidJobError, NameTakenError, NoSuchJobError, problems_of
from paddlejob.client.job import (
    LATEST,
    FirstError,
    Job,
    JobEvent,
    Jobs,
    JobWithPods,
    Listing,
    Usage,
    describe,
    name_without_kind,
)
from paddlejob.client.logs.model import ALL_LOGS, LogItem, LogQuery
from paddlejob.client.streams.execution import ContainerCommand, execute
from paddlejob.client.streams.port_forward import Forwarder
from paddlejob.client.streams.processes import RankProcess, pod_processes
from paddlejob.kube import errors
from paddlejob.kube.client import Client
from paddlejob.kube.resource import CONFIG_MAPS, PODS, SECRETS
from paddlejob.kube.transport.cluster import ClusterConfig
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.quick import QuickTransport

if TYPE_CHECKING:
    from paddlejob.client.explain import Explanation
    from paddlejob.client.streams.stacks import ProcessStack
    from paddlejob.history.record import Record, Summary

FIELD_MANAGER = "kubectl-pdj"
PAGE_SIZE = 500
_OWNABLE = {each.kind: each for each in (CONFIG_MAPS, SECRETS)}


class Cluster(Jobs):
    """The jobs of one namespace, or of all namespaces with `all_namespaces`."""

    def __init__(self, client: Client, namespace: str = "default", *, context: str = "") -> None:
        self.client = client
        self.namespace = namespace
        self.context = context
        self.on_trouble: Callable[[str, str], None] = lambda _, __: None
        """Called with the name of a job and the problem with the connection; empty if it works again."""

    @classmethod
    def open(
        cls,
        *,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        namespace: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Cluster:
        """Return the cluster that kubectl would use with the same flags and environment.

        Nothing is sent yet. Raises ConfigError.
        """
        config = cluster_config(kubeconfig=kubeconfig, context=context, env=env)
        _check_name(namespace or config.namespace, "namespace")
        client = Client(QuickTransport(config, user_agent=FIELD_MANAGER))
        return cls(client, namespace or config.namespace, context=context or "")

    @property
    def place(self) -> str:
        """The namespace."""
        return f"namespace {self.namespace}"

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()

    async def get(self, name: str) -> ClusterJob:
        """Return the job of this name, or the newest job for `@latest`."""
        if name == LATEST:
            return self._latest(await self.list())
        name = name_without_kind(name)
        _check_name(name, names.KIND)
        try:
            body = await self.client.get(PADDLE_JOBS, self.namespace, name)
        except errors.NotFoundError as error:
            if error.status.details is None or not error.status.details.name:
                raise
            from paddlejob.client.records import unknown_job  # noqa: PLC0415 - only for a missing job

            raise await unknown_job(self, name) from None
        return ClusterJob(self, body)

    async def list(self, *, selector: str = "", all_namespaces: bool = False) -> list[Job]:
        """Return the jobs in order of their names."""
        namespace = None if all_namespaces else self.namespace
        found: list[Job] = []
        token = ""
        while True:
            page = await self.client.list(
                PADDLE_JOBS, namespace, label_selector=selector, limit=PAGE_SIZE, continue_token=token
            )
            found += [ClusterJob(self, {**_HEAD, **body}) for body in page.items]
            token = page.metadata.continue_token
            if not token:
                return sorted(found, key=lambda job: (job.namespace, job.name))

    async def submit(
        self, manifest: JsonObject, *, owned: Sequence[JsonObject] = (), dry_run: bool = False
    ) -> ClusterJob:
        """Create a job; the API server checks it and rejects unknown fields.

        The owned objects are created after the job, since an owner must exist; pods wait for them.
        """
        if foreign := next((each for each in owned if each.get("kind") not in _OWNABLE), None):
            raise ClientError(
                f"{foreign.get('kind')} {manifests.name_of(foreign)} cannot belong to a job; "
                "create it with kubectl first"
            )
        job = await self._create(manifest, dry_run=dry_run)
        if not dry_run:
            await self._create_owned(job, owned)
        return job

    async def _create_owned(self, job: ClusterJob, owned: Sequence[JsonObject]) -> None:
        belongs = {"namespace": job.namespace, "ownerReferences": [job.owner_reference]}
        try:
            for each in owned:
                await self._create_beside({**each, "metadata": {**each["metadata"], **belongs}})
        except BaseException:
            await asyncio.shield(job.delete())  # its pods would wait for the missing objects
            raise

    async def _create_beside(self, body: JsonObject, tries: int = 15) -> None:
        resource, namespace = _OWNABLE[body["kind"]], body["metadata"]["namespace"]
        try:
            await self.client.create(resource, namespace, body, strict=True, field_manager=FIELD_MANAGER)
        except errors.AlreadyExistsError:
            if tries == 1:
                raise
            await asyncio.sleep(
                1
            )  # an object of a deleted job keeps its name until the garbage collector deletes it
            await self._create_beside(body, tries - 1)

    async def _create(self, manifest: JsonObject, *, dry_run: bool) -> ClusterJob:
        namespace = manifest.get("metadata", {}).get("namespace") or self.namespace
        try:
            body = await self.client.create(
                PADDLE_JOBS,
                namespace,
                manifest,
                strict=True,
                dry_run=dry_run,
                field_manager=FIELD_MANAGER,
                type=dict,
            )
        except errors.AlreadyExistsError:
            name = manifests.name_of(manifest)
            raise NameTakenError(
                f"PaddleJob {name} already exists in namespace {namespace}; delete it, or submit this one "
                "under another name"
            ) from None
        except (errors.InvalidError, errors.BadRequestError) as error:
            raise InvalidJobError(*problems_of(error)) from None
        return ClusterJob(self, body)

    async def submit_beside(self, bodies: Sequence[JsonObject], *, dry_run: bool = False) -> tuple[str, ...]:
        """Create ConfigMaps, Secrets, claims and Services; existing ones are not changed."""
        resources = [manifests.resource_beside(each) for each in bodies]
        notes = []
        for manifest, resource in zip(bodies, resources, strict=True):
            name = str(manifest["metadata"]["name"])
            namespace = manifest["metadata"].get("namespace") or self.namespace
            try:
                await self.client.create(
                    resource, namespace, manifest, dry_run=dry_run, field_manager=FIELD_MANAGER
                )
                notes.append(f"{resource.plural}/{name} created{' (server dry run)' if dry_run else ''}")
            except errors.AlreadyExistsError:
                notes.append(f"{resource.plural}/{name} already exists and was not changed")
        return tuple(notes)

    def watch(self, *, selector: str = "", all_namespaces: bool = False) -> AsyncGenerator[Job, None]:
        """Yield every job now, and each job again after each change."""
        from paddlejob.client import live  # noqa: PLC0415

        return live.changes(self, None if all_namespaces else self.namespace, selector)

    def listings(self, *, all_namespaces: bool = False) -> AsyncGenerator[Listing, None]:
        """Yield all jobs now and after each change."""
        from paddlejob.client import live  # noqa: PLC0415

        return live.listings(self, None if all_namespaces else self.namespace)

    async def rights(self, namespace: str) -> frozenset[str]:
        """Return the changes that the API server allows the user."""
        from paddlejob.client import live  # noqa: PLC0415

        return await live.rights(self.client, namespace)

    async def history(self, *, name: str = "", all_namespaces: bool = False) -> tuple[Summary, ...]:
        """Return the finished jobs that exist or have a record."""
        from paddlejob.client import records  # noqa: PLC0415

        found = await records.cluster_history(self, name=name, all_namespaces=all_namespaces)
        return tuple(each for each in found if each.is_final)

    async def record(self, name: str) -> Record:
        """Return the record of a job, completed from the job itself if it still exists."""
        from paddlejob.client import records  # noqa: PLC0415

        return await records.cluster_record(self, name)

    def _latest(self, jobs: Iterable[Job]) -> ClusterJob:
        newest = max(jobs, key=_age, default=None)
        if newest is None:
            raise NoSuchJobError(f"there are no PaddleJobs in namespace {self.namespace}")
        assert isinstance(newest, ClusterJob)
        return newest


class ClusterJob(Job):
    """A job on a cluster."""

    def __init__(self, cluster: Cluster, body: JsonObject) -> None:
        metadata = body["metadata"]
        super().__init__(metadata["name"], metadata.get("namespace", cluster.namespace), body)
        self.cluster = cluster
        self.client = cluster.client

    async def refresh(self) -> PaddleJob:
        """Read the job again."""
        try:
            self.body = await self.client.get(PADDLE_JOBS, self.namespace, self.name)
        except errors.NotFoundError:
            raise NoSuchJobError(f"PaddleJob {self.name} in namespace {self.namespace} was deleted") from None
        return self.state

    async def watch(self) -> AsyncGenerator[PaddleJob, None]:
        """Yield the state now and after each change, until the job is deleted."""
        from paddlejob.client.watching import watching  # noqa: PLC0415

        uid, key, seen = self.state.metadata.uid, ObjectKey(self.namespace, self.name), ""
        async with watching(
            self.client,
            PADDLE_JOBS,
            self.namespace,
            type=PaddleJob,
            field_selector=f"metadata.name={self.name}",
        ) as watch:
            while True:
                state = watch.objects.get(key)
                if state is None or (uid and state.metadata.uid != uid):
                    return
                if state.metadata.resource_version != seen:
                    seen = state.metadata.resource_version
                    self.see(state)
                    yield state
                await watch.next_change()
                self.cluster.on_trouble(self.name, watch.trouble)

    def watch_with_pods(self) -> AsyncGenerator[JobWithPods, None]:
        """Yield the job and its pods, now and after each change, until it is deleted."""
        from paddlejob.client import live  # noqa: PLC0415

        return live.watch_with_pods(self)

    async def pods(self) -> list[Pod]:
        """Return the existing pods: servers first, by rank."""
        page = await self.client.list(PODS, self.namespace, label_selector=self.pod_selector, type=Pod)
        return ranks.in_order(self.state, page.items)

    async def usage(self) -> Mapping[str, Usage]:
        """Read the metrics server; pods without measurements are left out."""
        try:
            page = await self.client.list(
                POD_METRICS, self.namespace, label_selector=self.pod_selector, type=PodMetrics
            )
        except errors.NotFoundError:
            raise ClientError("the cluster has no metrics server") from None
        return {each.metadata.name: each.usage for each in page.items}

    @property
    def owner_reference(self) -> JsonObject:
        """The owner reference of objects that the job owns."""
        uid = self.state.metadata.uid
        return {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": self.name, "uid": uid}

    @property
    def pod_selector(self) -> str:
        """The label selector of the pods of the job."""
        return f"{names.LABEL_JOB}={self.name}"

    async def events(self) -> list[JobEvent]:
        """Return the events of the operator, the scheduler and the kubelets, oldest first."""
        from paddlejob.client.events import job_events  # noqa: PLC0415 - not needed for most verbs

        return await job_events(self.client, self.namespace, self.state)

    def logs(self, query: LogQuery = ALL_LOGS) -> AsyncGenerator[LogItem, None]:
        """Yield the logs in order of time, or with `follow` in order of arrival."""
        from paddlejob.client.logs.follow import follow  # noqa: PLC0415 - not needed for most verbs
        from paddlejob.client.logs.history import history  # noqa: PLC0415

        ranks.check(self.state, query.rank)
        return follow(self, query) if query.follow else history(self, query)

    async def first_error(self) -> FirstError | None:
        """Return the first failure of the last failed attempt, with the end of the log of that rank."""
        from paddlejob.client.logs.history import first_error  # noqa: PLC0415

        return await first_error(self)

    async def explain(self) -> Explanation:
        """Explain the job from the objects that the user may read."""
        from paddlejob.client.explain import explain_job  # noqa: PLC0415

        return await explain_job(self.client, self.namespace, self.name)

    async def manifests(self) -> list[JsonObject]:
        """Return the stored job, and the ConfigMaps and Secrets that it owns and mounts."""
        await self.refresh()
        return [manifests.submittable(each) for each in (*await self._owned(), self.body)]

    async def _owned(self) -> list[JsonObject]:
        found: list[JsonObject] = []
        for kind, name in manifests.mounted(self.body):
            try:
                body = await self.client.get(_OWNABLE[kind], self.namespace, name)
            except errors.NotFoundError:
                continue
            owners = body["metadata"].get("ownerReferences") or ()
            if any(each.get("uid") == self.state.metadata.uid for each in owners):
                found.append({"apiVersion": "v1", "kind": kind, **body})
        return found

    async def environment(self, rank: str = "0") -> Mapping[str, str]:
        """Resolve the environment as the kubelet does, or read that of one of several processes."""
        return await containers.rank_environment(self, rank)

    async def execute(self, command: ContainerCommand, *, rank: str = "0", container: str = "") -> int:
        """Run a command in a running container of a rank."""
        pod = ranks.select_one(self.state, await self.pods(), rank)
        chosen = container or ranks.training_container(self.state, pod)
        ranks.check_running(self.state, pod, chosen)
        return await execute(self.client, self.namespace, pod.metadata.name, chosen, command)

    async def stacks(self, rank: str = "all") -> list[ProcessStack]:
        """Read the stacks in the pods, with exec."""
        from paddlejob.client.streams import stacks  # noqa: PLC0415

        return await stacks.pod_stacks(self, rank)

    async def processes(self, rank: str = "all") -> list[RankProcess]:
        """Read the files of the launcher in the pods, with exec."""
        return await pod_processes(self, rank)

    async def copy_from(self, rank: str, source: str, target: Path, *, container: str = "") -> Path:
        """Copy with the container's `tar`."""
        from paddlejob.client.streams import copying  # noqa: PLC0415 - tarfile is slow to import

        run = functools.partial(self.execute, rank=rank, container=container)
        return await copying.copy_from(run, source, target)

    async def copy_to(self, rank: str, source: Path, target: str, *, container: str = "") -> str:
        """Copy with the container's `tar`."""
        from paddlejob.client.streams import copying  # noqa: PLC0415 - tarfile is slow to import

        run = functools.partial(self.execute, rank=rank, container=container)
        return await copying.copy_to(run, source, target)

    async def forwarder(self, rank: str, on_error: Callable[[str], None]) -> Forwarder:
        """Forward through the API server."""
        pod = ranks.select_one(self.state, await self.pods(), rank)
        ranks.check_any_running(self.state, pod)
        return Forwarder(self.client, self.namespace, pod.metadata.name, on_error)

    async def scale(self, workers: int) -> str:
        """Set the number of workers through the scale subresource."""
        from paddlejob.core.status import plural  # noqa: PLC0415 - not needed for most verbs

        await self._check_not_ended("scale")
        patch = {"spec": {"replicas": workers}}
        await self._patch(patch, subresource="scale")
        return f"scaling to {plural(workers, Role.WORKER)}"

    async def suspend(self) -> str:
        """Delete the pods until `resume`."""
        await self._check_not_ended("suspend")
        if self.state.spec.suspend:
            return "suspended already"
        await self._patch({"spec": {"suspend": True}})
        return "suspending"

    async def resume(self) -> str:
        """Create the pods of a suspended job again."""
        await self._check_not_ended("resume")
        if not self.state.spec.suspend:
            return "not suspended"
        await self._patch({"spec": {"suspend": False}})
        return "resuming"

    async def stop(self) -> str:
        """Suspend the job, which can then be resumed or deleted."""
        await self.suspend()
        return "stopping its pods; `resume` runs it again, `delete` removes it"

    async def delete(self) -> str:
        """Delete this job, but not another job of the same name, with everything that belongs to it."""
        try:
            uid = self.state.metadata.uid or None
            await self.client.delete(PADDLE_JOBS, self.namespace, self.name, uid=uid)
        except errors.NotFoundError:
            return "deleted already"
        return "deleted"

    async def retry(self) -> ClusterJob:
        """Submit a finished job again with a generated name."""
        state = await self.refresh()
        if not state.status.phase.is_terminal:
            raise ClientError(f"{self.name} is {describe(state)}; only a finished job can be retried")
        owned = await self._owned()
        again = await self.cluster.submit(manifests.again(self.body))
        for each in owned:
            # Both jobs need the owned objects, which stay until both are deleted.
            owners = [*each["metadata"]["ownerReferences"], again.owner_reference]
            patch = {"metadata": {"ownerReferences": owners}}
            await self.client.patch(_OWNABLE[each["kind"]], self.namespace, each["metadata"]["name"], patch)
        return again

    async def _check_not_ended(self, verb: str) -> None:
        """Raise ClientError if the job has ended by now."""
        phase = (await self.refresh()).status.phase
        if phase.is_terminal:
            raise ClientError(f"cannot {verb} {self.name}: it is {phase}; `retry` runs it again as a new job")

    async def _patch(self, patch: JsonObject, *, subresource: str | None = None) -> None:
        try:
            await self.client.patch(
                PADDLE_JOBS,
                self.namespace,
                self.name,
                patch,
                subresource=subresource,
                field_manager=FIELD_MANAGER,
            )
        except (errors.InvalidError, errors.BadRequestError) as error:
            raise InvalidJobError(*problems_of(error)) from None


def cluster_config(
    *, kubeconfig: str | Path | None = None, context: str | None = None, env: Mapping[str, str] | None = None
) -> ClusterConfig:
    """Return the configuration that kubectl would use, or else the service account of this pod.

    Raises ConfigError.
    """
    env = os.environ if env is None else env
    default = Path(env.get("HOME") or Path.home()) / ".kube" / "config"
    if kubeconfig is None and not env.get("KUBECONFIG") and default.exists():
        kubeconfig = default
    return load_config(kubeconfig, context, env=env)


_HEAD = {"apiVersion": names.API_VERSION, "kind": names.KIND}


def _age(job: Job) -> tuple[str, bool, str]:
    """Return a sort key for the age of a job; of two jobs of the same second, a live one is newer."""
    created = str(job.body["metadata"].get("creationTimestamp"))
    return created, not job.state.status.phase.is_terminal, job.name


def _check_name(name: str, kind: str) -> None:
    """Raise ClientError for a name that cannot stand in a URL path."""
    if name in ("", ".", ".."):
        raise ClientError(f"{name!r} is not the name of a {kind}")
