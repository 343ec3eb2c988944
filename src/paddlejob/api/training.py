"""What a job's status says about its training: how far it is, and where the time went."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from paddlejob.api.meta import View, about


class TrainingProgress(View, frozen=True):
    """Progress of training, as reported by the recorder of worker 0 or read from its log."""

    step: Annotated[
        int,
        about(
            "Furthest step of all attempts, within the epoch if epochs are counted. An attempt that is still "
            "behind it has attemptStep."
        ),
    ] = 0
    steps: Annotated[int, about("Total steps, or steps per epoch if epochs are counted; 0 if unknown.")] = 0
    epoch: Annotated[int, about("Current epoch; 0 if unknown.")] = 0
    epochs: Annotated[int, about("Total epochs; 0 if unknown.")] = 0
    percent: Annotated[int | None, about("Percentage of the work that is done, if known.")] = None
    loss: Annotated[str, about("Latest loss; may be nan or inf.")] = ""
    throughput: Annotated[str, about("Throughput with its unit, such as 123.4 samples/s.")] = ""
    eta: Annotated[str, about("Estimated time remaining as of the last update, such as 1h20m.")] = ""
    phase: Annotated[
        str, about("What worker 0 is doing: training, evaluating or saving; empty if unknown.")
    ] = ""
    attempt: Annotated[int, about("Attempt that these values belong to.")] = 0
    attempt_step: Annotated[
        int, about("Step of the current attempt, over all epochs, while it repeats steps of an earlier one.")
    ] = 0
    resumed_step: Annotated[int, about("Step of the checkpoint that the attempt resumed from.")] = 0
    saved_step: Annotated[int, about("Step of the last checkpoint; 0 if none or unknown.")] = 0
    lost_steps: Annotated[int, about("Steps lost to restarts, over all attempts.")] = 0
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
        int, about("Time in Running without a step, from the last one on, once the job is known to hang.")
    ] = 0
    suspended_seconds: Annotated[int, about("Time in Suspended.")] = 0
    stalled: Annotated[bool, about("Whether the job hangs, so that the time since `updated` is stalled.")] = (
        False
    )
    updated: Annotated[
        datetime | None,
        about("Time up to which this is counted; the time since then belongs to the current phase."),
    ] = None


class ProgressMark(View, frozen=True, omit_defaults=False):
    """The furthest step of a job."""

    epoch: Annotated[int, about("Epoch; 0 if unknown.")] = 0
    step: Annotated[int, about("Step, within the epoch if epochs are counted.")] = 0
