"""Rules for the programs of supervised pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from paddlejob.api.names import Env
from simkube.kubelet.program import ProgramRun


def broken_rules(runs: list[ProgramRun]) -> list[str]:
    """Return what is wrong with the programs that ran, in the order of their starts."""
    jobs: dict[str, list[ProgramRun]] = defaultdict(list)
    for run in runs:
        jobs[run.owner].append(run)
    return [text for each in jobs.values() for text in _broken_in_job(each)]


def _broken_in_job(runs: list[ProgramRun]) -> Iterator[str]:
    latest: dict[str, int] = {}
    for index, run in enumerate(runs):
        environment, name = run.environment, f"{run.pod} of attempt {run.attempt}"
        if environment[Env.ATTEMPT] != str(run.attempt):
            yield f"{name} has the attempt {environment[Env.ATTEMPT]}"
        if not run.is_first and _floor(run) != run.attempt:
            yield f"{name} started with data of attempt {_floor(run)}"
        if not run.is_first and run.attempt <= latest[run.uid]:
            yield f"{name} started after attempt {latest[run.uid]}"
        latest[run.uid] = run.attempt
        for earlier in runs[:index]:
            if earlier.ended is not None and earlier.ended <= run.started:
                continue
            beside = f"{name} started at {run.started} beside {earlier.pod} of attempt {earlier.attempt}"
            if earlier.pod == run.pod or _rank(earlier) == _rank(run):
                yield f"{beside}: a rank runs twice"
            elif earlier.attempt < _floor(run) or run.attempt < _floor(earlier):
                yield f"{beside}: programs before and after a restart in place meet"


def _rank(run: ProgramRun) -> tuple[str, str]:
    return run.environment[Env.TRAINING_ROLE], run.environment[Env.TRAINER_ID]


def _floor(run: ProgramRun) -> int:
    """Return the attempt of the last restart in place that a program knows of; no earlier one may run."""
    return int(run.environment.get(Env.PROCESS_ATTEMPT, "0"))
