"""Training errors with a name: Paddle's recall errors, losses that are not finite, and lost peers."""

from __future__ import annotations

import re

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.pod import Pod
from paddlejob.api.v1 import PaddleJobStatus


class KnownError(msgspec.Struct, frozen=True):
    """A named error and its treatment, unless the job's own rules cover the exit code."""

    reason: str
    is_final: bool = False
    """The same data would cause the error again, so the job ends; otherwise a counted restart follows."""
    blames_node: bool = False
    """The node may compute wrongly: the next attempt prefers other nodes."""


LOSS_NAN = KnownError(Reason.LOSS_NAN, is_final=True)
LOSS_INF = KnownError(Reason.LOSS_INF, is_final=True)
PEER_LOST = KnownError(Reason.PEER_LOST)
"""A consequence of the end of another rank, with any exit code."""

RECALL_ERRORS = {
    "101": KnownError(Reason.AA_DIFF, blames_node=True),
    "102": LOSS_NAN,
    "103": KnownError(Reason.SHARDING_PAD_NON_ZERO, blames_node=True),
    "104": LOSS_INF,
    "105": KnownError(Reason.DOWNLOAD_FAILED),
    "107": KnownError(Reason.CHECKPOINT_FAILED),
}
"""Errors by the number in `PaddleRecall error(102): LossNan`. 106 is only a warning."""

_NUMBERS = "|".join(RECALL_ERRORS)
_ERROR = re.compile(
    rf"PaddleRecall error\(({_NUMBERS})\)|There are NAN or INF(?: \(num_nan=(\d+), num_inf=(\d+))?"
)
"""The second alternative is printed with `FLAGS_check_nan_inf`."""
_PEER_LOST = re.compile(
    r"gloo/transport/\w+/\w+\.cc:\d+\] .*(?:by peer|Broken pipe)"
    r"|TCP (?:send|receive) error\. Details: |ncclRemoteError"
)
"""Errors of gloo, of Paddle's TCPStore, and of NCCL."""
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception): .*", re.MULTILINE)
_NEXT_PROGRAM = re.compile(r"paddlejob: attempt \d+ starts in place\n")
"""The supervisor writes it when it restarts a program in place."""
_LOSSES = {"nan": LOSS_NAN, "inf": LOSS_INF, "-inf": LOSS_INF}


def last_output(text: str) -> str:
    """Return the output of the last program in the end of a log, which all programs of a container share."""
    return _NEXT_PROGRAM.split(text)[-1]


def from_termination_message(text: str) -> KnownError | None:
    """Return the last known error in a termination message, or that a peer was lost."""
    found, output = None, last_output(text)
    for found in _ERROR.finditer(output):  # noqa: B007  (the last one)
        pass
    if found is None:
        return PEER_LOST if _has_lost_peer(output) else None
    if found[1]:
        return RECALL_ERRORS[found[1]]
    return LOSS_INF if found[2] and not int(found[2]) and int(found[3]) else LOSS_NAN


def _has_lost_peer(output: str) -> bool:
    """Return whether a lost peer is the only error in the output of all ranks of a pod."""
    others = (line for line in _EXCEPTION.findall(output) if not _PEER_LOST.search(line))
    return _PEER_LOST.search(output) is not None and not any(others)


def has_lost_peer(pod: Pod) -> bool:
    """Return whether a container of a pod has failed because a peer was gone."""
    ends = (each.state.terminated for each in pod.status.container_statuses)
    return any(end and from_termination_message(end.message) is PEER_LOST for end in ends)


def from_loss(status: PaddleJobStatus) -> KnownError | None:
    """Return the error of the newest loss of the current attempt, None if it is finite or unknown."""
    progress = status.progress
    if progress is None or progress.attempt < status.first_process_attempt:
        return None
    return _LOSSES.get(progress.loss)
