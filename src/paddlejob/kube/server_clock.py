"""How far the API server's clock is from ours, from the `Date` header of its responses.

A `Date` has whole seconds and is written somewhere between sending a request and receiving its response, so
one response bounds the offset from both sides, and several responses narrow it down. Nothing is averaged: one
slow response only gives wide bounds.
"""

from __future__ import annotations

import math
from datetime import datetime
from email.utils import parsedate_to_datetime

_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """Keeps bounds on the offset; costs one string comparison a response, and a parse a second."""

    def __init__(self) -> None:
        self._low, self._high = -math.inf, math.inf
        self._date = ""
        self._server_time = 0.0

    @property
    def offset_seconds(self) -> float:
        """Seconds to add to our time to get the server's: 0.0 until known, or if the clocks may agree."""
        return min(max(0.0, self._low), self._high)

    def observe(self, date: str, sent: datetime, received: datetime) -> None:
        """Take the `Date` header of a response, and when its exchange began and ended by our clock."""
        if date != self._date:
            try:
                self._server_time = parsedate_to_datetime(date).timestamp()
            except ValueError:
                return
            self._date = date
        low = self._server_time - received.timestamp()
        high = self._server_time + _RESOLUTION_SECONDS - sent.timestamp()
        if high < low:
            # Our own clock was set back meanwhile.
            return
        if low > self._high or high < self._low:
            # One of the clocks was set, or has drifted: what was known before is no longer true.
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low), min(high, self._high)
