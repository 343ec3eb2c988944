"""`paddlejob run --dry-run`: what a run would do."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

import click

from paddlejob.api.meta import JsonObject
from paddlejob.cli.local import shared
from paddlejob.core.actions import Create
from paddlejob.core.plan import plan
from paddlejob.core.snapshot import Snapshot
from paddlejob.local import local_run
from paddlejob.local.local_run import Checked
from paddlejob.local.options import Options
from paddlejob.local.pod.container import command_of
from paddlejob.local.store.logs import short_name


async def show(options: Options, form: str) -> None:
    """Print what would be created. Raises InputError when the job cannot run."""
    checked = await local_run.check(options)
    planned = plan(Snapshot(job=checked.job, now=datetime.now(UTC), settings=options.settings))
    objects = [each.manifest for stage in planned.stages for each in stage if isinstance(each, Create)]
    if form == "text":
        _print_table(checked, [each for each in objects if each["kind"] == "Pod"])
    else:
        for each in objects:
            shared.print_object(form, f"{each['kind'].lower()}/{each['metadata']['name']}", each)
    for note in checked.notes:
        click.echo(f"note: {note}", err=True)
    click.echo("nothing was started (--dry-run)", err=True)


def _print_table(checked: Checked, pods: list[JsonObject]) -> None:
    rows = [("POD", "IMAGE", "COMMAND"), *(row for pod in pods for row in _rows(checked, pod))]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    python = checked.machine.python
    about = f"Paddle {python.paddle}" if python.paddle else python.defect
    click.echo(f"python: {python}" + (f", {about}" if about else ""))


def _rows(checked: Checked, pod: JsonObject) -> list[tuple[str, str, str]]:
    name, images = short_name(checked.job.name, pod["metadata"]["name"]), checked.machine.images
    return [
        (
            name if index == 0 else f"{name}/{each['name']}",
            str(each.get("image")),
            shlex.join(command_of(each, images.find(str(each.get("image"))), {})),
        )
        for index, each in enumerate(pod["spec"]["containers"])
    ]
