"""Shared parts of the verbs: arguments, running, errors and exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from paddlejob.api.v1 import PaddleJob, Phase
from paddlejob.cli.lazy_group import INTERRUPTED, show_error
from paddlejob.cli.target import Target
from paddlejob.cli.terminal import say
from paddlejob.client import errors
from paddlejob.client.job import LATEST, Job, Jobs
from paddlejob.kube.errors import KubeError
from paddlejob.local.errors import InputError
from paddlejob.text import parse_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FAILED = 1
BAD_INPUT = 2
TIMED_OUT = 124
DEBUG_VARIABLE = "PADDLEJOB_DEBUG"

_ARGUMENTS = f"{__name__}.arguments"

Function = Callable[..., Any]


class Duration(click.ParamType[float]):
    """A duration as kubectl writes it, such as 90s or 1h30m. A number without a unit means seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        text = str(value)
        if text.isdecimal():
            return float(text)
        try:
            return parse_duration(text)
        except ValueError:
            self.fail(f"{text!r} is not a duration; write 90s, 5m, 1h30m or 7d", param, ctx)


class WithArguments(click.Command):
    """A command that passes the arguments after `--` on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the arguments after `--`."""
        if "--" in args:
            position = args.index("--")
            ctx.meta[_ARGUMENTS] = tuple(args[position + 1 :])
            args = args[:position]
        return super().parse_args(ctx, args)


def arguments_after_dashes(ctx: click.Context) -> tuple[str, ...]:
    """Return the arguments after `--`."""
    found: tuple[str, ...] = ctx.meta.get(_ARGUMENTS, ())
    return found


def complete_jobs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str | CompletionItem[str]]:
    """Complete the name of a job."""
    del param
    from paddlejob.cli.completion import job_names  # noqa: PLC0415 - only for completion

    return [*job_names(ctx, incomplete)]


def complete_ranks(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str | CompletionItem[str]]:
    """Complete a rank of the job on the command line."""
    del param
    from paddlejob.cli.completion import rank_names  # noqa: PLC0415 - only for completion

    return [*rank_names(ctx, incomplete)]


shown_job = click.argument("job", default=LATEST, metavar="[JOB]", shell_complete=complete_jobs)
"""One job, by default the newest: for verbs that only show something."""
shown_jobs = click.argument(
    "names",
    nargs=-1,
    metavar="[JOB]...",
    shell_complete=complete_jobs,
    callback=lambda _, __, names: names or (LATEST,),
)
"""Jobs, by default the newest."""
changed_job = click.argument("job", metavar="JOB", shell_complete=complete_jobs)
"""One job, which must be named: for verbs that change something."""
changed_jobs = click.argument(
    "names", nargs=-1, required=True, metavar="JOB...", shell_complete=complete_jobs
)
"""Jobs, which must be named."""
rank_option = click.option(
    "--rank",
    "-r",
    default="0",
    metavar="RANK",
    help="Rank (0) or pod (ps-1).",
    shell_complete=complete_ranks,
)
container_option = click.option(
    "--container", "-c", default="", metavar="NAME", help="Container to use. Default: the one that trains."
)
all_namespaces_option = click.option(
    "--all-namespaces", "-A", is_flag=True, help="Show the jobs of all namespaces."
)


def files_argument(function: Function) -> Function:
    """Add FILE... and -f FILE."""
    more = click.option(
        "--filename", "-f", "more", multiple=True, metavar="FILE", help="The same as FILE; - reads stdin."
    )
    files = click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(allow_dash=True))
    return files(more(function))


def required_files(files: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files of both. Raises UsageError if there are none."""
    if not (files or more):
        raise click.UsageError("give a FILE, or - to read standard input")
    return (*files, *more)


def read_text(source: str) -> str:
    """Return the text of a file, or of standard input for `-`. Raises ClientError."""
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise errors.ClientError(f"cannot read {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.ClientError(f"{source} is not UTF-8 text; save it as UTF-8") from error


def source_name(source: str) -> str:
    """Return the name of a file for messages."""
    return "standard input" if source == "-" else source


def run(work: Coroutine[Any, Any, int | None]) -> NoReturn:
    """Run a command and exit with its code; errors are printed in one sentence."""
    # Closed also if Ctrl-C comes before it starts, which Python would warn about.
    with errors_shown(), contextlib.closing(work):
        # The kube runtime logs its retries; the command reports them itself.
        logging.getLogger("paddlejob").addHandler(logging.NullHandler())
        code = asyncio.run(work)
        sys.stdout.flush()
        sys.exit(code or 0)
    raise AssertionError("errors_shown exits")


@contextlib.contextmanager
def errors_shown() -> Iterator[None]:
    """Print every error in one sentence and exit; a traceback only with PADDLEJOB_DEBUG."""
    try:
        yield
    except click.exceptions.Exit:
        raise
    except click.ClickException as error:
        show_error(error)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has closed it. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        say_error(*sentences(error))
        sys.exit(TIMED_OUT if isinstance(error, errors.WaitTimeoutError) else BAD_INPUT)


_FLAGS = {
    "NameTakenError": " (--name, --generate-name)",
    "TooManyLogsError": " (--rank), or allow more (--max-log-requests)",
    "UnauthorizedError": " (--context)",
}
"""The flags for the advice in an error, by its class. The client does not know the flags."""


def sentences(error: Exception) -> tuple[str, ...]:
    """Return an error as sentences for a user."""
    match error:
        case errors.InvalidJobError():
            return error.problems
        case InputError():
            return error.sentences
        case errors.ClientError() | KubeError():
            return (errors.sentence(error) + _FLAGS.get(type(error).__name__, ""),)
        case OSError() if error.filename is not None:
            return (f"cannot use {error.filename}: {error.strerror}",)
    bug = f"this is a bug, set {DEBUG_VARIABLE}=1 to see a traceback"
    return (f"unexpected {type(error).__name__}: {error}; {bug}",)


def say_error(*texts: str) -> None:
    """Print errors to standard error."""
    for text in texts:
        say(f"error: {text}", err=True)


def confirm(question: str) -> bool:
    """Ask at the terminal. Raises click.Abort for Ctrl-C, which asyncio would defer, and for Ctrl-D."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        say(err=True)
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def exit_code(state: PaddleJob) -> int:
    """Return the exit code for the end of a job."""
    return 0 if state.status.phase is Phase.COMPLETED else FAILED


async def find(jobs: Jobs, names: tuple[str, ...]) -> list[Job]:
    """Return jobs by name. Raises ClientError unless all exist."""
    return [await jobs.get(name) for name in names]


async def change_each(
    target: Target, names: tuple[str, ...], change: Callable[[Job], Coroutine[Any, Any, str]]
) -> int:
    """Change each job, all of which must exist, and print the result."""
    async with target.open() as jobs:
        for job in [await jobs.get_live(name) for name in names]:
            say(f"{job.kind_and_name} {await change(job)}")
    return 0
