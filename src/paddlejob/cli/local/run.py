"""`paddlejob run`: a PaddleJob on this machine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from paddlejob.cli.local import shared
from paddlejob.local.errors import InputError
from paddlejob.local.ui.output import Output


@click.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--name", default="", help="Job name. Selects a job if FILE has several, otherwise renames it.")
@click.option("--namespace", "-n", default="", help="Namespace to report to the job.")
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
    "--logs",
    default=None,
    metavar="all|RANK|none",
    help="Show output of all pods, one pod (0, ps-1), or none.",
)
@click.option(
    "--output", "-o", "form", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
@click.option("--strict", is_flag=True, help="Fail if accelerators are missing, instead of using the CPU.")
@shared.directory_option
def command(
    file: Path,
    name: str,
    namespace: str,
    python: str,
    images: tuple[str, ...],
    volumes: tuple[str, ...],
    logs: str | None,
    form: str,
    strict: bool,
    runs: Path,
) -> None:
    """Run the PaddleJob in FILE on this machine: no cluster, no Docker, no root.

    The same YAML goes to a cluster unchanged. The exit code is the result of the job: 0 completed,
    1 failed, 130 stopped, 2 not started because the job or an option is invalid.
    """
    from paddlejob.local import run  # noqa: PLC0415 - help needs no event loop
    from paddlejob.local.options import Options  # noqa: PLC0415

    is_stdin = str(file) == "-"
    with shared.errors_shown(form):
        text = _text(file, sys.stdin.buffer.read() if is_stdin else file.read_bytes())
    options = Options(
        text=text,
        file=None if is_stdin else file,
        runs=runs,
        name=name,
        namespace=namespace,
        python=python,
        images=images,
        volumes=volumes,
        logs=logs or "all",
        strict=strict,
        environ=dict(os.environ),
    )
    with shared.errors_shown(form):
        sys.exit(asyncio.run(run.run(options, _output(form, logs))))


def _text(file: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text; save it as UTF-8") from error


def _output(form: str, logs: str | None) -> Output:
    """Choose how to show the run: a view for a person at a terminal, lines for everything else."""
    if form == "json":
        from paddlejob.local.ui.json_lines import JsonOutput  # noqa: PLC0415

        return JsonOutput(logs or "none")
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        from paddlejob.local.ui.live import LiveOutput  # noqa: PLC0415 - rich takes a tenth of a second

        return LiveOutput(logs or "0")
    from paddlejob.local.ui.plain import PlainOutput  # noqa: PLC0415

    return PlainOutput(logs or "all")
