"""How the program came to its first step: when it began, had imported Paddle and had met the other ranks."""

from __future__ import annotations

import time
from typing import Any, Callable


class Startup:
    """Moments of this process; a parked process begins when it gets its turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._imported: float | None = None
        self._joined: float | None = None
        self._stepped: float | None = None

    def note_import(self) -> None:
        """Note that Paddle has been imported."""
        self._imported = self._clock()

    def note_join(self) -> None:
        """Note that the ranks have met; the last time before the first step counts."""
        if self._stepped is None:
            self._joined = self._clock()

    def note_step(self) -> None:
        """Note a step; only the first one counts."""
        if self._stepped is None:
            self._stepped = self._clock()

    def report(self) -> dict[str, Any]:
        """Return the age of the process and the parts of the time up to its first step, once it is made."""
        if self._stepped is None:
            return {}
        moments = {"import": self._imported, "join": self._joined, "load": self._stepped}
        parts, last = {"ageSeconds": round(self._clock() - self._began, 3)}, self._began
        for name, moment in moments.items():
            if moment is not None:
                # Rounded down: the parts must not be longer than the whole.
                parts[name + "Seconds"] = int((moment - last) * 1000) / 1000
                last = moment
        return {"startup": parts}
