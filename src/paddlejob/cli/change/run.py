"""`run`: run a PaddleJob on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.cli import output, shared
from paddlejob.cli.target import Function, run_dir_flag
from paddlejob.cli.terminal import say
from paddlejob.client import manifest as manifests
from paddlejob.client.background_run import start_run
from paddlejob.client.errors import ClientError
from paddlejob.core.actions import Create
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Snapshot
from paddlejob.local.command import run
from paddlejob.local.errors import InputError
from paddlejob.local.pod.container import command_of
from paddlejob.local.session import CheckedJob, Options, check
from paddlejob.local.store import run_directory
from paddlejob.local.store.logs import short_name
from paddlejob.local.ui.json_lines import JsonOutput
from paddlejob.local.ui.output import Output
from paddlejob.local.ui.plain import PlainOutput

_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)

logs_option = click.option(
    "--logs",
    default=None,
    metavar="all|RANK|none",
    help="Show output of all pods, one pod (0, ps-1), or none.",
)


def output_option(*forms: str) -> Function:
    """Add `--output`; the first form is the default."""
    return click.option(
        "--output", "-o", "form", type=click.Choice(forms), default=forms[0], help="Output format."
    )


def output_for(form: str, logs: str | None) -> Output:
    """Return the output of a run: JSON, a live view at a terminal, or lines."""
    if form in ("json", "background"):
        return JsonOutput(logs or "none", only="run" if form == "background" else "")
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from paddlejob.local.ui.live import LiveOutput  # noqa: PLC0415 - imports rich

        return LiveOutput(logs or "0")
    return PlainOutput(logs or "all")


@contextlib.contextmanager
def print_errors(form: str) -> Iterator[None]:
    """Print errors in sentences; with `json` also as objects on standard output."""
    with shared.errors_shown():
        try:
            yield
        except (ClientError, InputError, OSError) as error:
            if form == "json" and not isinstance(error, BrokenPipeError):
                for each in shared.sentences(error):
                    _print_object(form, "", {"type": "error", "time": datetime.now(UTC), "message": each})
            raise


class _RunCommand(shared.WithArguments):
    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Add the arguments after `--` to the usage."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


@click.command("run", cls=_RunCommand)
@click.argument("file", type=_FILE, required=False)
@click.option("--filename", "-f", type=_FILE, help="The same as FILE; - is standard input.")
@click.option("--name", default="", help="Job name. Selects a job if FILE has several, otherwise renames it.")
@click.option("--namespace", "-n", default="", help="Namespace to report to the job.")
@click.option("--workers", type=int, help="Number of workers, instead of the one in FILE.")
@click.option(
    "--env",
    "-e",
    "env",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a variable in the training containers.",
)
@click.option("--python", default="", help="Python for the containers. Default: that of this shell.")
@click.option(
    "--image", "images", multiple=True, metavar="IMAGE=DIR", help="Use the Dockerfile in DIR for IMAGE."
)
@click.option(
    "--volume",
    "volumes",
    multiple=True,
    metavar="CLAIM=DIR",
    help="Use DIR for the persistent volume claim CLAIM.",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Working directory of the programs, unless their image sets one. Default: that of FILE.",
)
@logs_option
@output_option("text", "json", "yaml", "name")
@click.option("--strict", is_flag=True, help="Fail if accelerators are missing, instead of using the CPU.")
@click.option("--detach", "-d", is_flag=True, help="Run in the background; print the name of the run.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the pods, but start nothing.")
@click.option("--background", is_flag=True, hidden=True, help="Print the run as JSON, then nothing.")
@run_dir_flag
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: Path | None,
    filename: Path | None,
    workers: int | None,
    env: tuple[str, ...],
    logs: str | None,
    form: str,
    detach: bool,
    dry_run: bool,
    background: bool,
    run_dir: Path | None,
    **chosen: Any,
) -> None:
    """Run the PaddleJob in FILE on this machine: no cluster, no Docker, no root.

    A cluster takes the same YAML unchanged. ARGS replace the args of the training containers.
    The exit code is the result of the job: 0 completed, 1 failed, 130 stopped,
    2 not started because the job or an option is invalid.
    """
    with print_errors(form):
        if form in ("yaml", "name") and not dry_run and not (detach and form == "name"):
            raise ClientError(f"-o {form} needs --dry-run")
        source = _only(file, filename)
        overrides = manifests.Overrides(
            workers=workers, env=dict(map(_variable, env)), args=shared.arguments_after_dashes(ctx)
        )
        options = Options(
            text=_overridden(shared.read_text(source), source, overrides),
            file=None if source == "-" else Path(source),
            logs=logs or "all",
            environ=dict(os.environ),
            runs=run_dir or run_directory.state_directory(os.environ),
            **chosen,
        )
        if dry_run:
            asyncio.run(_dry_run(options, form))
        elif detach:
            _detach(options, form)
        else:
            sys.exit(asyncio.run(run(options, output_for("background" if background else form, logs))))


def _only(file: Path | None, filename: Path | None) -> str:
    path = file or filename
    if path is None:
        raise ClientError("give the file of a job, or - for standard input")
    if file and filename:
        raise ClientError(f"{file} and -f {filename}: give one file")
    return str(path)


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or (not separator and name not in os.environ):
        raise ClientError(f"--env {text}: write NAME=VALUE, or the NAME of a variable of this shell")
    return name, value if separator else os.environ[name]


def _overridden(text: str, source: str, overrides: manifests.Overrides) -> str:
    """Return the file with its jobs changed by the options."""
    if overrides == manifests.Overrides():
        return text
    jobs, others = manifests.read(text, source)
    return manifests.dump([*(manifests.override(each, overrides) for each in jobs), *others])


def _detach(options: Options, form: str) -> None:
    """Start the run in a separate process and print its name."""
    started = start_run(options.runs, options.text, options=_flags(options))
    record = started.read_record()
    for note in record.notes if record else ():
        say(f"note: {note}", err=True)
    found = {"type": "run", "run": started.name, "directory": str(started.path)}
    _print_object(form, started.name, found)
    if form == "text":
        verbs = {"watch": "attach", "stop": "stop"}
        name = f"{started.name}{started.run_dir_flag}"
        hints = (f"{what} it with `paddlejob {verb} {name}`" for what, verb in verbs.items())
        say(", ".join(hints), err=True)


def _flags(options: Options) -> list[str]:
    """Return the flags of another `paddlejob run` that reads the same file from a pipe."""
    flags = {"--name": options.name, "--namespace": options.namespace, "--python": options.python}
    several = {"--image": options.images, "--volume": options.volumes}
    return [
        *("--workspace", str(options.directory)),
        *(word for flag, value in flags.items() if value for word in (flag, value)),
        *(word for flag, values in several.items() for value in values for word in (flag, value)),
        *(("--strict",) if options.strict else ()),
    ]


async def _dry_run(options: Options, form: str) -> None:
    """Print the objects that the run would create. Raises InputError if the job cannot run."""
    checked = await check(options)
    planned = plan(Snapshot(job=checked.job, now=datetime.now(UTC), settings=options.settings))
    objects = [each.manifest for stage in planned.stages for each in stage if isinstance(each, Create)]
    if form == "text":
        pods = [each for each in objects if each["kind"] == "Pod"]
        say(
            output.table([("POD", "IMAGE", "COMMAND"), *(row for pod in pods for row in _rows(checked, pod))])
        )
        python = checked.machine.python
        about = f"Paddle {python.paddle}" if python.paddle else python.defect
        say(f"python: {python}" + (f", {about}" if about else ""))
    else:
        for each in objects:
            _print_object(form, f"{each['kind'].lower()}/{each['metadata']['name']}", each)
    for note in checked.notes:
        say(f"note: {note}", err=True)
    say("nothing was started (--dry-run)", err=True)


def _rows(checked: CheckedJob, pod: JsonObject) -> list[tuple[str, str, str]]:
    name, images = short_name(checked.job.name, pod["metadata"]["name"]), checked.machine.images
    return [
        (
            name if index == 0 else f"{name}/{each['name']}",
            str(each.get("image")),
            shlex.join(command_of(each, images.find(str(each.get("image"))), {})),
        )
        for index, each in enumerate(pod["spec"]["containers"])
    ]


def _print_object(form: str, name: str, value: object) -> None:
    """Print an object as one line of JSON, as a YAML document, or its name."""
    if form == "json":
        say(msgspec.json.encode(value).decode())
    elif form == "yaml":
        say("---\n" + msgspec.yaml.encode(value).decode(), nl=False)
    else:
        say(name)
