"""The status of a job's training: progress, use of time, and the last recovery."""

from __future__ import annotations

import enum
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


RECOVERY_PARTS = ("detect", "decide", "stop", "place", "start", "import", "join", "load", "repeat")


class RecoveryKind(enum.StrEnum):
    """What a restart did with the pods of the job."""

    IN_PLACE = "InPlace"
    """All pods stayed, and their programs restarted."""
    MIXED = "Mixed"
    """Some pods were replaced; the programs of the others restarted."""
    RECREATE = "Recreate"
    """All pods were created again."""


class Recovery(View, frozen=True):
    """The time from a failure to the next new step, in parts. Parts that were not measured are absent."""

    attempt: Annotated[int, about("Attempt that the recovery began.")]
    kind: Annotated[
        str,
        about(
            "InPlace: all pods stayed. Mixed: some pods were replaced. Recreate: all pods were created again."
        ),
    ]
    detect_seconds: Annotated[
        float | None,
        about(
            "From the failure until the operator knew of it. A failure begins with the end of the program, "
            "the last step before a hang, or the first sign in the state of the pod."
        ),
    ] = None
    decide_seconds: Annotated[float | None, about("Until the new attempt was on record.")] = None
    stop_seconds: Annotated[
        float | None, about("Until no program or pod of an earlier attempt was left.")
    ] = None
    place_seconds: Annotated[
        float | None,
        about("Until all pods had an address: the delay of restartPolicy, creation and scheduling of pods."),
    ] = None
    start_seconds: Annotated[
        float | None, about("Until the program of worker 0 began: image, container, Paddle's launcher.")
    ] = None
    import_seconds: Annotated[float | None, about("Until it had imported Paddle.")] = None
    join_seconds: Annotated[
        float | None, about("Until it had met the other ranks: init_parallel_env, fleet.init or init_worker.")
    ] = None
    load_seconds: Annotated[
        float | None, about("Until its first step was made: model, checkpoint, data and the step itself.")
    ] = None
    repeat_seconds: Annotated[
        float | None, about("Until the first step that no earlier attempt had made: steps done again.")
    ] = None
    total_seconds: Annotated[float | None, about("From the failure to the first new step.")] = None

    def parts(self) -> dict[str, float]:
        """Return the measured parts by name, in order."""
        found = {part: getattr(self, f"{part}_seconds") for part in RECOVERY_PARTS}
        return {part: seconds for part, seconds in found.items() if seconds is not None}
