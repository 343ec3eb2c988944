"""What the end-to-end tests measure, for the table at the end of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Report:
    """Measurements in the order in which they were made."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []

    def note(self, what: str, value: str) -> None:
        self._rows.append((what, value))

    def seconds(self, what: str, value: float, *, target: float | None = None) -> None:
        goal = "" if target is None else f"   (target {target:g} s)"
        self.note(what, f"{value:6.1f} s{goal}")

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds(what, time.monotonic() - started)

    def lines(self) -> list[str]:
        width = max((len(what) for what, _ in self._rows), default=0)
        return [f"{what:<{width}}  {value}" for what, value in self._rows]


REPORT = Report()
