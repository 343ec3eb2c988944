"""Who schedules a job's pods together."""

from __future__ import annotations

import re

import pytest

from paddlejob.core.actions import Kind
from paddlejob.core.gang.choose import choose, relevant_systems
from paddlejob.core.gang.model import GangApis, GangSystem, Scheduling
from simkube.build import job

VOLCANO, ALPHA, BETA = Kind.POD_GROUP, Kind.POD_GROUP_V1ALPHA2, Kind.POD_GROUP_V1BETA1
PLAIN = job().ps(2).worker(2)
DOCUMENTED = job().ps(2).worker(2, pod={"schedulerName": "volcano"})
WITH_POLICY = job().ps(2).worker(2).spec(schedulingPolicy={"queue": "research"})
ELSEWHERE = job().worker(2, pod={"schedulerName": "default-scheduler"})
ELSEWHERE_WITH_POLICY = job().worker(2, pod={"schedulerName": "my-scheduler"}).spec(schedulingPolicy={})
SCATTERED = job().ps(1, pod={"schedulerName": "one"}).worker(1, pod={"schedulerName": "other"})


def chosen(of, scheduling="", ready=(), **apis):
    return choose(of.build(), Scheduling(scheduling), GangApis(frozenset(ready), **apis))


CHOSEN = {
    "a plain job is no gang": (PLAIN, "", [VOLCANO, BETA], None),
    "the documents' job is Volcano's": (DOCUMENTED, "", [VOLCANO, BETA], VOLCANO),
    "the documents' job is Volcano's with any flag": (
        DOCUMENTED,
        "native",
        [VOLCANO, BETA],
        VOLCANO,
    ),
    "the flag makes plain jobs Volcano's": (PLAIN, "volcano", [VOLCANO], VOLCANO),
    "the flag respects another scheduler": (ELSEWHERE, "volcano", [VOLCANO], None),
    "a policy is Volcano's where there is Volcano": (WITH_POLICY, "", [VOLCANO, BETA], VOLCANO),
    "a policy is Kubernetes' own where there is no Volcano": (WITH_POLICY, "", [ALPHA], ALPHA),
    "a policy follows the flag where there are both": (WITH_POLICY, "native", [VOLCANO, BETA], BETA),
    "a policy takes Volcano where the flag's is missing": (WITH_POLICY, "native", [VOLCANO], VOLCANO),
    "a policy with another scheduler is Kubernetes' own": (ELSEWHERE_WITH_POLICY, "", [VOLCANO, BETA], BETA),
    "native prefers the newer version": (PLAIN, "native", [ALPHA, BETA], BETA),
    "native takes the older version": (PLAIN, "native", [ALPHA], ALPHA),
    "native takes any one scheduler": (ELSEWHERE, "native", [BETA], BETA),
    "native leaves jobs of several schedulers alone": (SCATTERED, "native", [BETA], None),
    "auto prefers Volcano": (PLAIN, "auto", [VOLCANO, BETA], VOLCANO),
    "auto takes Kubernetes' own": (PLAIN, "auto", [BETA], BETA),
    "auto takes Kubernetes' own for another scheduler": (ELSEWHERE, "auto", [VOLCANO, BETA], BETA),
    "auto does without": (PLAIN, "auto", [], None),
}


@pytest.mark.parametrize(("of", "scheduling", "ready", "kind"), CHOSEN.values(), ids=CHOSEN)
def test_choice(of, scheduling, ready, kind):
    choice = chosen(of, scheduling, ready)
    assert (choice.kind, choice.obstacle) == (kind, "")


OBSTACLES = {
    "the documents' job without Volcano": (
        DOCUMENTED,
        "",
        {},
        r"does not serve Volcano .*remove scheduler",
    ),
    "the flag without Volcano": (
        PLAIN,
        "volcano",
        {},
        r"install it, or start .*--scheduling=volcano",
    ),
    "native without Kubernetes' own": (PLAIN, "native", {}, r"does not serve PodGroups of Kubernetes itself"),
    "a policy without anything": (WITH_POLICY, "", {}, r"neither Volcano .* nor PodGroups .*install Volcano"),
    "a policy with a scheduler that has no gangs": (
        ELSEWHERE_WITH_POLICY,
        "",
        {"ready": [VOLCANO]},
        r"worker names scheduler my-scheduler, which schedules no gangs here; remove schedulerName",
    ),
    "roles that disagree": (
        job().ps(1, pod={"schedulerName": "mine"}).worker(1, pod={"schedulerName": "volcano"}),
        "",
        {"ready": [VOLCANO]},
        r"one scheduler, but ps names mine, worker names volcano; name volcano on the worker only",
    ),
    "Volcano is being looked for": (DOCUMENTED, "", {"loading": frozenset([VOLCANO])}, "checking whether"),
    "nothing is chosen while something better may turn up": (
        PLAIN,
        "auto",
        {"ready": [BETA], "loading": frozenset([VOLCANO])},
        "checking whether the cluster serves Volcano",
    ),
    "Volcano cannot be read": (
        DOCUMENTED,
        "",
        {"trouble": {VOLCANO: "cannot list podgroups: forbidden"}},
        "^cannot list podgroups: forbidden$",
    ),
}


@pytest.mark.parametrize(("of", "scheduling", "apis", "says"), OBSTACLES.values(), ids=OBSTACLES)
def test_obstacle(of, scheduling, apis, says):
    choice = chosen(of, scheduling, **apis)
    assert choice.system is None
    assert re.search(says, choice.obstacle)


MAKERS = {
    "the documents' job brings its own": (DOCUMENTED, "", False),
    "with the flag the operator makes it": (DOCUMENTED, "volcano", True),
    "with auto the operator makes it": (DOCUMENTED, "auto", True),
    "a policy lets the operator make it": (
        job().worker(2, pod={"schedulerName": "volcano"}).spec(schedulingPolicy={}),
        "",
        True,
    ),
    "a job of the flag has none of its own": (PLAIN, "volcano", True),
}


@pytest.mark.parametrize(("of", "scheduling", "by_operator"), MAKERS.values(), ids=MAKERS)
def test_who_makes_the_group(of, scheduling, by_operator):
    assert chosen(of, scheduling, [VOLCANO]).may_create is by_operator


RELEVANT = {
    "a plain job needs to know nothing": (PLAIN, "", ()),
    "the documents' job needs to know of Volcano": (DOCUMENTED, "", (GangSystem.VOLCANO,)),
    "a label is about Kueue": (
        job().worker(1).metadata(labels={"kueue.x-k8s.io/queue-name": "team"}),
        "volcano",
        (GangSystem.KUEUE,),
    ),
    "the flag is about Volcano": (PLAIN, "volcano", (GangSystem.VOLCANO,)),
    "native is about Kubernetes": (PLAIN, "native", (GangSystem.NATIVE,)),
    "auto is about every scheduler": (PLAIN, "auto", (GangSystem.VOLCANO, GangSystem.NATIVE)),
    "a policy is about every scheduler": (WITH_POLICY, "", (GangSystem.VOLCANO, GangSystem.NATIVE)),
}


@pytest.mark.parametrize(("of", "scheduling", "systems"), RELEVANT.values(), ids=RELEVANT)
def test_what_must_be_known(of, scheduling, systems):
    assert relevant_systems(of.build(), Scheduling(scheduling)) == systems
