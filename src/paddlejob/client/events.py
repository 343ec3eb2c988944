"""Events as the API server has them, and as people read them."""

from __future__ import annotations

from datetime import datetime

from paddlejob.api.meta import ObjectMeta, View
from paddlejob.client.job import JobEvent


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
        """When it last happened."""
        return self.last_timestamp or self.event_time or self.metadata.creation_timestamp

    @property
    def event(self) -> JobEvent:
        """The event as people read it."""
        about = f"{self.involved_object.kind}/{self.involved_object.name}"
        return JobEvent(self.type, self.reason, self.message, about, self.time, self.count or 1)
