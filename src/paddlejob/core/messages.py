"""The phase of a job with its reason and message, and the verdict that ends a job."""

from __future__ import annotations

import msgspec

from paddlejob.api.v1 import Failure, Phase
from paddlejob.text import one_line


class PhaseReason(msgspec.Struct, frozen=True):
    """A phase, its reason, and a message of one line."""

    phase: Phase
    reason: str
    message: str
    hang: str = ""
    """The part of the message that describes a hang."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", one_line(self.message))


class Verdict(msgspec.Struct, frozen=True):
    """How a job ends, and the failure that ends it, if any."""

    phase_reason: PhaseReason
    failure: Failure | None = None
