"""Which failures restart a job, and how."""

from __future__ import annotations

from typing import Annotated

from paddlejob.api.meta import View, about

MAX_BACKOFF_LIMIT = 1000
_EXIT_CODES = {
    "maxItems": 255,
    "items": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 255},
}


class RestartPolicy(View, frozen=True):
    """Which failures restart the job, and after which delay.

    By default, exit codes from 1 to 127 are permanent, and higher ones are retryable.
    """

    permanent_exit_codes: Annotated[
        tuple[int, ...], about("Exit codes that fail the job immediately.", **_EXIT_CODES)
    ] = ()
    retryable_exit_codes: Annotated[
        tuple[int, ...],
        about("Exit codes that restart the job; the restart counts against backoffLimit.", **_EXIT_CODES),
    ] = ()
    ignored_exit_codes: Annotated[
        tuple[int, ...],
        about(
            "Exit codes that restart the job without counting against backoffLimit. If no list has them, 15, "
            "101 and 143 count only from the sixth consecutive restart on.",
            **_EXIT_CODES,
        ),
    ] = ()
    delay_seconds: Annotated[
        int,
        about(
            "Base of the delay between restarts. The first of several consecutive ones begins immediately, "
            "the second waits twice this time, and each further one twice as long as the one before.",
            minimum=0,
            maximum=3600,
        ),
    ] = 5
    max_delay_seconds: Annotated[int, about("Longest delay before a restart.", minimum=0, maximum=86400)] = (
        300
    )
    node_lost_seconds: Annotated[
        int,
        about("How long a node may be unreachable before its pods are replaced.", minimum=10, maximum=86400),
    ] = 120
    no_progress_limit: Annotated[
        int | None,
        about(
            "Fails the job after this many consecutive restarts without a new step. If steps are known "
            "(status.progress), it replaces backoffLimit, and every new step resets the count. "
            "Default: only backoffLimit applies.",
            minimum=1,
            maximum=MAX_BACKOFF_LIMIT,
        ),
    ] = None
    in_place: Annotated[
        bool,
        about(
            "Restarts the programs of a job with the recorder in their pods after a failure, instead of "
            "creating all pods again. Pods that cannot stay are replaced."
        ),
    ] = True
    parked: Annotated[
        bool,
        about(
            "Keeps a process with Paddle imported in each pod, which becomes the program at the next restart "
            "in place. Costs at least 150 MB of memory per pod. Has no effect with Paddle's launcher."
        ),
    ] = False
