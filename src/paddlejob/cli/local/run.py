"""`paddlejob run`: a PaddleJob on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError

if TYPE_CHECKING:
    from paddlejob.local.options import Options

_ARGUMENTS = f"{__name__}.arguments"
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


class RunCommand(click.Command):
    """A command whose words after `--` are not its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the words after `--` aside."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_ARGUMENTS], args = tuple(args[at + 1 :]), args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Name them in the usage."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS...]"]


@click.command("run", cls=RunCommand)
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
@shared.logs_option
@shared.output_option("text", "json", "yaml", "name")
@click.option("--strict", is_flag=True, help="Fail if accelerators are missing, instead of using the CPU.")
@click.option("--detach", "-d", is_flag=True, help="Run in the background; print the name of the run.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the pods, but start nothing.")
@click.option("--background", is_flag=True, hidden=True, help="Print the run as JSON, then nothing.")
@shared.directory_option
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
    **chosen: Any,
) -> None:
    """Run the PaddleJob in FILE on this machine: no cluster, no Docker, no root.

    The same YAML goes to a cluster unchanged. ARGS replace the args of the training containers.
    The exit code is the result of the job: 0 completed, 1 failed, 130 stopped,
    2 not started because the job or an option is invalid.
    """
    with shared.errors_shown(form):
        if form in ("yaml", "name") and not dry_run and not (detach and form == "name"):
            raise InputError(f"-o {form} needs --dry-run")
        path = _only(file, filename)
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        options = _options(
            path,
            _overridden(_decoded(path, text), path, workers, env, ctx.meta.get(_ARGUMENTS, ())),
            logs=logs or "all",
            environ=dict(os.environ),
            **chosen,
        )
        if dry_run:
            from paddlejob.cli.local.dry_run import show  # noqa: PLC0415

            asyncio.run(show(options, form))
        elif detach:
            _detach(options, form)
        else:
            from paddlejob.local import run  # noqa: PLC0415 - help needs no event loop

            output = shared.output_for("background" if background else form, logs)
            sys.exit(asyncio.run(run.run(options, output)))


def _only(file: Path | None, filename: Path | None) -> Path:
    path = file or filename
    if path is None:
        raise InputError("give the file of a job, or - for standard input")
    if file and filename:
        raise InputError(f"{file} and -f {filename}: give one file")
    return path


def _decoded(file: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text; save it as UTF-8") from error


def _options(path: Path, text: str, **chosen: Any) -> Options:
    from paddlejob.local.options import Options  # noqa: PLC0415

    return Options(text=text, file=None if str(path) == "-" else path, **chosen)


def _overridden(
    text: str, path: Path, workers: int | None, env: tuple[str, ...], arguments: tuple[str, ...]
) -> str:
    """Return the file with what the options change in its jobs."""
    from paddlejob.client import manifest  # noqa: PLC0415 - only for those who change something
    from paddlejob.client.errors import ClientError  # noqa: PLC0415

    overrides = manifest.Overrides(workers=workers, env=dict(map(_variable, env)), args=arguments)
    if overrides == manifest.Overrides():
        return text
    try:
        jobs, others = manifest.read(text, str(path))
        return manifest.dump([*(manifest.override(each, overrides) for each in jobs), *others])
    except ClientError as error:
        raise InputError(*str(error).splitlines()) from error


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or (not separator and name not in os.environ):
        raise InputError(f"--env {text}: write NAME=VALUE, or the NAME of a variable of this shell")
    return name, value if separator else os.environ[name]


def _detach(options: Options, form: str) -> None:
    """Start the run in a process of its own and print its name."""
    from paddlejob.client.background_run import start_run  # noqa: PLC0415
    from paddlejob.client.errors import ClientError  # noqa: PLC0415

    try:
        run = start_run(options.runs, options.text, options=_arguments(options))
    except ClientError as error:
        raise InputError(*str(error).splitlines()) from error
    record = run.read_record()
    for note in record.notes if record else ():
        click.echo(f"note: {note}", err=True)
    shared.print_object(form, run.name, {"type": "run", "run": run.name, "directory": str(run.path)})
    if form == "text":
        click.echo(
            f"watch it with `paddlejob attach {run.name}`, stop it with `paddlejob stop {run.name}`", err=True
        )


def _arguments(options: Options) -> list[str]:
    """Return what makes another `paddlejob run`, which reads the file from a pipe, do the same."""
    flags = {"--name": options.name, "--namespace": options.namespace, "--python": options.python}
    several = {"--image": options.images, "--volume": options.volumes}
    return [
        *("--workspace", str(options.directory)),
        *(word for flag, value in flags.items() if value for word in (flag, value)),
        *(word for flag, values in several.items() for value in values for word in (flag, value)),
        *(("--strict",) if options.strict else ()),
    ]
