from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from paddlejob.api.defaulting import aliases, effective
from paddlejob.api.v1 import CleanPodPolicy, Intranet, Mode, PaddleJob, Role
from paddlejob.api.validation import validate
from tests.documents import files


class Meaning(NamedTuple):
    mode: Mode
    intranet: Intranet
    clean: CleanPodPolicy
    gloo: int
    replicas: dict[Role, int]
    aliases: tuple[str, ...] = ()


PS_AND_WORKERS = {Role.PS: 2, Role.WORKER: 2}
WORKERS = {Role.WORKER: 2}
PS, COLLECTIVE = Mode.PS, Mode.COLLECTIVE
POD_IP, SERVICE, HOST = Intranet.POD_IP, Intranet.SERVICE, Intranet.HOST
ALWAYS, NEVER = CleanPodPolicy.ALWAYS, CleanPodPolicy.NEVER
ON_COMPLETION, ON_FAILURE = CleanPodPolicy.ON_COMPLETION, CleanPodPolicy.ON_FAILURE

MEANINGS = {
    "000-overview-1-paddlejob": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS),
    "000-overview-2-paddlejob": Meaning(COLLECTIVE, POD_IP, NEVER, 0, WORKERS),
    "001-design-1-paddlejob": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS),
    "001-design-2-paddlejob": Meaning(COLLECTIVE, POD_IP, NEVER, 0, WORKERS),
    "002-tutorial-1-paddlejob": Meaning(PS, POD_IP, NEVER, 1, PS_AND_WORKERS),
    "002-tutorial-2-paddlejob": Meaning(COLLECTIVE, POD_IP, NEVER, 0, WORKERS),
    "002-tutorial-3-paddlejob": Meaning(PS, SERVICE, ON_COMPLETION, 1, PS_AND_WORKERS),
    "002-tutorial-4-paddlejob-podgroup": Meaning(PS, POD_IP, NEVER, 1, PS_AND_WORKERS),
    "002-tutorial-6-paddlejob": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS, ("cleanPolicy",)),
    "003-guide-1-paddlejob": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS),
    "003-guide-2-paddlejob": Meaning(COLLECTIVE, POD_IP, NEVER, 0, WORKERS),
    "003-guide-3-paddlejob-podgroup": Meaning(PS, POD_IP, NEVER, 1, PS_AND_WORKERS),
    "003-guide-4-paddlejob": Meaning(PS, SERVICE, ON_COMPLETION, 1, PS_AND_WORKERS),
    "003-guide-6-paddlejob": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS, ("cleanPolicy",)),
    "wild/clean-policy": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS, ("cleanPolicy",)),
    "wild/clean-policy-and-clean-pod-policy": Meaning(
        COLLECTIVE, POD_IP, NEVER, 0, WORKERS, ("cleanPolicy",)
    ),
    "wild/host": Meaning(COLLECTIVE, HOST, NEVER, 0, WORKERS),
    "wild/host-network": Meaning(COLLECTIVE, HOST, NEVER, 0, WORKERS, ("intranet",)),
    "wild/lower-case": Meaning(PS, SERVICE, NEVER, 2, PS_AND_WORKERS, ("cleanPodPolicy", "intranet")),
    "wild/nerver": Meaning(PS, SERVICE, NEVER, 1, PS_AND_WORKERS, ("cleanPodPolicy",)),
    "wild/on-failed": Meaning(PS, POD_IP, ON_FAILURE, 1, PS_AND_WORKERS, ("cleanPodPolicy",)),
    "wild/oncompletion": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS, ("cleanPodPolicy",)),
    "wild/sample-set-ref": Meaning(PS, POD_IP, ON_COMPLETION, 1, PS_AND_WORKERS),
    "wild/servers-of-zero-replicas": Meaning(COLLECTIVE, POD_IP, NEVER, 0, WORKERS),
}

JOBS = files.jobs()


@pytest.mark.parametrize("name", JOBS)
def test_job_is_valid(name: str) -> None:
    assert validate(msgspec.convert(JOBS[name], PaddleJob)) == ()


@pytest.mark.parametrize("name", JOBS)
def test_job_means_what_its_author_meant(name: str) -> None:
    spec = msgspec.convert(JOBS[name], PaddleJob).spec
    meant = effective(spec)
    assert MEANINGS[name] == Meaning(
        mode=meant.mode,
        intranet=meant.intranet,
        clean=meant.clean_pod_policy,
        gloo=meant.with_gloo,
        replicas={role: role_spec.replicas for role, role_spec in meant.roles},
        aliases=tuple(alias.field.removeprefix("spec.") for alias in aliases(spec)),
    )


def test_every_manifest_of_the_documents_is_here() -> None:
    kinds = [document["kind"] for documents in files.manifests(wild=False).values() for document in documents]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "PaddleJob": 14,
        "PodGroup": 2,
        "PersistentVolume": 2,
        "PersistentVolumeClaim": 2,
        "Job": 2,
        "Service": 1,
        "Pod": 2,
    }


def test_a_group_of_the_documents_is_as_large_as_its_job() -> None:
    for job, group in (documents for name, documents in files.manifests().items() if "podgroup" in name):
        assert group["metadata"]["name"] == job["metadata"]["name"]
        assert group["spec"]["minMember"] == _pods(job)


def _pods(job: dict[str, Any]) -> int:
    return sum(job["spec"][role]["replicas"] for role in ("ps", "worker"))
