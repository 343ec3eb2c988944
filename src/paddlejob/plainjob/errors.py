"""Errors of `paddlejob start` and `paddlejob data`, with exit codes for the Job's `podFailurePolicy`.

PlainJobError                 1   the message is one sentence in the log of the pod
├── SettingsError          78   a variable, flag or file is wrong; a retry cannot help
├── DataError              66   the training data cannot be read or differs from its manifest
├── SpaceError             73   the storage is full
├── PeersMissingError      69   the other pods did not join in time
└── PeerFailedError        75   another pod failed; this one can be restarted

The numbers are from sysexits.h.
"""

from __future__ import annotations


class PlainJobError(Exception):
    """Base of everything that this package raises."""

    exit_code = 1


class SettingsError(PlainJobError):
    """A variable, flag or file is wrong. The message names it and a way out."""

    exit_code = 78


class DataError(PlainJobError):
    """Training data cannot be read or split, or is damaged."""

    exit_code = 66


class SpaceError(PlainJobError):
    """The storage is full, or too small for the split."""

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
        """The trainer that failed first."""
