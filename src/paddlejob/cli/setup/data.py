"""`paddlejob data`: training data into shards on shared storage."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from paddlejob.plainjob import errors
from paddlejob.plainjob.data import progress
from paddlejob.plainjob.data.inputs import TRAINING_NAMES
from paddlejob.plainjob.data.layout import By
from paddlejob.plainjob.data.manifest import Manifest
from paddlejob.plainjob.data.split import SplitReport, SplitRequest
from paddlejob.plainjob.data.split import split as split_data
from paddlejob.plainjob.data.split import verify as verify_data

_PATH = click.Path(path_type=Path)
_OUT_DIR = click.option(
    "--out-dir", envvar="OUT_DIR", show_envvar=True, required=True, type=_PATH, help="The job's directory."
)
_QUIET = click.option("--quiet", is_flag=True, help="Do not print progress.")


@click.group()
def data() -> None:
    """Prepare training data for jobs that read shards from shared storage."""


@data.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True, type=_PATH)
@_OUT_DIR
@click.option(
    "--split-count",
    envvar="SPLIT_COUNT",
    show_envvar=True,
    required=True,
    type=click.IntRange(min=1),
    help="Number of shards: one for each trainer.",
)
@click.option(
    "--split",
    "names",
    metavar="GLOB",
    multiple=True,
    default=TRAINING_NAMES,
    show_default=True,
    help="Files of an INPUT directory to split; all others are copied to every shard.",
)
@click.option("--share", multiple=True, type=_PATH, help="File or directory to copy to every shard.")
@click.option(
    "--config-dir",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of training scripts to copy to OUT_DIR.",
)
@click.option(
    "--by",
    type=click.Choice([by.value for by in By]),
    default=By.LINES.value,
    show_default=True,
    help="Make shards equal in lines, so that all trainers have the same number of samples, or in bytes.",
)
@click.option("--each", is_flag=True, help="Split every file, instead of the set as a whole.")
@click.option("--copy", is_flag=True, help="Copy shared files instead of hard-linking them.")
@click.option("--force", is_flag=True, help="Replace another split in OUT_DIR.")
@_QUIET
def split(
    inputs: tuple[Path, ...],
    out_dir: Path,
    split_count: int,
    names: tuple[str, ...],
    share: tuple[Path, ...],
    config_dir: tuple[Path, ...],
    by: str,
    each: bool,
    copy: bool,
    force: bool,
    quiet: bool,
) -> None:
    """Split line files into OUT_DIR/{0..SPLIT_COUNT-1}/data.

    INPUT is a file of lines or a directory of such files; several files are split as one sequence of lines.
    Safe to run again: finished shards are kept, and an interrupted split is resumed.
    """
    request = SplitRequest(
        job=out_dir,
        split_count=split_count,
        inputs=inputs,
        shared=share,
        training_names=names,
        config_directories=config_dir,
        by=By(by),
        each=each,
        copy_shared=copy,
        force=force,
    )
    try:
        report = split_data(request, _progress(quiet))
    except errors.PlainJobError as error:
        _fail(error)
    except KeyboardInterrupt:
        click.echo("interrupted: finished shards are kept; run the same command again to resume", err=True)
        sys.exit(130)
    _say_report(report, out_dir)


@data.command()
@_OUT_DIR
@_QUIET
def verify(out_dir: Path, quiet: bool) -> None:
    """Verify the checksums of all shards in OUT_DIR."""
    try:
        found = verify_data(out_dir, _progress(quiet))
    except errors.PlainJobError as error:
        _fail(error)
    click.echo(f"{out_dir}: {_count(found)} match their checksums")


def _progress(quiet: bool) -> progress.ProgressSink:
    return progress.ProgressSink() if quiet else progress.for_stream(sys.stderr)


def _fail(error: errors.PlainJobError) -> NoReturn:
    click.echo(f"error: {error}", err=True)
    sys.exit(error.exit_code)


def _say_report(report: SplitReport, job: Path) -> None:
    for shard in report.manifest.shards:
        state = "written" if shard.index in report.written else "kept"
        lines = "" if shard.lines is None else f"{shard.lines} lines, "
        click.echo(f"{job / str(shard.index) / 'data'}: {lines}{progress.human(shard.size)}, {state}")
    if not report.written:
        click.echo("nothing to do: the split is complete")


def _count(found: Manifest) -> str:
    files = sum(len(shard.files) for shard in found.shards)
    return f"{files} files of {found.split_count} shards"


command = data
