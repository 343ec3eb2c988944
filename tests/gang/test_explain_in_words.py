"""Causes that it takes a decision to deal with, and what people with few rights are told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from aiohttp import web
from msgspec.structs import replace

from devcluster import ControlPlane
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.client.explain import Explanation, explain, explain_job
from paddlejob.client.explain.gather import gather
from paddlejob.kube.client import Client
from paddlejob.kube.errors import ApiError
from paddlejob.kube.resource import PODS, Resource
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from paddlejob.operator.reports.certificate import shared_certificate
from simkube.build import job
from tests.gang.explain_scene import Case, Scene, an_hdd_node, cpu, mounting
from tests.gang.nodes import Nodes
from tests.operator.gang_stage import GangStage
from tests.support.tls_site import serve_tls

pytestmark = pytest.mark.gang


async def an_unbound_claim(scene: Scene) -> None:
    scene.nodes.add(4)
    await scene.claim("data", volume=False)


async def bind_it(scene: Scene) -> None:
    await scene.volume("data")


async def a_claim_for_one_pod(scene: Scene) -> None:
    scene.nodes.add(4)
    await scene.claim("data", mode="ReadWriteOncePod")
    await scene.claim("shared")


async def use_a_shared_claim(scene: Scene) -> None:
    path = "/spec/worker/template/spec/volumes/0/persistentVolumeClaim/claimName"
    await scene.change({"op": "replace", "path": path, "value": "shared"}, recreate=True)


async def a_node(scene: Scene) -> None:
    scene.nodes.add(4)


async def create_the_secret(scene: Scene) -> None:
    secrets = Resource("", "v1", "secrets", "Secret")
    body = {"metadata": {"name": "token"}, "stringData": {"key": "value"}}
    await scene.stage.client.create(secrets, scene.stage.namespace, body)


async def a_quota_of_memory_limits(scene: Scene) -> None:
    scene.nodes.add(4)
    await scene.quota(limits_memory="2Gi")


async def set_limits(scene: Scene) -> None:
    path = "/spec/worker/template/spec/containers/0/resources"
    await scene.change({"op": "add", "path": path, "value": {"limits": {"memory": "1Gi"}}})


ADMISSION = "admissionregistration.k8s.io"
POLICIES = Resource(
    ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
BINDINGS = Resource(
    ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
WEBHOOKS = Resource(
    ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
ON_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}


async def refuses_pods(scene: Scene) -> bool:
    """Tell whether the API server would refuse a pod now."""
    spec = {"containers": [{"name": "paddle", "image": "paddle:test"}]}
    body = {"metadata": {"name": "probe"}, "spec": spec}
    try:
        await scene.stage.client.create(PODS, scene.stage.namespace, body, dry_run=True)
    except ApiError:
        return True
    return False


async def a_policy(scene: Scene) -> None:
    """No pods without a label, in this namespace."""
    scene.nodes.add(4)
    name = scene.stage.namespace
    rule = {"expression": "has(object.metadata.labels.team)", "message": "pods need the label team"}
    await scene.create(
        POLICIES, name, {"matchConstraints": {"resourceRules": [ON_PODS]}, "validations": [rule]}
    )
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    await scene.create(BINDINGS, name, binding)
    await scene.stage.until(lambda: refuses_pods(scene), "the policy is in force")


async def label_the_pods(scene: Scene) -> None:
    await scene.change(
        {"op": "add", "path": "/spec/worker/template/metadata", "value": {"labels": {"team": "a"}}}
    )


async def register(scene: Scene, webhook: str, **client: str) -> None:
    """Let a webhook decide about the pods of this namespace."""
    name = scene.stage.namespace
    rule = {
        "name": webhook,
        "rules": [ON_PODS],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
    }
    body = {"metadata": {"name": name}, "webhooks": [rule]}
    await scene.stage.client.create(WEBHOOKS, None, body)
    await scene.stage.until(lambda: refuses_pods(scene), "the webhook is asked")


async def a_webhook_that_is_gone(scene: Scene) -> None:
    scene.nodes.add(4)
    await register(scene, "gone.example.com", url="https://127.0.0.1:1/validate")


async def remove_the_webhook(scene: Scene) -> None:
    await scene.stage.client.delete(WEBHOOKS, None, scene.stage.namespace)


ONE_BY_ONE = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "disk",
                    "labelSelector": {"matchLabels": {"paddle-res-type": "worker"}},
                }
            ]
        }
    }
}


async def forget_the_affinity(scene: Scene) -> None:
    await scene.change({"op": "remove", "path": "/spec/worker/template/spec/affinity"}, recreate=True)


TOKEN = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}}

BY_HAND = {
    "a claim that is not bound": (
        Case(
            job().worker(1, pod=mounting("data")),
            an_unbound_claim,
            "ClaimNotBound",
            "worker-0 mounts claim data, which is not bound: there is no StorageClass",
            ("create a PersistentVolume with class",),
        ),
        bind_it,
    ),
    "a claim for one pod": (
        Case(
            job().worker(2, pod=mounting("data")),
            a_claim_for_one_pod,
            "ClaimInUse",
            "claim data is ReadWriteOncePod, but 2 pods of the job mount it",
            ("use a claim with ReadWriteMany",),
        ),
        use_a_shared_claim,
    ),
    "a Secret that does not exist": (
        Case(
            job().worker(1, env=[TOKEN]),
            a_node,
            "SecretNotFound",
            "worker-0 needs Secret token, which does not exist",
            ("create Secret token",),
        ),
        create_the_secret,
    ),
    "a quota that needs limits": (
        Case(
            job().worker(1),
            a_quota_of_memory_limits,
            "QuotaNeedsLimits",
            "quota team-a requires worker-0 to specify limits.memory for paddle",
            ("set these resources of the containers in spec.worker.template: limits.memory",),
        ),
        set_limits,
    ),
    "a policy": (
        Case(
            job().worker(1),
            a_policy,
            "PolicyDenied",
            "ValidatingAdmissionPolicy gang-",
            ("change the job as the policy asks",),
        ),
        label_the_pods,
    ),
    "a webhook that does not answer": (
        Case(
            job().worker(1),
            a_webhook_that_is_gone,
            "WebhookDown",
            "admission webhook gone.example.com does not answer, so worker-0 is refused",
            ("ask the owner of webhook gone.example.com",),
        ),
        remove_the_webhook,
    ),
    "what only the scheduler knows": (
        Case(
            job().worker(2, pod=ONE_BY_ONE),
            an_hdd_node,
            "Unschedulable",
            "the scheduler has no node for worker-",
            (),
        ),
        forget_the_affinity,
    ),
}


@pytest.mark.parametrize("name", BY_HAND, ids=lambda name: name.replace(" ", "-"))
def test_what_takes_a_decision_is_said_in_words(perform, nodes: Nodes, name: str) -> None:
    case, help_it = BY_HAND[name]

    async def act(stage: GangStage) -> None:
        scene = Scene(stage, nodes)
        await case.prepare(scene)
        await stage.submit(case.job)
        await scene.explained(case)
        await help_it(scene)
        await stage.phase("Running")

    perform(act, case.scheduling)


async def review(request: web.Request) -> web.Response:
    """Refuse pods without the label `team`, as the webhook of a company would."""
    asked = (await request.json())["request"]
    allowed = "team" in asked["object"]["metadata"].get("labels", {})
    answer = {"uid": asked["uid"], "allowed": allowed, "status": {"message": "pods need the label team"}}
    return web.json_response(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
    )


@contextlib.asynccontextmanager
async def serving_reviews(stage: GangStage) -> AsyncIterator[dict[str, str]]:
    """Serve a webhook over TLS; gives what the API server has to know of it."""
    certificate = await shared_certificate(stage.client, stage.namespace, "127.0.0.1")
    app = web.Application()
    app.router.add_post("/", review)
    async with serve_tls(app, certificate.server_context()) as port:
        bundle = base64.b64encode(certificate.certificate.encode()).decode()
        yield {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle}


def test_a_webhook_that_refuses_is_quoted(perform, nodes: Nodes) -> None:
    case = Case(
        job().worker(1),
        a_node,
        "WebhookDenied",
        "admission webhook labels.example.com refuses worker-0: pods need the label team",
        ("change the job as the webhook asks",),
    )

    async def act(stage: GangStage) -> None:
        scene = Scene(stage, nodes)
        await case.prepare(scene)
        async with serving_reviews(stage) as client:
            await register(scene, "labels.example.com", **client)
            await stage.submit(case.job)
            await scene.explained(case)
            await label_the_pods(scene)
            await stage.phase("Running")

    perform(act, "")


def test_a_job_without_an_operator(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(4)
        await stage.stop_operator()
        await stage.submit(job().worker(1))
        found = await gather(stage.client, stage.namespace, "demo")
        assert explain(found).cause == "New"
        later = replace(found, now=found.now + timedelta(minutes=5))
        assert explain(later).summary.startswith("no operator has looked at the job in 5m")
        stage.start_operator()
        await stage.phase("Running")

    perform(act, "")


def test_a_job_without_a_scheduler(perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(4)
        await stage.submit(job().worker(1, pod={"schedulerName": "ghost"}))
        await stage.until(lambda: has_pods(stage), "the pod is there")
        found = await gather(stage.client, stage.namespace, "demo")
        later = explain(replace(found, now=found.now + timedelta(minutes=15)))
        assert later.summary == "no scheduler has looked at worker-0 in 15m: its schedulerName is ghost"
        op = {"op": "remove", "path": "/spec/worker/template/spec/schedulerName"}
        await Scene(stage, nodes).change(op, recreate=True)
        await stage.phase("Running")

    perform(act, "")


async def has_pods(stage: GangStage) -> bool:
    return bool(await stage.names(PODS))


RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(RBAC, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding")


async def give_rights(stage: GangStage) -> None:
    """Let the default account do what a person with the role `edit` may, in this namespace alone.

    There is no controller here that would aggregate that role from its parts.
    """
    rule = {
        "apiGroups": [PADDLE_JOBS.group],
        "resources": [PADDLE_JOBS.plural],
        "verbs": ["get", "list", "patch"],
    }
    await stage.client.create(ROLES, stage.namespace, {"metadata": {"name": "jobs"}, "rules": [rule]})
    account = {"kind": "ServiceAccount", "name": "default", "namespace": stage.namespace}
    for kind, name in (
        ("Role", "jobs"),
        ("ClusterRole", "system:aggregate-to-edit"),
        ("ClusterRole", "system:aggregate-to-view"),
    ):
        reference = {"apiGroup": RBAC, "kind": kind, "name": name}
        metadata = {"name": name.replace(":", "-")}
        body = {"metadata": metadata, "roleRef": reference, "subjects": [account]}
        await stage.client.create(ROLE_BINDINGS, stage.namespace, body)


def test_a_person_who_sees_no_nodes(plane: ControlPlane, perform, nodes: Nodes) -> None:
    async def act(stage: GangStage) -> None:
        nodes.add(4)
        await give_rights(stage)
        await stage.submit(job().worker(1, **cpu(8), pod=mounting("data")))
        account = await asyncio.to_thread(plane.service_account_kubeconfig, stage.namespace, "default")
        async with Client(HttpTransport(load_config(account))) as client:

            async def told() -> Explanation:
                return await explain_job(client, stage.namespace, "demo")

            async def says(cause: str) -> bool:
                return (await told()).cause == cause

            await stage.until(lambda: says("ClaimNotFound"), "the claim is missed")
            await Scene(stage, nodes).claim("data")
            await stage.until(lambda: says("Unschedulable"), "the scheduler's words are shown")
            found = await told()
        assert (
            found.summary == "the scheduler has no node for worker-0: 1 of 1 nodes have too little cpu left"
        )
        assert "the cpu request of each worker (now 8)" in found.advice[0].text
        assert "cannot see nodes: needs list on nodes" in found.unseen
        assert any(line.startswith("cannot see PersistentVolume ") for line in found.unseen)

    perform(act, "")
