"""Whether a job has ended, and why. Failure is judged before success."""

from __future__ import annotations

from datetime import datetime

import msgspec

from paddlejob.api.names import Reason
from paddlejob.api.v1 import Phase, Role
from paddlejob.core import explain
from paddlejob.core.classify import Member, PodState, Roster, ended_at
from paddlejob.core.standing import Standing


class Judgement(msgspec.Struct, frozen=True):
    """A verdict, or how long until time alone may bring one."""

    verdict: Standing | None = None
    look_again_in_seconds: float | None = None


def judge(roster: Roster, now: datetime, server_exit_grace_seconds: float) -> Judgement:
    """Decide whether the job is over.

    Only the workers make a success: parameter servers and heter pods serve for ever. One that is gone before
    the workers are done is a failure, whatever its exit code: Paddle's server exits 0 when it cannot listen.
    """
    failed = [member for member in roster.active() if member.state is PodState.FAILED]
    if failed:
        return Judgement(_failed(_first(failed, now), Reason.POD_FAILED))
    workers = roster.desired(Role.WORKER)
    if workers and roster.count(Role.WORKER, PodState.SUCCEEDED) == workers:
        return Judgement(_completed(workers))
    exited = [
        member
        for member in roster.active()
        if member.seat.role is not Role.WORKER and member.state is PodState.SUCCEEDED
    ]
    if not exited:
        return Judgement()
    first = _first(exited, now)
    waited = (now - (ended_at(first) or now)).total_seconds()
    if waited < server_exit_grace_seconds:
        return Judgement(look_again_in_seconds=server_exit_grace_seconds - waited)
    return Judgement(_failed(first, Reason.SERVER_EXITED_EARLY))


def _first(members: list[Member], now: datetime) -> Member:
    return min(members, key=lambda member: ended_at(member) or now)


def _failed(member: Member, reason: str) -> Standing:
    if reason == Reason.SERVER_EXITED_EARLY:
        message = f"{member.seat} exited {explain.ending(member)} before the workers were done"
    else:
        message = f"{member.seat} failed first {explain.ending(member)}"
    return Standing(Phase.FAILED, reason, message)


def _completed(workers: int) -> Standing:
    who = "the worker" if workers == 1 else f"all {workers} workers"
    return Standing(Phase.COMPLETED, Reason.WORKERS_SUCCEEDED, f"{who} succeeded")
