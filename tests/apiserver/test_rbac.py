"""The shipped role is enough for everything the operator does, and it does everything the role allows.

A control plane of its own, because its API server is a strict one: it keeps an audit log, it checks owner
references, and it does not stream lists, so that the operator also lists.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from behaviour import test_jobs
from behaviour.stage import Stage
from devcluster import ApiError, ControlPlane
from devcluster import Client as PlainClient
from paddlejob.api import names
from paddlejob.api.resources import PADDLE_JOBS, VOLCANO_QUEUES
from paddlejob.kube.client import Client
from paddlejob.kube.lease import LeaderElector, LeaseTiming
from paddlejob.kube.resource import (
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    SERVICES,
    Resource,
)
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator.manager import LEASE_NAME
from paddlejob.operator.settings import HistorySettings, OperatorSettings
from scripts import manifests
from simkube.build import job
from simkube.kubelet.outcomes import Exit
from simkube.operator import Operator
from tests.apiserver import gang_acts, installed
from tests.apiserver.test_reports import Reporting
from tests.support.waiting import eventually

Act = Callable[[Stage], Awaitable[None]]

USER = f"system:serviceaccount:{installed.NAMESPACE}:{installed.ACCOUNT}"
CHECKS = "OwnerReferencesPermissionEnforcement"
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SIDE_BY_SIDE = 8
NEVER_REQUESTED = {("batch.paddlepaddle.org", "paddlejobs/finalizers", "update")}
"""Asked for by the API server's own check of owner references, which has a test of its own."""


class Strict(NamedTuple):
    plane: ControlPlane
    audit_log: Path


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strict]:
    directory = tmp_path_factory.mktemp("audit")
    policy, log = directory / "policy.json", directory / "audit.log"
    rules = [{"level": "Metadata", "users": [USER]}, {"level": "None"}]
    head = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
    policy.write_text(json.dumps({**head, "rules": rules}))
    flags = (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        f"--enable-admission-plugins={CHECKS}",
    )
    extra, gates = {"kube-apiserver": flags}, {"WatchList": False}
    with ControlPlane.start(controllers=CONTROLLERS, feature_gates=gates, extra_args=extra) as plane:
        installed.apply(plane, installed.CRD, installed.OPERATOR)
        installed.refresh_garbage_collector(plane)
        yield Strict(plane, log)


def behaviour_acts() -> Iterator[Act]:
    """Yield every act of the behaviour suite."""
    for name, test in inspect.getmembers(test_jobs, inspect.isfunction):
        if name.startswith("test_"):
            tables = [mark.args for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
            columns = [[_arguments(names, value) for value in values] for names, values in tables]
            for row in itertools.product(*columns):
                acts: list[Act] = []
                test(acts.append, **{name: value for arguments in row for name, value in arguments.items()})
                yield from acts


def _arguments(names: str | tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return one row of a table of parameters, which has one name or several."""
    return {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True))


def stranger_in_the_way(resource: Resource, body: dict[str, Any], **spec: Any) -> Act:
    """Return an act in which somebody else's object has the name that the job needs."""

    async def act(stage: Stage) -> None:
        await stage.client.create(resource, stage.namespace, body)
        await stage.submit(job().worker(1).spec(**spec))

        async def is_told() -> bool:
            return "does not belong to this job" in (await stage.status()).get("message", "")

        await stage.until(is_told, "it is told")
        await stage.client.delete(resource, stage.namespace, body["metadata"]["name"])
        await stage.phase("Running")

    return act


async def services_are_cleaned(stage: Stage) -> None:
    stage.fates.set("demo-worker-0", Exit(0, 0.2))
    await stage.submit(job().worker(1).spec(intranet="Service", cleanPodPolicy="Always"))
    await stage.phase("Completed")
    await stage.gone(SERVICES)


FURTHER_ACTS = (
    services_are_cleaned,
    stranger_in_the_way(CONFIG_MAPS, {"metadata": {"name": "demo"}}),
    stranger_in_the_way(
        SERVICES,
        {"metadata": {"name": "demo-worker-0"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]}},
        intranet="Service",
    ),
)


async def fresh_namespace(admin: Client) -> str:
    """Make a namespace and wait for the service account without which pods are refused there."""
    name = (await admin.create(NAMESPACES, None, {"metadata": {"generateName": "rbac-"}})).metadata.name
    async with asyncio.timeout(30):
        while not (await admin.list(SERVICE_ACCOUNTS, name)).items:
            await asyncio.sleep(0.02)
    return name


async def play_all(admin: Client, restricted: Client, acts: list[Act]) -> None:
    """Play each act in a namespace of its own, several at a time."""
    slots = asyncio.Semaphore(SIDE_BY_SIDE)

    async def play(act: Act) -> None:
        async with slots:
            namespace = await fresh_namespace(admin)
            await Stage(admin, namespace, operator_client=restricted).play(act)

    async with asyncio.TaskGroup() as group:
        for act in acts:
            group.create_task(play(act))


async def lead_once(restricted: Client) -> None:
    """Be elected, renew, and step down."""
    timing = LeaseTiming(lease_duration_seconds=3, renew_deadline_seconds=2, retry_period_seconds=0.2)
    elector = LeaderElector(
        restricted,
        namespace=installed.NAMESPACE,
        name=LEASE_NAME,
        identity="test",
        rng=random.Random(0),
        now=lambda: datetime.now(UTC),
        timing=timing,
    )

    async def work() -> None:
        while True:
            spec = (await restricted.get(LEASES, installed.NAMESPACE, LEASE_NAME))["spec"]
            if spec["renewTime"] > spec["acquireTime"]:
                return
            await asyncio.sleep(0.05)

    async with asyncio.timeout(30):
        await elector.run(work)


async def take_a_report(plane: ControlPlane, admin: Client, restricted: Client, directory: Path) -> None:
    """Make a certificate where the operator is, and hear a pod elsewhere."""
    stage = Reporting(admin, await fresh_namespace(admin), plane, directory)
    stage.operator_client, stage.home = restricted, installed.NAMESPACE

    async def act(stage: Reporting) -> None:
        await stage.submit(job().worker(1).spec(recorder=True))
        await stage.phase("Running")
        assert await stage.post(await stage.token("demo-worker-0")) == 200

    await stage.play(act)  # type: ignore[arg-type]


class Remembering(Stage):
    """A stage whose operator reads the logs of pods, and keeps the record of one job."""

    def operator(self) -> Operator:
        settings = OperatorSettings(namespace=self.namespace, history=HistorySettings(per_namespace=1))
        return Operator(self.operator_client, settings, rng=self.rng, reads_progress=True)


async def keep_records(admin: Client, restricted: Client) -> None:
    """Let two jobs fail, of which only the second is remembered."""

    async def act(stage: Stage) -> None:
        for name in ("first", "second"):
            stage.fates.set(f"{name}-worker-0", Exit(1))
            await stage.submit(job(name).worker(1).spec(backoffLimit=0))
            await stage.phase("Failed", name)
            await stage.until(partial(is_remembered, name), f"{name} is recorded, and nothing else")
            # Records are kept as long as their jobs.
            await stage.client.delete(PADDLE_JOBS, stage.namespace, name)

    async def is_remembered(name: str) -> bool:
        found = (await admin.list(CONFIG_MAPS, stage.namespace, label_selector=names.LABEL_HISTORY)).items
        return [each["metadata"]["labels"][names.LABEL_JOB] for each in found] == [name]

    stage = Remembering(admin, await fresh_namespace(admin), operator_client=restricted)
    await stage.play(act)


def requests_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def right_used(request: dict[str, Any]) -> tuple[str, str, str]:
    target = request["objectRef"]
    subresource = f"/{target['subresource']}" if "subresource" in target else ""
    return target.get("apiGroup", ""), target["resource"] + subresource, request["verb"]


def rights(rules: tuple[manifests.Rule, ...]) -> set[tuple[str, str, str]]:
    return {(rule.group, rule.resource, verb) for rule in rules for verb in rule.verbs}


def granted_rights() -> set[tuple[str, str, str]]:
    """Return every right of the operator's account: of the roles that are bound to it in the shipped file."""
    bound = {
        each["roleRef"]["name"]
        for each in installed.objects(installed.OPERATOR)
        if each["kind"].endswith("RoleBinding")
    }
    return {
        (group, resource, verb)
        for role in installed.objects(installed.OPERATOR)
        if role["kind"].endswith("Role") and role["metadata"]["name"] in bound
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.timeout(300)
async def test_the_role_is_enough_and_every_right_in_it_is_used(strict: Strict, tmp_path: Path) -> None:
    kubeconfig = installed.account_kubeconfig(strict.plane)
    async with (
        Client(HttpTransport(load_config(strict.plane.kubeconfig))) as admin,
        Client(HttpTransport(load_config(kubeconfig))) as restricted,
    ):
        await play_all(admin, restricted, [*behaviour_acts(), *FURTHER_ACTS])
        await lead_once(restricted)
        await take_a_report(strict.plane, admin, restricted, tmp_path)
        await keep_records(admin, restricted)
    requests = requests_of(strict.audit_log)
    decided = [request["annotations"]["authorization.k8s.io/decision"] for request in requests]
    assert set(decided) == {"allow"}
    used = {right_used(request) for request in requests if "objectRef" in request}
    gangs = {rule.group for rule in manifests.GANG_RULES}
    # Where any of them is removed, its request is refused: the decision above, or a scenario, fails.
    assert used | NEVER_REQUESTED == {right for right in granted_rights() if right[0] not in gangs}


@pytest.mark.timeout(300)
async def test_gangs_need_every_right_that_they_are_granted_and_no_other(strict: Strict) -> None:
    kubeconfig = load_config(installed.account_kubeconfig(strict.plane))
    groups = {resource.group for resource in gang_acts.GANG_KINDS}
    granted = {right for right in granted_rights() if right[0] in groups}

    def used() -> set[tuple[str, str, str]]:
        found = {right_used(each) for each in requests_of(strict.audit_log) if "objectRef" in each}
        return {right for right in found if right[0] in groups}

    def unseen(resource: Resource) -> Act:
        looked_up = (resource.group, resource.plural, "get")
        return gang_acts.unseen(resource, lambda: looked_up in used())

    install_gangs(strict.plane)
    async with (
        Client(HttpTransport(load_config(strict.plane.kubeconfig))) as admin,
        Client(HttpTransport(kubeconfig)) as restricted,
        Client(gang_acts.Deaf(kubeconfig)) as deaf,
    ):
        await play_all(admin, restricted, list(gang_acts.GANG_ACTS))
        await play_all(admin, deaf, [unseen(resource) for resource in gang_acts.GANG_KINDS])
    assert used() == granted


def install_gangs(plane: ControlPlane) -> None:
    """Install stand-ins for Volcano and Kueue."""
    for resource in (*gang_acts.GANG_KINDS, gang_acts.FLAVORS, VOLCANO_QUEUES):
        plane.apply(gang_acts.definition(resource))
    flavor = {"metadata": {"name": "default"}, "spec": {"nodeLabels": {}}}
    head = {"apiVersion": gang_acts.FLAVORS.api_version, "kind": gang_acts.FLAVORS.kind}
    plane.request("POST", gang_acts.FLAVORS.path(), {**head, **flavor})


def create_owned_pod(strict: Strict) -> None:
    """As the operator, create a pod that names a job which is not to be removed before it."""
    token = strict.plane.service_account_token(installed.NAMESPACE, installed.ACCOUNT)
    client = PlainClient(strict.plane.url, ca_file=strict.plane.ca_file, token=token)
    owner = msgspec.to_builtins(job().build().owner_reference)
    pod = {
        "metadata": {"name": "owned", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    client.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)


def test_a_cluster_that_checks_owner_references_asks_for_the_finalizers(strict: Strict) -> None:
    create_owned_pod(strict)
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/paddle-manager-role"
    rules = strict.plane.request("GET", path)["rules"]
    without = [rule for rule in rules if rule["resources"] != ["paddlejobs/finalizers"]]
    merge = {"content_type": "application/merge-patch+json"}
    strict.plane.request("PATCH", path, {"rules": without}, **merge)
    try:
        with pytest.raises(ApiError, match="cannot set blockOwnerDeletion"):
            eventually_refused(lambda: create_owned_pod(strict))
    finally:
        strict.plane.request("PATCH", path, {"rules": rules}, **merge)


def eventually_refused(request: Callable[[], None], *, within_seconds: float = 30.0) -> None:
    """Repeat a request until it raises: the API server learns of changed roles a moment later."""
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        request()
        time.sleep(0.05)


def may(plane: ControlPlane, user: str, namespace: str, right: tuple[str, str, str]) -> bool:
    group, resource, verb = right
    resource, _, subresource = resource.partition("/")
    asked = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
    asked |= {"subresource": subresource, "name": LEASE_NAME if resource == "leases" else ""}
    body = {"spec": {"user": user, "resourceAttributes": asked}}
    review = plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    allowed: bool = review["status"]["allowed"]
    return allowed


def test_one_namespace_needs_rights_in_that_namespace_only(strict: Strict, tmp_path: Path) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(installed.NAMESPACED.read_text().replace(installed.NAMESPACE, "team-a"))
    installed.apply(strict.plane, file)
    user = f"system:serviceaccount:team-a:{installed.ACCOUNT}"
    needed = rights(manifests.NAMESPACE_RULES) | rights(manifests.LEASE_RULES)
    assert {right for right in needed if may(strict.plane, user, "team-a", right)} == needed
    elsewhere = ("default", "")
    assert not [right for right in needed for other in elsewhere if may(strict.plane, user, other, right)]


@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"),
    [
        pytest.param("view", "list", "paddlejobs", True, id="a viewer sees jobs"),
        pytest.param("view", "create", "paddlejobs", False, id="a viewer submits none"),
        pytest.param("view", "patch", "paddlejobs/scale", False, id="a viewer does not scale"),
        pytest.param("edit", "create", "paddlejobs", True, id="an editor submits jobs"),
        pytest.param("edit", "delete", "paddlejobs", True, id="an editor deletes jobs"),
        pytest.param("edit", "patch", "paddlejobs/scale", True, id="an editor scales jobs"),
        pytest.param("edit", "patch", "paddlejobs/status", False, id="an editor does not write a status"),
        pytest.param(
            "admin", "create", "paddlejobs", True, id="an administrator of a namespace submits jobs"
        ),
    ],
)
def test_the_roles_of_kubernetes_cover_jobs(strict: Strict, role, verb, resource, allowed) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"somebody-who-may-{role}"}
    binding = {"metadata": {"generateName": f"{role}-"}, "roleRef": reference, "subjects": [subject]}
    strict.plane.request(
        "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding
    )
    right = ("batch.paddlepaddle.org", resource, verb)
    eventually(lambda: may(strict.plane, subject["name"], "default", right) == allowed, within_seconds=30)
