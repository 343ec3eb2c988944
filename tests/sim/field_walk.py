"""Every field of a job's spec is changed while the job starts and while it runs, one history for each change.

    python tests/sim/field_walk.py FIELD NUMBER      one of them again

A job has each of a field's valid values in turn. A change to each other valid value must lead to where the
job would be had it been created with that value. A mistake that is corrected a minute later must leave no
trace: the same end, and every container started as often. The server of the simulation keeps what the schema
forbids, as one does whose CRD is from an earlier version.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.kube.resource import PODS
from sim.every_call import End, History, Scenario
from sim.mistakes import reverse
from sim.simulation import DEFINITION, silence
from simkube import virtual_loop
from simkube.apiserver.rules.patch import merge
from simkube.build import JobBuilder, job

MOMENTS = {"starting": 7.0, "running": 120.0}
CORRECTED_AFTER_SECONDS = 60.0
AT_NEXT_ATTEMPT = ("worker.template", "schedulingPolicy.priorityClass")
"""Fields of pods: those that exist keep theirs."""
NEXT_ATTEMPT = ((200.0, {"suspend": True}), (300.0, {"suspend": False}))
KEPT = {"cleanPodPolicy": "Never"}
"""The pods that a history ends with can be compared."""
BASE = job().ps(1).worker(2).spec(**KEPT)
HETER = job().ps(1).worker(2).heter(1).spec(**KEPT)
COLLECTIVE = job().worker(2).spec(**KEPT)
GANG = job().ps(1).worker(2).spec(**KEPT, schedulingPolicy={"minAvailable": 3})


class Values(msgspec.Struct, frozen=True):
    """The new value of a field."""

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
    "heter.replicas": Values((0, 1), (-1, "one")),
    "heter.requests": Values((0,), (-1,)),
    "heter.limits": Values((0,), (-1,)),
    "sampleSetRef": Values(({"name": "imagenet"}, {}), ({"name": 5}, "imagenet")),
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
    "restartPolicy.inPlace": Values((True, False), ("yes", 1)),
    "restartPolicy.parked": Values((True, False), ("yes", 1)),
    "spares": Values((0, 1, 2), (-1, 5001, "two")),
    "successPolicy": Values(("AllWorkers", "Worker0"), ("Nobody", 1)),
    "suspend": Values((True, False), ("yes", 1)),
    "activeDeadlineSeconds": Values((30, 100_000), (0, -5, "soon")),
    "startupDeadlineSeconds": Values((100_000,), (0, "soon")),
    "ttlSecondsAfterFinished": Values((100_000,), (-1, "soon")),
    "recorder": Values((True, False), ("On", 1)),
    "hangPolicy": Values(("Report", "Restart"), ("Ignore", 1)),
    "stragglerPolicy": Values(("Report", "Replace"), ("Ignore", 1)),
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
    if field == "spares":
        return Scenario(COLLECTIVE)
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
    """The final state of a job and the specs of its pods."""

    end: End
    specs: dict[str, JsonObject]
    ended_at: float
    """In seconds; infinite for a job that is suspended."""

    @property
    def declared(self) -> tuple[object, ...]:
        """State that depends on the spec alone; a job that is suspended late keeps its ConfigMap."""
        others = [name for name in self.end.others if not name.startswith("ConfigMap/")]
        return self.end.phase, self.end.pods, others, self.specs

    @property
    def left(self) -> tuple[object, ...]:
        """State that a mistake must not change."""
        return self.end, self.specs


def outcome(scenario: Scenario) -> Outcome:
    """Play a history."""

    async def main() -> Outcome:
        history = History(scenario)
        end = await history.play()
        pods = history.server.objects(PODS)
        job = history.server.get(PADDLE_JOBS, "default", "demo") or {}
        time = job["status"].get("completionTime")
        ended = (datetime.fromisoformat(time) - virtual_loop.EPOCH).total_seconds() if time else math.inf
        return Outcome(end, {pod["metadata"]["name"]: _comparable(pod["spec"]) for pod in pods}, ended)

    with silence():
        return virtual_loop.run(main(), seed=0, max_steps=3_000_000)


def _comparable(spec: JsonObject) -> JsonObject:
    """Return a pod's spec but for its node and the number of its attempt."""
    kept = msgspec.json.encode({key: value for key, value in spec.items() if key != "nodeName"})
    decoded: JsonObject = msgspec.json.decode(re.sub(rb"PADDLEJOB_ATTEMPT_\d+_", b"PADDLEJOB_ATTEMPT_", kept))
    return decoded


class Change(msgspec.Struct, frozen=True):
    """One edit of a job."""

    before: Scenario
    """The life of the job without it."""
    edit: JsonObject
    moment: str
    is_mistake: bool


def changes(field: str, *, everything: bool = True) -> list[Change]:
    """Return every transition of a field from one of its values to another, and to a mistake and back.

    Without `everything` only those of a running job from what the field is without being set.
    """
    unset, values = scenario_of(field), FIELDS[field]
    spec = unset.job.manifest["spec"]
    lives = {"": (unset, reverse(patch(field, values.valid[0]), spec))}
    for value in values.valid:
        edit = patch(field, value)
        lives[repr(value)] = (created_with(unset, edit), edit)
    moments = MOMENTS if everything else ("running",)
    found = []
    for name, (before, _) in lives.items() if everything else (("", lives[""]),):
        others = [edit for other, (_, edit) in lives.items() if other != name]
        for moment in moments:
            found += [Change(before, edit, moment, False) for edit in others]
            found += [Change(before, patch(field, wrong), moment, True) for wrong in values.invalid]
    return found


def differences(field: str, change: Change, known: dict[bytes, Outcome]) -> list[object]:
    """Make a change; return the expected and the actual state if they differ.

    `known` keeps the outcomes of jobs that are not changed.
    """

    def unchanged(scenario: Scenario) -> Outcome:
        key = msgspec.json.encode(scenario.job.manifest["spec"])
        if key not in known:
            known[key] = outcome(scenario)
        return known[key]

    at, before = MOMENTS[change.moment], unchanged(change.before)
    if change.is_mistake:
        back = reverse(change.edit, change.before.job.manifest["spec"])
        found = outcome(edited(change.before, at, change.edit, (at + CORRECTED_AFTER_SECONDS, back)))
        return [] if found.left == before.left else [before, found]
    again = NEXT_ATTEMPT if field in AT_NEXT_ATTEMPT else ()
    found = outcome(edited(change.before, at, change.edit, *again))
    # A job that has ended stays as it is.
    wanted = before if before.ended_at <= at else unchanged(created_with(change.before, change.edit))
    return [] if found.declared == wanted.declared else [wanted, found]


def check(field: str, *, everything: bool = True) -> int:
    """Make the changes of a field; return how many that were.

    Raises AssertionError that names those with another outcome.
    """
    known: dict[bytes, Outcome] = {}
    wrong = []
    for number, change in enumerate(every := changes(field, everything=everything)):
        try:
            is_wrong = differences(field, change, known)
        except Exception as error:
            raise AssertionError(f"python tests/sim/field_walk.py {field} {number}") from error
        if is_wrong:
            wrong.append(f"python tests/sim/field_walk.py {field} {number}")
    assert not wrong, "\n".join(wrong)
    return len(every)


def main() -> None:
    """Make one change; print it and the differences."""
    change = changes(sys.argv[1])[int(sys.argv[2])]
    print(f"{change.edit} while {change.moment}", "for a minute" if change.is_mistake else "")
    print(change.before.job.manifest["spec"])
    print(*differences(sys.argv[1], change, {}), sep="\n")


if __name__ == "__main__":
    main()
