"""The goals of `Job.wait`: `completed`, `running`, `condition=Restarting`, `deleted`, ..."""

from __future__ import annotations

from collections.abc import Callable

from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.client.errors import ClientError

ENDED = "ended"
DELETED = "deleted"
Goal = Callable[[PaddleJob], bool]

_PHASES = {str(phase).lower(): phase for phase in Phase if phase}


def parse(goal: str) -> Goal:
    """Return the test for a goal, which is `ended`, `deleted`, a phase, or `condition=TYPE[=STATUS]`.

    Raises ClientError.
    """
    if goal == ENDED:
        return lambda job: job.status.phase.is_terminal
    if goal == DELETED:
        return lambda _: False
    if phase := _PHASES.get(goal.lower()):
        return lambda job: job.status.phase is phase
    kind, _, rest = goal.partition("=")
    if kind == "condition" and rest:
        name, _, status = rest.partition("=")
        return lambda job: _holds(job, name.lower(), (status or "true").lower())
    raise ClientError(
        f"cannot wait for {goal!r}; choose {ENDED}, {DELETED}, condition=TYPE or one of {', '.join(_PHASES)}"
    )


def _holds(job: PaddleJob, name: str, status: str) -> bool:
    conditions = job.status.conditions
    return any(each.type.lower() == name and each.status.lower() == status for each in conditions)
