"""Errors of `paddlejob start` and `paddlejob data`, with exit codes that tell a Job whether to retry.

PlainJobError                 1   the message is one sentence, for the log of the pod
├── SettingsError          78   a variable, flag or file is wrong: a retry cannot help
├── DataError              66   the training data cannot be read, or is not what its manifest says
├── SpaceError             73   the storage is full
├── PeersMissingError      69   the other pods did not join in time
└── PeerFailedError        75   another pod failed: this one may simply be restarted

The numbers are those of sysexits.h, so that `podFailurePolicy` can tell them apart.
"""

from __future__ import annotations


class PlainJobError(Exception):
    """Base of everything that this package raises."""

    exit_code = 1


class SettingsError(PlainJobError):
    """A variable, flag or file is wrong; the message names it and says what to do."""

    exit_code = 78


class DataError(PlainJobError):
    """Training data that cannot be read, split or trusted."""

    exit_code = 66


class SpaceError(PlainJobError):
    """The storage is full, or would be."""

    exit_code = 73


class PeersMissingError(PlainJobError):
    """The Job's pods were not all running before the deadline."""

    exit_code = 69


class PeerFailedError(PlainJobError):
    """Another pod of the Job failed or was lost, and training cannot continue without it."""

    exit_code = 75

    def __init__(self, message: str, trainer: int) -> None:
        super().__init__(message)
        self.trainer = trainer
        """The one that failed first."""
