"""What a job's status says about its training: how far it is, and where the time went."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from paddlejob.api.meta import View, about


class TrainingProgress(View, frozen=True):
    """How far training is, as the recorder of worker 0 reports it or worker 0 prints it."""

    step: Annotated[
        int,
        about(
            "Furthest step of all attempts, in the epoch where epochs are counted; attemptStep where the "
            "attempt is behind it."
        ),
    ] = 0
    steps: Annotated[int, about("Steps in all, or of an epoch where epochs are counted; 0: unknown.")] = 0
    epoch: Annotated[int, about("Epoch that training is in; 0: unknown.")] = 0
    epochs: Annotated[int, about("Epochs in all; 0: unknown.")] = 0
    percent: Annotated[int | None, about("Part of the work that is done, if that is known.")] = None
    loss: Annotated[str, about("Newest loss; also nan and inf.")] = ""
    throughput: Annotated[str, about("Speed with its unit, such as 123.4 samples/s.")] = ""
    eta: Annotated[str, about("Time to the end as of the last update, such as 1h20m.")] = ""
    phase: Annotated[str, about("What worker 0 does: training, evaluating or saving; empty: unknown.")] = ""
    attempt: Annotated[int, about("Attempt that this is about.")] = 0
    attempt_step: Annotated[
        int, about("Step that the attempt is at, over all epochs, while it repeats those of an earlier one.")
    ] = 0
    resumed_step: Annotated[int, about("Step of the checkpoint that the attempt began with.")] = 0
    saved_step: Annotated[int, about("Step of the last checkpoint; 0: none, or unknown.")] = 0
    lost_steps: Annotated[int, about("Steps that restarts have thrown away, of all attempts.")] = 0
    updated: Annotated[datetime | None, about("When this was last written.")] = None


class Goodput(View, frozen=True, omit_defaults=False):
    """Where the time of a job went: the parts sum to the time from its creation to `updated`."""

    queued_seconds: Annotated[int, about("Pending: waiting for a place in the cluster.")] = 0
    starting_seconds: Annotated[int, about("Starting, also again after failures and changes of size.")] = 0
    training_seconds: Annotated[int, about("Running, as far as steps are new.")] = 0
    repeating_seconds: Annotated[
        int, about("Running, until an attempt got further than those before it: time lost to restarts.")
    ] = 0
    suspended_seconds: Annotated[int, about("Suspended.")] = 0
    updated: Annotated[
        datetime | None, about("Up to when this is counted; the time since then is of the present phase.")
    ] = None


class ProgressMark(View, frozen=True, omit_defaults=False):
    """The furthest step of a job."""

    epoch: Annotated[int, about("Epoch; 0: unknown.")] = 0
    step: Annotated[int, about("Step, in the epoch where epochs are counted.")] = 0
