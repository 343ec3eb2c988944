"""Reads the events of a job and its pods."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec.structs import replace

from paddlejob.api import names
from paddlejob.api.meta import LONG_AGO, ObjectMeta, View
from paddlejob.api.v1 import PaddleJob
from paddlejob.client.job import JobEvent
from paddlejob.core.explain import waits_for_addresses
from paddlejob.kube.client import Client
from paddlejob.kube.resource import EVENTS


class _Involved(View, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class EventView(View, frozen=True):
    """An Event of the API server."""

    metadata: ObjectMeta
    involved_object: _Involved = _Involved()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def time(self) -> datetime | None:
        """The time of the last occurrence."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def event(self) -> JobEvent:
        """The event for users."""
        about = f"{self.involved_object.kind}/{self.involved_object.name}"
        return JobEvent(self.type, self.reason, self.message, about, self.time, self.count or 1)


async def job_events(client: Client, namespace: str, job: PaddleJob) -> list[JobEvent]:
    """Return the events of a job and its pods, oldest first. Raises KubeError."""
    own = await _events(client, namespace, f"involvedObject.kind={names.KIND},involvedObject.name={job.name}")
    of_pods = await _events(client, namespace, "involvedObject.kind=Pod")
    roles = "|".join(role for role, _ in job.spec.roles())
    is_pod = re.compile(rf"{re.escape(job.name)}-(?:{roles})-[0-9]+").fullmatch
    found = [each for each in own if each.involved_object.uid in (job.metadata.uid, "")]
    found += [each for each in of_pods if is_pod(each.involved_object.name)]
    return [_readable(each.event, job) for each in sorted(found, key=lambda each: each.time or LONG_AGO)]


def _readable(event: JobEvent, job: PaddleJob) -> JobEvent:
    """Return a warning of the kubelet about missing addresses as a normal event: every job starts so."""
    if event.type != "Warning" or not waits_for_addresses(event.message, job.name):
        return event
    return replace(
        event, type="Normal", reason="Waiting", message="waits for the addresses of the other pods"
    )


async def _events(client: Client, namespace: str, selector: str) -> tuple[EventView, ...]:
    return (await client.list(EVENTS, namespace, field_selector=selector, type=EventView)).items
