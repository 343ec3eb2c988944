"""Back-off after consecutive failures, and which failed requests may be retried."""

from __future__ import annotations

import random

import msgspec

from paddlejob.kube import errors

_MAX_DOUBLINGS = 60


class Backoff(msgspec.Struct, frozen=True):
    """Delays that double with every failure."""

    first_seconds: float = 0.1
    max_seconds: float = 120.0

    def base_seconds(self, failures: int) -> float:
        """Return the delay after a number of consecutive failures, without jitter."""
        return min(self.max_seconds, self.first_seconds * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))

    def delay_seconds(self, failures: int, rng: random.Random) -> float:
        """Return the delay with up to 25 % of jitter."""
        return self.base_seconds(failures) * rng.uniform(1.0, 1.25)


class RetryPolicy(msgspec.Struct, frozen=True):
    """Bounds for retries inside the client."""

    max_tries: int = 5
    max_total_seconds: float = 30.0
    """No try starts later than this after the first."""
    first_delay_seconds: float = 0.2
    max_delay_seconds: float = 10.0
    """Bounds our own backoff; a Retry-After is honoured in full or not at all."""

    def delay_seconds(
        self,
        error: errors.KubeError,
        *,
        reading: bool,
        tries: int,
        elapsed_seconds: float,
        rng: random.Random,
    ) -> float | None:
        """Return the delay before the next try, or None if the client must not retry.

        Guarantees that a write is retried only if the server rejected it without processing it.
        """
        if tries >= self.max_tries or not is_safe_to_repeat(error, reading=reading):
            return None
        asked = error.retry_after_seconds if isinstance(error, errors.ApiError) else None
        backoff = Backoff(self.first_delay_seconds, self.max_delay_seconds)
        least = backoff.base_seconds(tries) if asked is None else asked
        # Never earlier than the server asked for; the jitter spreads the clients.
        delay = least + rng.uniform(0, max(least, self.first_delay_seconds) / 2)
        return delay if elapsed_seconds + delay <= self.max_total_seconds else None


def is_safe_to_repeat(error: errors.KubeError, *, reading: bool) -> bool:
    """Return whether repeating a request that failed with this error cannot apply a write twice."""
    match error:
        case errors.CredentialsError() | errors.ResponseTooLargeError():
            return False
        case errors.TransportError():
            return reading
        case errors.TooManyRequestsError():
            return True
        case errors.ServerError(code=503):
            # Without a Retry-After, a proxy may have sent it after the write took effect.
            return reading or error.retry_after_seconds is not None
        case _:
            return False
