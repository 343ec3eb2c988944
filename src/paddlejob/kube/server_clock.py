"""Estimates the API server's clock from the `Date` header of its responses.

The server writes a `Date`, in whole seconds, between our request and its response. So each response bounds
the server's time from both sides, and several responses narrow the bounds. Slow responses only give wide
bounds; nothing is averaged. The bounds are relative to the event loop's monotonic clock, so neither a wrong
local date nor a change of it matters.
"""

from __future__ import annotations

import math
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from email.utils import parsedate_to_datetime

_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """Bounds the offset of the server's clock; costs one string comparison per response."""

    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._date = ""
        self._server_time = 0.0

    def now(self, seconds: float) -> datetime | None:
        """Return the server's time at a monotonic time, to within about a second; None if unknown."""
        if not math.isfinite(self._low):
            return None
        return datetime.fromtimestamp(seconds + (self._low + self._high) / 2, UTC)

    def observe(self, date: str, sent: float, received: float) -> None:
        """Add the `Date` of a response, with the monotonic times of the request and the response."""
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
            # The server's clock was set or has drifted, so the old bounds are invalid.
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low), min(high, self._high)
