"""What ends a step of the recipe, with the exit code that tells a Job whether to try again.

RecipeError                 1   the message is one sentence for the person who reads the pod's log
├── SettingsError          78   a variable, flag or file is wrong: trying again cannot help
├── DataError              66   the training data cannot be read, or is not what its manifest says
├── SpaceError             73   the storage is full
├── PeersMissingError      69   the other pods did not come in time
└── PeerFailedError        75   another pod failed: this one is innocent and may simply be started again

The numbers are those of sysexits.h, so that `podFailurePolicy` can tell them apart.
"""

from __future__ import annotations


class RecipeError(Exception):
    """Base of everything that this package raises."""

    exit_code = 1


class SettingsError(RecipeError):
    """A variable, flag or file is wrong; the message names it and the way out."""

    exit_code = 78


class DataError(RecipeError):
    """Training data that cannot be read, split or trusted."""

    exit_code = 66


class SpaceError(RecipeError):
    """The storage is full, or would be."""

    exit_code = 73


class PeersMissingError(RecipeError):
    """The Job's pods were not all running before the deadline."""

    exit_code = 69


class PeerFailedError(RecipeError):
    """Another pod of the Job failed or vanished, and training cannot go on without it."""

    exit_code = 75

    def __init__(self, message: str, trainer: int) -> None:
        super().__init__(message)
        self.trainer = trainer
        """The one that failed first."""
