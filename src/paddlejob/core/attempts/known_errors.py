"""Errors of training that have a name: the recall errors of Paddle, and losses that are not finite."""

from __future__ import annotations

import re

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import PaddleJobStatus


class KnownError(msgspec.Struct, frozen=True):
    """A named error, and what is done about it unless the job's own rules say otherwise."""

    reason: str
    is_final: bool = False
    """The same data would give the same error again; otherwise the job is restarted, and that counts."""
    blames_node: bool = False
    """The machine computes wrongly, or may do: the next attempt prefers other nodes."""


LOSS_NAN = KnownError(Reason.LOSS_NAN, is_final=True)
LOSS_INF = KnownError(Reason.LOSS_INF, is_final=True)

RECALL_ERRORS = {
    "101": KnownError(Reason.AA_DIFF, blames_node=True),
    "102": LOSS_NAN,
    "103": KnownError(Reason.SHARDING_PAD_NON_ZERO, blames_node=True),
    "104": LOSS_INF,
    "105": KnownError(Reason.DOWNLOAD_FAILED),
    "107": KnownError(Reason.CHECKPOINT_FAILED),
}
"""By the number in `PaddleRecall error(102): LossNan`. 106 is a warning of Paddle's, and decides nothing."""

_NUMBERS = "|".join(RECALL_ERRORS)
_ERROR = re.compile(
    rf"PaddleRecall error\(({_NUMBERS})\)|There are NAN or INF(?: \(num_nan=(\d+), num_inf=(\d+))?"
)
"""The second is what `FLAGS_check_nan_inf` makes Paddle end with."""
_LOSSES = {"nan": LOSS_NAN, "inf": LOSS_INF, "-inf": LOSS_INF}


def from_last_words(text: str) -> KnownError | None:
    """Return the last error that the end of a log names."""
    found = None
    for found in _ERROR.finditer(text):  # noqa: B007  (the last one)
        pass
    if found is None:
        return None
    if found[1]:
        return RECALL_ERRORS[found[1]]
    return LOSS_INF if found[2] and not int(found[2]) and int(found[3]) else LOSS_NAN


def from_loss(status: PaddleJobStatus) -> KnownError | None:
    """Return what the newest loss of the present attempt tells, None when it is finite or not known."""
    progress = status.progress
    if progress is None or progress.attempt < status.base_attempt:
        return None
    return _LOSSES.get(progress.loss)
