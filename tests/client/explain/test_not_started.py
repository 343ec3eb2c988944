"""Pods that are refused, or cannot mount or start what they need; a line a cause."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paddlejob.client.explain import explain
from simkube.build import job, snapshot
from tests.client.explain.scene import (
    Case,
    check,
    claim,
    cpu,
    event,
    mounts,
    pending,
    placed,
    refused,
    seen,
    unplaced,
    waiting,
)

RETRYING_QUOTA = "exceeded quota: team-a, requested: cpu=2, used: cpu=3, limited: cpu=4"

CASES = {
    "a claim that is being deleted": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[
                {**claim("data"), "metadata": {"name": "data", "deletionTimestamp": "2030-01-01T00:00:00Z"}}
            ],
        ),
        "ClaimDeleted",
        "claim data, which worker-0 mounts, is being deleted",
    ),
    "a quota that cannot be seen": Case(
        refused(RETRYING_QUOTA),
        "QuotaExceeded",
        "quota team-a has no room for worker-0",
        details=("requested cpu=2, used cpu=3 of cpu=4",),
    ),
    "a quota that needs limits": Case(
        refused(
            "failed quota: team-a: must specify limits.cpu for: paddle; limits.memory for: paddle; "
            "requests.cpu for: paddle; correct spec.worker.template, which the pod is made from"
        ),
        "QuotaNeedsLimits",
        "to specify limits.cpu for paddle, limits.memory for paddle, requests.cpu for paddle$",
        advice=("limits.cpu for paddle, limits.memory for paddle, requests.cpu for paddle$",),
    ),
    "Pod Security": Case(
        refused(
            'pods "demo-worker-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != '
            'true (pod or container "paddle" must set runAsNonRoot=true), seccompProfile (pod, too)'
        ),
        "PodSecurity",
        "Pod Security level restricted:latest does not allow worker-0",
        details=("^runAsNonRoot != true .*=true.$", "^seccompProfile"),
        advice=("run the worker as a non-root user",),
    ),
    "Pod Security and the host's network": Case(
        refused('violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'),
        "PodSecurity",
        "baseline:latest",
        advice=("set spec.intranet",),
    ),
    "a webhook that says no": Case(
        refused('admission webhook "policy.example.com" denied the request: no GPUs today'),
        "WebhookDenied",
        "admission webhook policy.example.com refuses worker-0: no GPUs today$",
    ),
    "a webhook that does not answer": Case(
        refused('Internal error: failed calling webhook "gone.example.com": Post "https://x": refused'),
        "WebhookDown",
        "admission webhook gone.example.com does not answer, so worker-0 is refused",
    ),
    "a webhook that Volcano left behind": Case(
        refused(
            'failed calling webhook "mutatepod.volcano.sh": no endpoints; retrying; if Volcano was '
            "uninstalled, remove what it left behind: kubectl delete x"
        ),
        "WebhookDown",
        "admission webhook mutatepod.volcano.sh does not answer",
        details=("^no endpoints$",),
        advice=("if Volcano was uninstalled, remove what it left behind: kubectl delete x",),
    ),
    "a policy that says no": Case(
        refused("ValidatingAdmissionPolicy 'no-latest' with binding 'all' denied request: no latest tag"),
        "PolicyDenied",
        "ValidatingAdmissionPolicy no-latest refuses worker-0: no latest tag$",
    ),
    "a ServiceAccount that does not exist": Case(
        refused('error looking up service account a/b: serviceaccount "b" not found'),
        "ServiceAccountNotFound",
        "worker-0 names ServiceAccount b, which does not exist",
        advice=("create ServiceAccount b",),
    ),
    "a ServiceAccount that the template names": Case(
        refused('serviceaccount "b" not found', job().worker(1, pod={"serviceAccountName": "b"})),
        "ServiceAccountNotFound",
        "worker-0 names ServiceAccount b",
        advice=("remove spec.worker.template.spec.serviceAccountName", "create ServiceAccount b"),
    ),
    "a PriorityClass that does not exist": Case(
        refused("no PriorityClass with name b was found", job().worker(1, pod={"priorityClassName": "b"})),
        "PriorityClassNotFound",
        "worker-0 names PriorityClass b",
        advice=("remove spec.worker.template.spec.priorityClassName", "create PriorityClass b"),
    ),
    "a LimitRange": Case(
        refused("maximum cpu usage per Container is 2, but limit is 4"),
        "LimitRange",
        "does not allow worker-0: maximum cpu usage per Container is 2, but limit is 4$",
    ),
    "a LimitRange whose default limit is less than the request": Case(
        refused(
            'spec.containers[0].resources.requests: Invalid value: "4": must be less than or equal to cpu '
            "limit of 2; correct spec.worker.template, which the pod is made from",
            job().worker(1, **cpu(4)),
            limit_ranges=[
                {"metadata": {}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}
            ],
        ),
        "LimitRange",
        "worker-0 requests more cpu than the limit 2 that a LimitRange gives it",
        advice=("requests.cpu from 4 to 2", "set limits.cpu in spec.worker.template"),
    ),
    "rights that the operator lacks": Case(
        refused('User "system:serviceaccount:x:y" cannot create resource "pods" in API group ""'),
        "OperatorForbidden",
        "the operator may not create pods",
    ),
    "any other refusal": Case(refused("no"), "CreateFailed", "cannot create Pod demo-worker-0: no; retrying"),
    "a refused service": Case(
        seen(pending(job().worker(1), "cannot create Service demo-worker-0: no; retrying", "CreateFailed")),
        "CreateFailed",
        "cannot create Service",
        rank="",
    ),
    "a claim that does not exist": Case(
        unplaced(job().worker(1, pod=mounts("data")), claims=[]),
        "ClaimNotFound",
        "worker-0 mounts claim data, which does not exist",
        advice=("create the claim data in namespace default",),
    ),
    "a claim with another name": Case(
        unplaced(job().worker(1, pod=mounts("datas")), claims=[claim("data")]),
        "ClaimNotFound",
        "datas, which does not exist",
        advice=("use the claim data, which exists", "create"),
    ),
    "a claim without its class": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[claim("data", "Pending")],
            storage_classes=[{"metadata": {"name": "silver"}}],
        ),
        "ClaimNotBound",
        "claim data, which is not bound: there is no StorageClass gold",
        advice=("class gold, or recreate the claim with class silver",),
    ),
    "a claim without a class": Case(
        unplaced(
            job().worker(1, pod=mounts("data")), claims=[claim("data", "Pending", storageClassName=None)]
        ),
        "ClaimNotBound",
        "it names no StorageClass and the cluster has no default one",
    ),
    "a claim that cannot be provisioned": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[claim("data", "Pending")],
            storage_classes=[{"metadata": {"name": "gold"}, "volumeBindingMode": "Immediate"}],
            events=[event("data", "ProvisioningFailed", "out of disks")],
        ),
        "ClaimNotBound",
        "not bound: ProvisioningFailed: out of disks",
    ),
    "a claim of a class that cannot be seen": Case(
        unplaced(job().worker(1, pod=mounts("data")), claims=[claim("data", "Pending")]),
        "ClaimNotBound",
        "claim data, which is not bound: no volume fits it yet",
    ),
    "a claim that waits for its pod, in a class that cannot be seen": Case(
        unplaced(
            job().worker(1, pod=mounts("data")),
            claims=[claim("data", "Pending")],
            events=[event("data", "WaitForFirstConsumer", "waiting for first consumer", type="Normal")],
        ),
        "Unschedulable",
        "no node for worker-0",
    ),
    "a lost claim": Case(
        unplaced(job().worker(1, pod=mounts("data")), claims=[claim("data", "Lost", volumeName="pv")]),
        "ClaimLost",
        "claim data has lost its volume pv",
    ),
    "a claim for one pod": Case(
        unplaced(
            job().worker(2, pod=mounts("data")), claims=[claim("data", accessModes=["ReadWriteOncePod"])]
        ),
        "ClaimInUse",
        "claim data is ReadWriteOncePod, but 2 pods of the job mount it",
    ),
    "a claim in use on another node": Case(
        seen(
            snapshot(pending(job().worker(1, pod=mounts("data")))).pod("worker", 0, node="b"),
            claims=[claim("data", accessModes=["ReadWriteOnce"])],
            events=[event("demo-worker-0", "FailedAttachVolume", 'Multi-Attach error for volume "pv"')],
        ),
        "ClaimInUse",
        "claim data is ReadWriteOnce and in use on a node other than that of worker-0",
    ),
    "an image that does not exist": Case(
        placed(
            waiting("ImagePullBackOff", 'Back-off pulling image "paddle:test"'),
            events=[event("demo-worker-0", "Failed", 'Failed to pull image "paddle:test": not found')],
        ),
        "ImagePull",
        "worker-0 cannot pull image paddle:test: the registry has no such image",
    ),
    "an image that one may not have": Case(
        placed(waiting("ErrImagePull", "pull access denied, repository does not exist")),
        "ImagePull",
        "the registry denies access",
        advice=("imagePullSecrets",),
    ),
    "a registry that cannot be reached": Case(
        placed(waiting("ErrImagePull", "dial tcp: lookup r.example: no such host")),
        "ImagePull",
        "the registry cannot be reached from the node",
    ),
    "an image without a valid name": Case(
        placed(waiting("InvalidImageName", "couldn't parse")), "ImagePull", "its name is not valid"
    ),
    "a missing Secret": Case(
        placed(waiting("CreateContainerConfigError", 'secret "token" not found')),
        "SecretNotFound",
        "worker-0 needs Secret token, which does not exist",
        details=("worker-0 is on node a",),
        advice=("create Secret token",),
    ),
    "an image that would run as root": Case(
        placed(
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            built=job().worker(1, pod={"securityContext": {"runAsNonRoot": True}}),
        ),
        "CreateContainerConfigError",
        "image will run as root",
        advice=("set spec.worker.template.spec.securityContext.runAsUser to a user that can write",),
    ),
    "a container that never ran": Case(
        placed(waiting("CreateContainerError", "context deadline exceeded")),
        "CreateContainerError",
        "worker-0: CreateContainerError: context deadline exceeded",
        advice=("^correct spec.worker.template.spec, then suspend and resume the job$",),
    ),
    "a missing key": Case(
        placed(waiting("CreateContainerConfigError", "couldn't find key a in ConfigMap default/settings")),
        "ConfigMapKeyNotFound",
        "worker-0 needs key a of ConfigMap settings",
    ),
    "a ConfigMap that cannot be mounted": Case(
        placed(
            waiting("ContainerCreating"),
            events=[event("demo-worker-0", "FailedMount", 'MountVolume.SetUp: configmap "x" not found')],
        ),
        "ConfigMapNotFound",
        "worker-0 needs ConfigMap x",
    ),
    "a volume that cannot be mounted": Case(
        placed(
            waiting("ContainerCreating"),
            events=[event("demo-worker-0", "FailedMount", "mount.nfs: timed out")],
        ),
        "FailedMount",
        "worker-0 cannot start on node a: FailedMount: mount.nfs: timed out",
    ),
    "a container that crashes": Case(
        placed(
            waiting(
                "CrashLoopBackOff",
                restartCount=3,
                lastState={"terminated": {"exitCode": 1, "message": "boom"}},
            )
        ),
        "CrashLoopBackOff",
        "worker-0: crashed 3 times, last with code 1: boom",
        advice=("^see kubectl logs demo-worker-0 --previous, and correct spec.worker.template.spec$",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named(name):
    check(CASES[name])


def contexts(evidence):
    """Return the security contexts that the first advice sets, by path."""
    return {op["path"]: op["value"] for op in explain(evidence).advice[0].change.patch}


@pytest.mark.parametrize(("given", "user"), [({}, 1000), ({"runAsUser": 0}, 1000), ({"runAsUser": 42}, 42)])
def test_a_non_root_user_is_named_unless_there_is_one(given, user):
    built = job().worker(1, pod={"securityContext": given})
    refusal = 'pods "demo-worker-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot'
    at = "/spec/worker/template/spec/securityContext"
    restricted = contexts(refused(refusal, built))[at]
    assert (restricted["runAsNonRoot"], restricted["runAsUser"]) == (True, user)
    message = "container has runAsNonRoot and image will run as root"
    status = waiting("CreateContainerConfigError", message)
    assert contexts(placed(status, built=built))[at] == {**given, "runAsUser": user}


UNSEEN = ("cannot see nodes: needs list on nodes",)


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        (refused('serviceaccount "robot" not found'), ()),
        (placed(waiting("ErrImagePull", "not found")), ()),
        (seen(pending(job().worker(1))), UNSEEN),
        (unplaced(job().worker(1)), UNSEEN),
    ],
    ids=["refused", "image", "unknown", "unplaced"],
)
def test_what_could_not_be_read_is_named_only_if_it_may_matter(evidence, shown):
    assert explain(replace(evidence, unseen=UNSEEN)).unseen == shown
