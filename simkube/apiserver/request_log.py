"""The requests to a simulated API server, for assertions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

WRITE_VERBS = frozenset(["create", "update", "patch", "delete", "deletecollection"])


class WriteRecord(msgspec.Struct, frozen=True):
    """A write request and its result."""

    at_seconds: float
    """The loop's time."""
    identity: str
    verb: str
    resource: str
    """The plural."""
    subresource: str
    namespace: str
    name: str
    code: int
    changed: bool
    """Whether it stored anything; a patch that changes nothing does not."""
    body: bytes = b""

    def decoded(self) -> Any:
        """Return the request's body."""
        return msgspec.json.decode(self.body) if self.body else None


class RequestLog:
    """Counts every request and keeps every write."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """By verb and resource, subresources as pods/status."""
        self.writes: list[WriteRecord] = []
        self.on_write: list[Callable[[WriteRecord], None]] = []
        """Called after each write request, refused ones too."""

    def note(self, verb: str, resource: str, subresource: str) -> None:
        """Count a request."""
        self.requests[verb, f"{resource}/{subresource}" if subresource else resource] += 1

    def add(self, write: WriteRecord) -> None:
        """Keep a write and call the listeners."""
        self.writes.append(write)
        for listener in self.on_write:
            listener(write)

    def select(
        self,
        *,
        identity: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        subresource: str | None = None,
        changed: bool | None = None,
    ) -> Iterator[WriteRecord]:
        """Yield the writes that fit all that is given."""
        wanted = {
            "identity": identity,
            "verb": verb,
            "resource": resource,
            "subresource": subresource,
            "changed": changed,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        for write in self.writes:
            if all(getattr(write, name) == value for name, value in given.items()):
                yield write

    def clear(self) -> None:
        """Forget all requests so far."""
        self.requests.clear()
        self.writes.clear()
