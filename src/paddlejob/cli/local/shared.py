"""What the verbs about local runs share: where runs are, which one is meant, how errors are shown."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from paddlejob.local.errors import InputError
from paddlejob.local.store import run_directory
from paddlejob.local.store.logs import short_name
from paddlejob.local.store.run_directory import RunDirectory

if TYPE_CHECKING:
    from paddlejob.local.ui.output import Output

BAD_INPUT = 2
INTERRUPTED = 130
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def directory_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--run-dir`, the directory of all runs."""
    option: Decorator = click.option(
        "--run-dir",
        "runs",
        type=click.Path(file_okay=False, path_type=Path),
        default=lambda: run_directory.state_directory(os.environ),
        show_default=f"${run_directory.RUNS_VARIABLE} or ~/.local/state/paddlejob/runs",
        help="Directory for the logs, status and files of runs.",
    )
    return option(function)


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a run."""
    del param
    names = [run.name for run in run_directory.all_runs(_runs_of(ctx))]
    return [name for name in names if name.startswith(incomplete)]


def complete_ranks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a pod of the run that stands before."""
    del param
    # Where the value of an option is being completed, click has not come to the arguments.
    name = ctx.params.get("run") or next(iter(ctx.args), "")
    try:
        run = run_directory.find(_runs_of(ctx), name)
    except InputError:
        return []
    pods = sorted(short_name(run.job_name, each.name) for each in (run.path / "logs").iterdir())
    return [pod for pod in pods if pod.startswith(incomplete)]


def _runs_of(ctx: click.Context) -> Path:
    return Path(ctx.params.get("runs") or run_directory.state_directory(os.environ))


def run_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the run that a verb is about; the newest when it is not named."""
    option: Decorator = click.argument("run", default="", metavar="[RUN]", shell_complete=complete_runs)
    return option(function)


def logs_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--logs`, whose output is shown."""
    option: Decorator = click.option(
        "--logs",
        default=None,
        metavar="all|RANK|none",
        help="Show output of all pods, one pod (0, ps-1), or none.",
    )
    return option(function)


def output_option(*forms: str) -> Decorator:
    """Add `--output`, the form of what is printed."""
    return click.option(
        "--output", "-o", "form", type=click.Choice(forms), default=forms[0], help="Output format."
    )


def output_for(form: str, logs: str | None) -> Output:
    """Choose how to show a run: a view for a person at a terminal, lines for everything else."""
    if form in ("json", "background"):
        from paddlejob.local.ui.json_lines import JsonOutput  # noqa: PLC0415

        return JsonOutput(logs or "none", only="run" if form == "background" else "")
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from paddlejob.local.ui.live import LiveOutput  # noqa: PLC0415 - rich takes a tenth of a second

        return LiveOutput(logs or "0")
    from paddlejob.local.ui.plain import PlainOutput  # noqa: PLC0415

    return PlainOutput(logs or "all")


@contextlib.contextmanager
def errors_shown(form: str = "text") -> Iterator[None]:
    """Turn what is wrong with the input into sentences and an exit code; with `json` also into objects."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has had enough; nothing more can be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (InputError, OSError) as error:
        for sentence in _sentences(error):
            click.echo(f"paddlejob: {sentence}", err=True)
            if form == "json":
                print_object(form, "", {"type": "error", "time": datetime.now(UTC), "message": sentence})
        sys.exit(BAD_INPUT)


def _sentences(error: InputError | OSError) -> tuple[str, ...]:
    """Return what is wrong with the input; a file or directory that cannot be used was named by the user."""
    if isinstance(error, InputError):
        return error.sentences
    if error.filename is None:
        raise error
    return (f"cannot use {error.filename}: {error.strerror}",)


def print_object(form: str, name: str, value: object) -> None:
    """Print an object as JSON in one line, as a YAML document, or its name."""
    if form == "json":
        click.echo(msgspec.json.encode(value))
    elif form == "yaml":
        click.echo("---\n" + msgspec.yaml.encode(value).decode(), nl=False)
    else:
        click.echo(name)


def find(runs: Path, name: str) -> RunDirectory:
    """Return the run to look at. Raises InputError."""
    return run_directory.find(runs, name)


def seconds_of(option: str, age: str) -> float:
    """Return the seconds of an age such as 7d. Raises InputError, which names the option."""
    found = re.fullmatch(r"([0-9]+)([smhdw])", age)
    if found is None:
        raise InputError(f"{option} {age}: write a number and one of s, m, h, d or w, such as 7d")
    return float(int(found[1]) * _UNITS[found[2]])


def not_empty(name: str) -> str:
    """Refuse the empty text that an unset shell variable leaves. Raises InputError."""
    if not name:
        raise InputError("RUN is empty; give the name of a run")
    return name


def find_live(runs: Path, name: str) -> RunDirectory:
    """Return the one live run to act on. Raises InputError."""
    return run_directory.choose(runs, name, live=True)
