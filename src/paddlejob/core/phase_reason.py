"""Where a job stands, in a form that goes into its status as it is."""

from __future__ import annotations

import msgspec

from paddlejob.api.v1 import Failure, Phase
from paddlejob.core.one_line import one_line


class PhaseReason(msgspec.Struct, frozen=True):
    """A phase, the reason for it, and the reason in words, on one line."""

    phase: Phase
    reason: str
    message: str

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "message", one_line(self.message))


class Verdict(msgspec.Struct, frozen=True):
    """How a job ends, and the failure that ends it, if one does."""

    phase_reason: PhaseReason
    failure: Failure | None = None
