"""What the verbs about jobs share: arguments, errors in one sentence, exit codes."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from paddlejob.cli.cluster.flags import Target
from paddlejob.cli.terminal import say
from paddlejob.cli.verbs import INTERRUPTED

if TYPE_CHECKING:
    from paddlejob.api.v1 import PaddleJob
    from paddlejob.client.job import Job, Jobs

FAILED = 1
BAD_INPUT = 2
TIMED_OUT = 124
DEBUG_VARIABLE = "PADDLEJOB_DEBUG"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"([0-9.]+)(ms|s|m|h|d)")

Function = Callable[..., Any]


class Duration(click.ParamType[float]):
    """A time as kubectl writes it: 90s, 1h30m; seconds without a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        text = str(value)
        if text.isdecimal():
            return float(text)
        if not _DURATION.fullmatch(text):
            self.fail(f"{text!r} is not a duration; write 90s, 5m or 1h30m", param, ctx)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def job_argument(function: Function) -> Function:
    """Add the name of one job."""
    return click.argument("job", metavar="JOB", shell_complete=complete_jobs)(function)


def jobs_argument(function: Function) -> Function:
    """Add the names of jobs, at least one."""
    return click.argument("names", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_jobs)(
        function
    )


def rank_option(function: Function) -> Function:
    """Add the rank that a command is about."""
    return click.option(
        "--rank",
        "-r",
        default="0",
        metavar="RANK",
        help="Rank of a worker (0) or a pod (ps-1).",
        shell_complete=complete_ranks,
    )(function)


def run(work: Coroutine[Any, Any, int | None]) -> NoReturn:
    """Do what a command does, and exit with its code; an error is one sentence."""
    # Closed also when Ctrl-C comes before it has begun, which Python would warn about.
    with errors_shown(), contextlib.closing(work):
        import asyncio  # noqa: PLC0415 - not needed for help
        import logging  # noqa: PLC0415

        # The kube runtime logs what it tries again; a person is told by the command.
        logging.getLogger("paddlejob").addHandler(logging.NullHandler())
        code = asyncio.run(work)
        sys.stdout.flush()
        sys.exit(code or 0)
    raise AssertionError("errors_shown leaves by exit")


@contextlib.contextmanager
def errors_shown() -> Iterator[None]:
    """Turn whatever goes wrong into a sentence and an exit code; no traceback reaches a person."""
    try:
        yield
    except click.exceptions.Exit:
        raise
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has had enough; nothing more can be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        fail(error)


_FLAGS = {
    "NameTakenError": " (--name, --generate-name)",
    "TooManyLogsError": " (--rank), or allow more (--max-log-requests)",
    "UnauthorizedError": " (--context)",
}
"""The flags that carry out what an error proposes, by its class; the client does not know of them."""


def fail(error: Exception) -> NoReturn:
    """Say what is wrong, and exit."""
    from paddlejob.client import errors  # noqa: PLC0415
    from paddlejob.kube.errors import KubeError  # noqa: PLC0415
    from paddlejob.local.errors import InputError  # noqa: PLC0415

    match error:
        case errors.InvalidJobError():
            say_error(*error.problems)
        case InputError():
            say_error(*error.sentences)
        case errors.ClientError() | KubeError():
            say_error(errors.sentence(error) + _FLAGS.get(type(error).__name__, ""))
        case _:
            say_error(
                f"unexpected {type(error).__name__}: {error}; this is a bug, set {DEBUG_VARIABLE}=1 to see "
                "a traceback"
            )
    sys.exit(TIMED_OUT if isinstance(error, errors.WaitTimeoutError) else BAD_INPUT)


def say_error(*sentences: str) -> None:
    """Print sentences to standard error."""
    for sentence in sentences:
        say(f"error: {sentence}", err=True)


def agrees(question: str) -> bool:
    """Ask a person at the terminal. Raises click.Abort for Ctrl-C, which asyncio puts off, and Ctrl-D."""
    import signal  # noqa: PLC0415 - only for terminals

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        say(err=True)
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def exit_code(state: PaddleJob) -> int:
    """Return what the end of a job is to a script."""
    from paddlejob.api.v1 import Phase  # noqa: PLC0415

    return 0 if state.status.phase is Phase.COMPLETED else FAILED


async def each(target: Target, names: tuple[str, ...], act: Callable[[Job], Coroutine[Any, Any, str]]) -> int:
    """Do something with each job, all of which must exist, and print what happened."""
    async with target.open() as jobs:
        for job in [await jobs.get(name) for name in names]:
            say(f"{job.kind_and_name} {await act(job)}")
    return 0


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of jobs that begin so; nothing when the cluster does not answer soon."""
    del param
    from paddlejob.cli.cluster.complete import job_names  # noqa: PLC0415

    return job_names(ctx, incomplete)


def complete_ranks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ranks of the job on the command line that begin so."""
    del param
    from paddlejob.cli.cluster.complete import rank_names  # noqa: PLC0415

    return rank_names(ctx, incomplete)


async def find(jobs: Jobs, names: tuple[str, ...]) -> list[Job]:
    """Return jobs by name, all of which must exist."""
    return [await jobs.get(name) for name in names]
