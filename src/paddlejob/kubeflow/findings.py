"""What a person should know about a converted job."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import msgspec

from paddlejob.api.meta import JsonObject


class Level(enum.StrEnum):
    """How a field came over."""

    LOST = "lost"
    """It has no counterpart here."""
    CHANGED = "changed"
    """It is something else here, or works in another way."""
    NOTE = "note"
    """It came over, and something is to be known about it."""


class Finding(msgspec.Struct, frozen=True):
    """One field that did not come over as it was."""

    level: Level
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.field}: {self.text}"


class Reader:
    """An object whose fields are taken one by one; what nobody has taken is lost, and is said to be."""

    def __init__(self, fields: Any, path: str, findings: list[Finding]) -> None:
        self._left: JsonObject = dict(fields) if isinstance(fields, dict) else {}
        self.path = path
        self.findings = findings

    def take(self, field: str) -> Any:
        """Return the value of a field, None where it is absent or null."""
        return self._left.pop(field, None)

    def inside(self, field: str) -> Reader:
        """Return the object in a field, empty where it is absent."""
        return Reader(self.take(field), f"{self.path}.{field}", self.findings)

    def say(self, level: Level, field: str, text: str) -> None:
        """Record something about a field."""
        self.findings.append(Finding(level, f"{self.path}.{field}", text))

    def finish(self) -> None:
        """Say what was not taken."""
        for field, value in self._left.items():
            if value is not None:
                self.say(Level.LOST, field, "unknown field of kubeflow.org/v1, left out")


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a tree of objects and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)
