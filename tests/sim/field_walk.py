"""Every field of a job's spec is changed while the job starts and while it runs, one history for each change.
A change to a valid value must lead to where the job would be had it been created with that value. A mistake
that is corrected a minute later must leave no trace: the same end, and every container started as often.
The server of the simulation keeps what the schema forbids, as one does whose CRD is from an earlier version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.kube.resource import PODS
from paddlejob.testing import virtual_loop
from paddlejob.testing.apiserver.rules.fake_patch import merge
from paddlejob.testing.build import JobBuilder, job
from sim.every_call import End, History, Scenario
from sim.mistakes import reverse
from sim.simulation import DEFINITION, silence

MOMENTS = {"starting": 7.0, "running": 120.0}
CORRECTED_AFTER_SECONDS = 60.0
AT_NEXT_ATTEMPT = ("worker.template", "schedulingPolicy.priorityClass")
"""Fields of pods: those that exist keep theirs."""
NEXT_ATTEMPT = ((200.0, {"suspend": True}), (300.0, {"suspend": False}))
KEPT = {"cleanPodPolicy": "Never"}
"""The pods that a history ends with can be compared."""
BASE = job().ps(1).worker(2).spec(**KEPT)
HETER = job().ps(1).worker(2).heter(1).spec(**KEPT)
GANG = job().ps(1).worker(2).spec(**KEPT, schedulingPolicy={"minAvailable": 3})


class Values(msgspec.Struct, frozen=True):
    """What a field is changed to."""

    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]


def template(image: str, **pod: Any) -> JsonObject:
    """Return a pod template."""
    return {"spec": {"containers": [{"name": "paddle", "image": image}], **pod}}


CODES = Values(([], [3], [7, 9]), ([0], [256], "137"))
FIELDS: dict[str, Values] = {
    "cleanPodPolicy": Values(("Always", "Never", "OnFailure", "OnCompletion", ""), ("Sometimes", 3)),
    "cleanPolicy": Values(("Always", "Never", "OnFailure"), ("Sometimes",)),
    "intranet": Values(("PodIP", "Service", "Host"), ("Carrier pigeon", 7)),
    "withGloo": Values((0, 1, 2), (3, -1, "yes")),
    "ps.replicas": Values((0, 1, 2), (-1, 5001, "two")),
    "ps.requests": Values((0, 1), (-1, 2)),
    "ps.limits": Values((0, 1, 4), (-1, "many")),
    "worker.template": Values(
        (template("paddle:other"), template("paddle:test", nodeSelector={"disk": "ssd"})),
        ({"spec": {"containers": []}}, {"spec": "none"}, template("")),
    ),
    "worker.replicas": Values((1, 2, 3), (0, -1, 5001)),
    "worker.requests": Values((0, 1, 2), (-1, 3)),
    "worker.limits": Values((0, 2, 4), (-1, 1)),
    "heter.replicas": Values((0,), (1, -1)),
    "heter.requests": Values((0,), (-1,)),
    "heter.limits": Values((0,), (-1,)),
    "elastic": Values((0, 1), (-1, "on")),
    "schedulingPolicy.minAvailable": Values((0, 2, 3), (-1, 9)),
    "schedulingPolicy.queue": Values(("default", ""), (5,)),
    "schedulingPolicy.priorityClass": Values(("high", ""), (5,)),
    "schedulingPolicy.minResources": Values(({"cpu": "1"}, {}), ({"cpu": "lots"}, "1")),
    "backoffLimit": Values((0, 1, 1000), (-1, 1001, "3")),
    "restartPolicy.permanentExitCodes": CODES,
    "restartPolicy.retryableExitCodes": CODES,
    "restartPolicy.ignoredExitCodes": CODES,
    "restartPolicy.delaySeconds": Values((0, 60), (-1, 301, "5s")),
    "restartPolicy.maxDelaySeconds": Values((5, 86400), (-1, 1)),
    "restartPolicy.nodeLostSeconds": Values((10, 86400), (9, "1m")),
    "restartPolicy.noProgressLimit": Values((1, 1000), (0, 1001)),
    "successPolicy": Values(("AllWorkers", "Worker0"), ("Nobody", 1)),
    "suspend": Values((True, False), ("yes", 1)),
    "activeDeadlineSeconds": Values((30, 100_000), (0, -5, "soon")),
    "startupDeadlineSeconds": Values((100_000,), (0, "soon")),
    "ttlSecondsAfterFinished": Values((100_000,), (-1, "soon")),
    "recorder": Values((True, False), ("On", 1)),
    "hangPolicy": Values(("Report", "Restart"), ("Ignore", 1)),
    "managedBy": Values((names.CONTROLLER_NAME,), (5,)),
}


def fields() -> list[str]:
    """Return every field of the schema's spec; a template is one."""
    spec = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return list(_leaves(spec, ""))


def _leaves(schema: JsonObject, path: str) -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        here = f"{path}{name}"
        if "properties" in value and name != "template":
            yield from _leaves(value, f"{here}.")
        else:
            yield here


def patch(field: str, value: Any) -> JsonObject:
    """Return the merge patch of a spec that sets a field."""
    for name in reversed(field.split(".")):
        value = {name: value}
    return value


def scenario_of(field: str) -> Scenario:
    """Return the life in which a field means something."""
    if field.startswith("heter."):
        return Scenario(HETER)
    if field.startswith("schedulingPolicy."):
        return Scenario(GANG, in_volcano=True)
    return Scenario(BASE)


def created_with(scenario: Scenario, edit: JsonObject) -> Scenario:
    """Return the life of a job that had an edit from the beginning."""
    made = JobBuilder()
    made.manifest["spec"] = merge(scenario.job.manifest["spec"], edit)
    return msgspec.structs.replace(scenario, job=made)


def edited(scenario: Scenario, at: float, edit: JsonObject, *later: tuple[float, JsonObject]) -> Scenario:
    """Return the life of a job that is edited, and perhaps edited again."""
    return msgspec.structs.replace(scenario, edits=((at, edit), *later))


class Outcome(msgspec.Struct, frozen=True):
    """What has become of a job and of the specs of its pods."""

    end: End
    specs: dict[str, JsonObject]

    @property
    def declared(self) -> tuple[object, ...]:
        """What the spec alone decides; a job that is suspended late keeps its ConfigMap."""
        others = [name for name in self.end.others if not name.startswith("ConfigMap/")]
        return self.end.phase, self.end.pods, others, self.specs


def outcome(scenario: Scenario) -> Outcome:
    """Play a history."""

    async def main() -> Outcome:
        history = History(scenario)
        end = await history.play()
        pods = history.server.objects(PODS)
        return Outcome(end, {pod["metadata"]["name"]: _comparable(pod["spec"]) for pod in pods})

    with silence():
        return virtual_loop.run(main(), seed=0, max_steps=3_000_000)


def _comparable(spec: JsonObject) -> JsonObject:
    """Return a pod's spec but for its node and the number of its attempt."""
    kept = msgspec.json.encode({key: value for key, value in spec.items() if key != "nodeName"})
    decoded: JsonObject = msgspec.json.decode(re.sub(rb"PADDLEJOB_ATTEMPT_\d+_", b"PADDLEJOB_ATTEMPT_", kept))
    return decoded


def check(field: str, moments: Collection[str] = tuple(MOMENTS)) -> int:
    """Make every change of a field; return how many histories that were.

    Raises AssertionError that names the first change with another outcome.
    """
    scenario, values = scenario_of(field), FIELDS[field]
    untouched = outcome(scenario)
    assert untouched.end.phase == "Completed"
    for value in values.valid:
        edit = patch(field, value)
        wanted = outcome(created_with(scenario, edit)).declared
        for moment in moments:
            again = NEXT_ATTEMPT if field in AT_NEXT_ATTEMPT else ()
            found = outcome(edited(scenario, MOMENTS[moment], edit, *again)).declared
            assert found == wanted, f"{field}: {value} while {moment}\n{wanted}\n{found}"
    for value in values.invalid:
        for moment in moments:
            at = MOMENTS[moment]
            back = (at + CORRECTED_AFTER_SECONDS, reverse(patch(field, value), scenario.job.manifest["spec"]))
            found = outcome(edited(scenario, at, patch(field, value), back))
            assert found == untouched, f"{field}: {value} for a minute while {moment}\n{untouched}\n{found}"
    return len(moments) * (len(values.valid) + len(values.invalid))
