"""The reports that recorders send."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from paddlejob.training.hangs import known_phase

MAX_RANKS = 64
"""Maximum number of ranks in one pod, one for each of its accelerators."""

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
"""Less than 32 years."""


class Startup(msgspec.Struct, frozen=True, rename="camel"):
    """The age of a rank's program, and the parts of the time up to its first step."""

    age_seconds: Seconds
    import_seconds: Seconds | None = None
    """From the beginning of the program until Paddle was imported."""
    join_seconds: Seconds | None = None
    """Until the ranks had met; None if the program did not wait for others."""
    load_seconds: Seconds | None = None
    """Until the first step was made."""

    @property
    def seconds(self) -> float:
        """The sum of the parts."""
        return sum(part or 0.0 for part in (self.import_seconds, self.join_seconds, self.load_seconds))


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a rank as its recorder sends it; unknown fields are ignored."""

    rank: Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)] = 0
    attempt: Count | None = None
    """Attempt of the process, None if the recorder does not know it."""
    phase: str = ""
    step: Count = 0
    total: Count | None = None
    epoch: Count | None = None
    loss: float | Literal["nan", "inf", "-inf"] | None = None
    """A number, or a word for a value that JSON lacks."""
    own_seconds: Seconds = 0.0
    waiting_seconds: Seconds = 0.0
    stage: Annotated[int, msgspec.Meta(ge=0, lt=1 << 20)] = 0
    """Pipeline stage of the rank, 0 without a pipeline."""
    waiting: bool = False
    ended: bool = False
    saved_step: Count | None = None
    resumed: bool = False
    counted: bool = False
    local_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Number of processes in the pod."""
    startup: Startup | None = None
    stacks: Annotated[str, msgspec.Meta(max_length=1 << 15)] = ""


_DECODER = msgspec.json.Decoder(Report)


def read_report(body: bytes, *, pods: int) -> Report:
    """Decode a report, and check the values that the sender chose and that are used as keys.

    `pods` is the number of pods of the job. Raises one of DECODE_ERRORS.
    """
    report = _DECODER.decode(body)
    if report.rank >= pods * MAX_RANKS:
        raise ValueError(f"rank {report.rank}: must be below {pods * MAX_RANKS}")
    return msgspec.structs.replace(report, phase=known_phase(report.phase))
