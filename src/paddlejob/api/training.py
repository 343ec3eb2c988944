"""The status of a job's training: progress and use of time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from paddlejob.api.meta import View, about


def _count(description: str) -> msgspec.Meta:
    """Return the description of a number that programs print; it may be larger than 32 bits.

    Since Kubernetes 1.37 the API server refuses larger numbers in a field with the format int32.
    """
    return about(description, format="int64")


class TrainingProgress(View, frozen=True):
    """Progress of training, as reported by the recorder of worker 0 or read from its log."""

    step: Annotated[
        int,
        _count(
            "Furthest step of all attempts, counted over all epochs. An attempt that is still behind it has "
            "attemptStep."
        ),
    ] = 0
    steps: Annotated[int, _count("Total steps of all epochs; 0 if unknown.")] = 0
    epoch: Annotated[int, _count("Current epoch, as the program numbers it; 0 if unknown.")] = 0
    epochs: Annotated[int, _count("Total epochs; 0 if unknown.")] = 0
    epoch_step: Annotated[
        int, _count("Step within the epoch, if the program counts the steps of each epoch.")
    ] = 0
    percent: Annotated[
        int | None,
        about("Rounded percentage of the work that is done, if its total is known; 100 only if completed."),
    ] = None
    loss: Annotated[str, about("Latest loss; may be nan or inf.")] = ""
    throughput: Annotated[str, about("Throughput with its unit, such as 123.4 samples/s.")] = ""
    eta: Annotated[
        str,
        about(
            "Estimated time remaining as of the last update, such as 1h20m; empty if unknown, if progress is "
            "overdue, and after the end of the job."
        ),
    ] = ""
    phase: Annotated[
        str, about("What worker 0 is doing: training, evaluating or saving; empty if unknown.")
    ] = ""
    attempt: Annotated[int, about("Attempt that these values belong to.")] = 0
    attempt_step: Annotated[
        int, _count("Step of the current attempt, over all epochs, while it repeats steps of an earlier one.")
    ] = 0
    resumed_step: Annotated[int, _count("Step of the checkpoint that the attempt resumed from.")] = 0
    saved_step: Annotated[int, _count("Step of the last checkpoint; 0 if none or unknown.")] = 0
    lost_steps: Annotated[int, _count("Steps lost to restarts, over all attempts.")] = 0
    processes: Annotated[
        int, about("Processes of Paddle's launcher in each worker pod, if the recorder reports several.")
    ] = 0
    updated: Annotated[datetime | None, about("Time of the last update.")] = None


class Goodput(View, frozen=True, omit_defaults=False):
    """How a job spent its time: the parts sum to the time from its creation to `updated`."""

    queued_seconds: Annotated[int, about("Time in Pending: waiting to be scheduled.")] = 0
    starting_seconds: Annotated[int, about("Time in Starting, including restarts and scaling.")] = 0
    training_seconds: Annotated[int, about("Time in Running that made new steps.")] = 0
    repeating_seconds: Annotated[
        int, about("Time in Running that repeated steps of an earlier attempt: lost to restarts.")
    ] = 0
    stalled_seconds: Annotated[
        int, about("Time in Running without a step while the job hangs, counted from its last step.")
    ] = 0
    suspended_seconds: Annotated[int, about("Time in Suspended.")] = 0
    stalled: Annotated[
        bool, about("Whether the job hangs; if so, the time since `updated` counts as stalled.")
    ] = False
    updated: Annotated[
        datetime | None,
        about("Time up to which this is counted; the time since then belongs to the current phase."),
    ] = None


class ProgressMark(View, frozen=True, omit_defaults=False):
    """The furthest step of a job."""

    epoch: Annotated[int, _count("Epoch; 0 if unknown.")] = 0
    step: Annotated[int, _count("Step, counted over all epochs.")] = 0
