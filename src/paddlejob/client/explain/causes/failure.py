"""Explain jobs that failed or restart after a failure: the first failure, its meaning, and remedies."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from fractions import Fraction

from paddlejob.api.names import Reason
from paddlejob.api.quantity import Quantity
from paddlejob.api.v1 import Failure, PaddleJob, Phase, Role
from paddlejob.client.explain.changes import patch, set_op, template_path
from paddlejob.client.explain.demand import parse_amounts
from paddlejob.client.explain.evidence import Evidence, template_shape
from paddlejob.client.explain.result import Advice, Finding, FollowUp
from paddlejob.client.logs.history import from_traceback
from paddlejob.client.ranks import rank_of
from paddlejob.core.accelerators import idle_accelerators
from paddlejob.core.attempts.causes import PLANNED_EXIT_CODES, Cause, rule_for
from paddlejob.text import MAX_TEXT_LENGTH, duration, printable
from paddlejob.training.goodput import in_words

SHOWN_LINES = 12
LINE_LENGTH = 200

MEANINGS = {
    1: "the program failed, usually with a Python exception",
    2: "the command was used incorrectly",
    101: "Paddle's elastic launcher asks for a restart",
    126: "the command is not executable",
    127: "the command was not found in the image",
    134: "the program aborted itself (SIGABRT), often because a peer exited",
    135: "bus error (SIGBUS), often because /dev/shm is too small",
    136: "arithmetic error (SIGFPE)",
    137: "killed by SIGKILL, often because memory ran out",
    139: "segmentation fault (SIGSEGV)",
    143: "asked to stop (SIGTERM)",
    247: "a process of Paddle's launcher was killed by SIGKILL, often because memory ran out",
    250: "a process of Paddle's launcher aborted (SIGABRT), often because a peer exited",
    255: "the program or its shell reported an error",
}
REASONS = {
    "OOMKilled": "it used more memory than its limit",
    "Evicted": "its node ran short of a resource, or it exceeded its own limit",
    "StartError": "its container could not be started",
    "ContainerCannotRun": "its container could not be started",
    "ContainerStatusUnknown": "its node lost the container, as in a reboot",
    "DeadlineExceeded": "its own activeDeadlineSeconds has passed",
    Reason.LOSS_NAN: "the loss was not a number, and would be again with the same data",
    Reason.LOSS_INF: "the loss was infinite, and would be again with the same data",
    Reason.AA_DIFF: "the same computation gave two results; its node is suspected",
    Reason.SHARDING_PAD_NON_ZERO: "padding of a sharded parameter was not zero; its node is suspected",
    Reason.DOWNLOAD_FAILED: "Paddle could not download a checkpoint",
    Reason.HUNG: "no rank made a step for much longer than usual; `postmortem` has their stacks",
    Reason.STRAGGLER: "it slowed the others down in every step; its node is avoided",
    Reason.CHECKPOINT_FAILED: "Paddle could not write a checkpoint",
    Reason.PEER_LOST: "another rank had gone, so the fault is in that one or in the network",
}
HINTS = (
    (re.compile(r"No module named '?([\w.]+)"), "install the Python module {0} in the image"),
    (
        re.compile(r"(?:out of memory on GPU|CUDA out of memory|ResourceExhaustedError)", re.IGNORECASE),
        "use a smaller batch, or more GPUs",
    ),
    (
        re.compile(r"insufficient shared memory|bus error", re.IGNORECASE),
        "mount an emptyDir with medium: Memory at /dev/shm",
    ),
    (re.compile(r"can't open file '?([^':]+)"), "put {0} into the image, or correct the command"),
    (
        re.compile(r"(?:No such file or directory|Permission denied): '?[^'\n]*workerlog\.\d+"),
        "let Paddle's launcher write its logs, with --log_dir and a directory that the user may write to",
    ),
    (
        re.compile(r"No such file or directory: '?((?![^'\n]*workerlog\.\d)[^'\n]+)"),
        "put {0} into the image or a volume, or correct the path",
    ),
    (
        re.compile(r"environment variable FLAGS_selected_\w+ is needed"),
        "start the program with python -m paddle.distributed.launch, which starts one process per card",
    ),
    (
        re.compile(r"Address already in use", re.IGNORECASE),
        "let the program use the ports that the job gives it",
    ),
)


def find(evidence: Evidence) -> Iterator[Finding]:
    """Explain a job that failed, or that waits for a restart after a failure."""
    status, failure = evidence.job.status, evidence.job.status.last_failure
    waits = status.phase is Phase.RESTARTING and status.reason == Reason.WAITING_TO_RESTART
    if status.phase is Phase.FAILED and (failure is None or status.reason in _DEADLINES):
        yield _deadline(evidence)
    elif failure is not None and (status.phase is Phase.FAILED or waits):
        rank = rank_of(evidence.job.name, failure.pod)
        summary = status.message if status.phase is Phase.FAILED else _restarting(evidence)
        details = tuple(_details(evidence, failure, rank))
        yield Finding(
            failure.reason or "Failed", summary, rank, details, tuple(_advice(evidence, failure, rank))
        )


_DEADLINES = {
    Reason.DEADLINE_EXCEEDED: "raise spec.activeDeadlineSeconds, or resume from a checkpoint",
    Reason.STARTUP_DEADLINE_EXCEEDED: "fix the obstacle it waited for, or raise spec.startupDeadlineSeconds",
}


def _deadline(evidence: Evidence) -> Finding:
    """Explain a job that ended without a failed pod."""
    status = evidence.job.status
    text = _DEADLINES.get(status.reason, "correct it")
    return Finding(
        status.reason or "Failed", status.message, advice=(Advice(f"{text}, and submit it again"),)
    )


def _restarting(evidence: Evidence) -> str:
    status = evidence.job.status
    left = (status.retry_time - evidence.now).total_seconds() if status.retry_time else 0.0
    return f"{status.message} (in {duration(left)})" if left > 0 else status.message


def _details(evidence: Evidence, failure: Failure, rank: str) -> Iterator[str]:
    status = evidence.job.status
    meaning = REASONS.get(failure.reason) or meaning_of(failure.exit_code)
    code = f"exit code {failure.exit_code}" if failure.exit_code else failure.reason
    when = f" at {failure.time:%Y-%m-%d %H:%M:%SZ}" if failure.time else ""
    yield f"{rank} failed first, in attempt {failure.attempt}{when}"
    if meaning and code:
        yield f"{code}{f' ({failure.reason})' if failure.reason in REASONS else ''}: {meaning}"
    yield _restarts(evidence.job, failure)
    if status.goodput and (spent := in_words(status.goodput)):
        yield f"time: {spent}"
    if evidence.log_note:
        yield evidence.log_note


def meaning_of(code: int) -> str:
    """Return the usual meaning of an exit code, or its signal; empty if it has neither."""
    if code in MEANINGS:
        return MEANINGS[code]
    # A shell adds 128 to the signal; Paddle's launcher exits with the negated signal, as one byte.
    is_launcher = code > _SHELL_CODES.stop
    number = code - 128 if code in _SHELL_CODES else 256 - code if is_launcher else -code
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    return f"{'a process of the launcher was ' if is_launcher else ''}killed by {name}"


_SHELL_CODES = range(129, 193)


def _restarts(job: PaddleJob, failure: Failure) -> str:
    """Return how often the job was restarted, or why it was not."""
    status, policy, code = job.status, job.spec.restart_policy, failure.exit_code
    rule = rule_for(code, policy) if status.phase is Phase.FAILED else None
    if rule is Cause.PERMANENT:
        return f"exit code {code} is not retried: restartPolicy.permanentExitCodes has it"
    is_default = status.phase is Phase.FAILED and rule is None and failure.reason not in REASONS
    if is_default and code in _PERMANENT_CODES and code not in PLANNED_EXIT_CODES:
        change = f"restartPolicy.retryableExitCodes: [{code}] changes that"
        return f"exit codes {_PERMANENT_CODES[0]} to {_PERMANENT_CODES[-1]} are not retried; {change}"
    times = f"restarted {status.restarts} of at most {job.spec.backoff_limit} times"
    return times if failure.counted else f"{times}; this failure does not count against backoffLimit"


_PERMANENT_CODES = range(1, 128)


def _advice(evidence: Evidence, failure: Failure, rank: str) -> Iterator[Advice]:
    then = FollowUp.RETRY if evidence.job.status.phase is Phase.FAILED else FollowUp.NOTHING
    role = next((role for role in Role if rank.startswith(f"{role}-")), None)
    if failure.reason == "OOMKilled" and role is not None:
        yield _more_memory(evidence, role, then)
    text = "\n".join((*evidence.log, failure.message))
    for pattern, hint in HINTS:
        if found := pattern.search(text):
            yield Advice(hint.format(*found.groups()))
    spec = dict(evidence.roles).get(role) if role else None
    if spec and (idle := idle_accelerators(spec, text)) and idle not in failure.message:
        yield Advice(f"{rank} {idle}")
    ended_job = then is FollowUp.RETRY and failure.reason in ("StartError", "ContainerCannotRun")
    if failure.exit_code in (126, 127) or ended_job:
        yield Advice(f"correct command and args in spec.{role}.template.spec.containers[0], or the image")
    if then is FollowUp.RETRY:
        yield Advice(f"correct the program or the job, and run it again: {evidence.command('retry')}")


def _more_memory(evidence: Evidence, role: Role, then: FollowUp) -> Advice:
    """Double the memory limit of the training container."""
    spec = dict(evidence.roles).get(role)
    shape = template_shape(spec) if spec else None
    resources = shape.containers[0].resources if shape and shape.containers else None
    limit = parse_amounts(resources.limits).get("memory") if resources else None
    if limit is None:
        return Advice(f"give the {role} more memory, or run it on a node with more")
    doubled = Quantity(limit.amount * Fraction(2), limit.binary)
    path = template_path(role, "containers", 0, "resources", "limits", "memory")
    text = f"raise spec.{role}.template.spec.containers[0].resources.limits.memory from {limit} to {doubled}"
    return Advice(text, patch(evidence.job, set_op(path, str(doubled))), then=then)


def last_lines(log: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last traceback of a log, or its last lines."""
    lines = [line for line in (_clean(line) for line in log) if line.strip()]
    traceback_lines = from_traceback(lines)
    if len(traceback_lines) <= SHOWN_LINES:
        return tuple(traceback_lines)
    if "Traceback" in traceback_lines[0]:
        return (traceback_lines[0], "...", *traceback_lines[-(SHOWN_LINES - 2) :])
    return tuple(traceback_lines[-SHOWN_LINES:])


def _clean(line: str) -> str:
    """Return the visible text of a line with its indentation, without control sequences."""
    shown = (line.rpartition("\r")[2] or line)[:MAX_TEXT_LENGTH].expandtabs(4)
    indent = min(len(shown) - len(shown.lstrip(" ")), LINE_LENGTH // 2)
    kept = f"{' ' * indent}{printable(shown)}"
    return kept if len(kept) <= LINE_LENGTH else f"{kept[: LINE_LENGTH - 3]}..."
