"""Where a job stands, in a form that goes into its status as it is."""

from __future__ import annotations

import msgspec

from paddlejob.api.v1 import Phase


class Standing(msgspec.Struct, frozen=True):
    """A phase, the reason for it, and the reason in words."""

    phase: Phase
    reason: str
    message: str
