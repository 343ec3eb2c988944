"""What is found out before the first process starts."""

from __future__ import annotations

import pytest

from local.jobs import config_map, container, job, role
from paddlejob.local.errors import InputError
from paddlejob.local.pod.capabilities import NO_OVERLAYS, NONE, WAY_OUT, Capabilities

MISSING = {
    "a whole config map": ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, "needs the ConfigMap gone"),
    "a whole secret": ({"envFrom": [{"secretRef": {"name": "gone"}}]}, "needs the Secret gone"),
    "a key": (
        {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}]},
        "spec.worker.template.spec.containers[0] needs the Secret gone",
    ),
}


@pytest.mark.parametrize(("fields", "sentence"), MISSING.values(), ids=MISSING)
async def test_objects_that_nobody_will_create_are_named(start, fields, sentence):
    with pytest.raises(InputError) as refusal:
        await start(job(worker=role(1, containers=[container("true", **fields)])))
    assert sentence in str(refusal.value)


async def test_everything_that_is_wrong_is_told_at_once(start):
    one = {"name": "main", "image": "unknown:v1", "envFrom": [{"configMapRef": {"name": "gone"}}]}
    with pytest.raises(InputError) as refusal:
        await start(job(worker=role(1, containers=[one], volumes=[{"name": "v", "nfs": {}}])))
    assert len(refusal.value.sentences) == 3


async def test_optional_objects_may_be_missing(finish):
    source = [{"configMapRef": {"name": "gone", "optional": True}}]
    run = await finish(job(worker=role(1, containers=[container("echo fine", envFrom=source)])))
    assert run.log("worker-0") == "fine\n"


async def test_a_template_that_cannot_be_read_is_refused(start):
    with pytest.raises(InputError, match="a pod template cannot be read"):
        await start(job(worker=role(1, volumes=[{"name": "v", "hostPath": {}}])))


async def test_what_a_cluster_would_run_and_we_do_not_is_noted(finish):
    probed = container("true", livenessProbe={"exec": {}}, lifecycle={"preStop": {}})
    run = await finish(job(worker=role(1, containers=[probed])), config_map("c"))
    path = "spec.worker.template.spec.containers[0]"
    assert run.local_run.notes == (f"{path}: livenessProbe and lifecycle of container main ignored locally",)


@pytest.mark.parametrize(
    ("allowed", "reason"), [(NONE, WAY_OUT), (Capabilities("full", can_overlay=False), NO_OVERLAYS)]
)
async def test_a_program_that_changes_files_in_place_is_noted(start, tmp_path, allowed, reason):
    run = await start(job(), allowed=allowed)
    assert run.local_run.notes == (
        f"programs change the files of {tmp_path} itself and not a copy: {reason}",
    )
    elsewhere = job(worker=role(1, containers=[container("true", workingDir="/tmp")]))
    assert (await start(elsewhere, allowed=allowed)).local_run.notes == ()


async def test_who_manages_the_job_elsewhere_does_not_matter_here(finish):
    run = await finish(job(managedBy="another.example/controller"))
    assert str(run.status.phase) == "Completed"
