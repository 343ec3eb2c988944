"""What is found out before the first process starts."""

from __future__ import annotations

import pytest

from local.jobs import config_map, container, job, role
from paddlejob.local.errors import InputError
from paddlejob.local.pod.capabilities import NO_NAMESPACES, NO_OVERLAYS, NONE, Capabilities

MISSING = {
    "a whole config map": ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, "needs the ConfigMap gone"),
    "a whole secret": ({"envFrom": [{"secretRef": {"name": "gone"}}]}, "needs the Secret gone"),
    "a key": (
        {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}]},
        "spec.worker.template.spec.containers[0] needs the Secret gone",
    ),
}


@pytest.mark.parametrize(("fields", "sentence"), MISSING.values(), ids=MISSING)
async def test_missing_config_maps_and_secrets_are_named(start, fields, sentence):
    with pytest.raises(InputError) as refusal:
        await start(job(worker=role(1, containers=[container("true", **fields)])))
    assert sentence in str(refusal.value)


async def test_all_errors_are_reported_together(start):
    one = {"name": "main", "image": "unknown:v1", "envFrom": [{"configMapRef": {"name": "gone"}}]}
    with pytest.raises(InputError) as refusal:
        await start(job(worker=role(1, containers=[one], volumes=[{"name": "v", "nfs": {}}])))
    assert len(refusal.value.sentences) == 3


async def test_optional_objects_may_be_missing(finish):
    source = [{"configMapRef": {"name": "gone", "optional": True}}]
    run = await finish(job(worker=role(1, containers=[container("echo fine", envFrom=source)])))
    assert run.log("worker-0") == "fine\n"


async def test_an_unreadable_template_is_refused(start):
    with pytest.raises(InputError, match="a pod template cannot be read"):
        await start(job(worker=role(1, volumes=[{"name": "v", "hostPath": {}}])))


async def test_ignored_probes_and_hooks_are_noted(finish):
    probed = container("true", livenessProbe={"exec": {}}, lifecycle={"preStop": {}})
    run = await finish(job(worker=role(1, containers=[probed])), config_map("c"))
    path = "spec.worker.template.spec.containers[0]"
    assert run.session.record.notes == (
        f"{path}: livenessProbe and lifecycle of container main ignored locally",
    )


@pytest.mark.parametrize(
    ("allowed", "reason"), [(NONE, NO_NAMESPACES), (Capabilities("full", can_overlay=False), NO_OVERLAYS)]
)
async def test_running_without_a_copy_of_the_files_is_noted(start, tmp_path, allowed, reason):
    run = await start(job(), allowed=allowed)
    assert run.session.record.notes == (
        f"programs change the files in {tmp_path} directly, not a copy: {reason}",
    )
    elsewhere = job(worker=role(1, containers=[container("true", workingDir="/tmp")]))
    assert (await start(elsewhere, allowed=allowed)).session.record.notes == ()


async def test_managed_by_has_no_effect(finish):
    run = await finish(job(managedBy="another.example/controller"))
    assert str(run.status.phase) == "Completed"
