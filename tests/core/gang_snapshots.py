"""Snapshots of jobs that are gangs, and what is in their plans."""

from __future__ import annotations

from datetime import timedelta

from paddlejob.core.actions import Create, Kind
from paddlejob.core.gang.model import Scheduling
from simkube.build import NOW, job, snapshot

VOLCANO, ALPHA, BETA = Kind.POD_GROUP, Kind.POD_GROUP_V1ALPHA2, Kind.POD_GROUP_V1BETA1
CPU = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
PLAIN = job().ps(2, **CPU).worker(2, **CPU)
DOCUMENTED = job().ps(2).worker(2, pod={"schedulerName": "volcano"})


def cluster(of=PLAIN, scheduling="volcano", kind=VOLCANO):
    return snapshot(of).serves(kind).with_settings(scheduling=Scheduling(scheduling))


def created(plan, kind=VOLCANO):
    return [action.manifest for action in actions(plan) if isinstance(action, Create) and action.kind is kind]


def pods(plan):
    return created(plan, Kind.POD)


def actions(plan):
    return [action for stage in plan.stages for action in stage]


def at(seconds):
    """Return a documented job that was created some time ago."""
    moment = NOW - timedelta(seconds=seconds)
    return job().ps(2).worker(2, pod={"schedulerName": "volcano"}).metadata(creationTimestamp=moment)


def spec_of(of):
    return created(cluster(of).plan())[0]["spec"]
