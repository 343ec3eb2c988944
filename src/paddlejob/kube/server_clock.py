"""The API server's clock, from the `Date` header of its responses.

A `Date` has whole seconds and is written somewhere between sending a request and receiving its response, so
one response bounds the server's time from both sides, and several responses narrow it down. Nothing is
averaged: one slow response only gives wide bounds. The bounds are kept against the event loop's monotonic
clock, so it does not matter whether this machine's own date is right, or is set meanwhile.
"""

from __future__ import annotations

import math
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from email.utils import parsedate_to_datetime

_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """Keeps bounds on the difference; costs one string comparison a response, and a parse a second."""

    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._date = ""
        self._server_time = 0.0

    def now(self, seconds: float) -> datetime | None:
        """Return the server's time, to about a second, at a time of our monotonic clock; None until known."""
        if not math.isfinite(self._low):
            return None
        return datetime.fromtimestamp(seconds + (self._low + self._high) / 2, UTC)

    def observe(self, date: str, sent: float, received: float) -> None:
        """Take the `Date` of a response, and when its exchange began and ended by our monotonic clock."""
        if date != self._date:
            try:
                moment = parsedate_to_datetime(date)
            except ValueError:
                return
            if not MINYEAR < moment.year < MAXYEAR:
                return
            self._server_time, self._date = moment.timestamp(), date
        low = self._server_time - received
        high = self._server_time + _RESOLUTION_SECONDS - sent
        if low > self._high or high < self._low:
            # The server's clock was set, or has drifted: what was known before is no longer true.
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low), min(high, self._high)
