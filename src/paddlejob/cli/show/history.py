"""`history` and `postmortem`: finished jobs, including deleted ones."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from paddlejob.cli import output, shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.job import LATEST
from paddlejob.dashboard.standalone import record_page
from paddlejob.history.record import Summary, object_key
from paddlejob.text import one_line

HEADINGS = ("NAME", "RESULT", "AGE", "DURATION", "ATTEMPTS", "FIRST FAILURE")


@click.command("history")
@click.argument("job", default="", metavar="[JOB]", shell_complete=shared.complete_jobs)
@shared.all_namespaces_option
@output.output_option("json", "yaml", "wide")
@target_flags
def command(target: Target, job: str, all_namespaces: bool, form: str | None) -> None:
    """List all finished jobs, or those named JOB, newest first, including deleted ones.

    -o wide adds the names of the records, which `postmortem` takes too.
    """
    shared.run(_history(target, job, form, all_namespaces=all_namespaces))


async def _history(target: Target, name: str, form: str | None, *, all_namespaces: bool) -> int:
    async with target.open() as jobs:
        found = await jobs.history(name="" if name == LATEST else name, all_namespaces=all_namespaces)
    found = found[:1] if name == LATEST else found
    if form in ("json", "yaml"):
        output.print_object([msgspec.to_builtins(each) for each in found], form)
    elif found:
        say(_table(found, wide=form == "wide", namespaces=all_namespaces))
    else:
        say(f"There is no record of {name or 'any job'}.", err=True)
    return 0


def _table(found: tuple[Summary, ...], *, wide: bool, namespaces: bool) -> str:
    now = datetime.now(UTC)
    before = ("NAMESPACE",) if namespaces else ()
    rows: list[tuple[str, ...]] = [(*before, *HEADINGS[:-1], *(("RECORD",) if wide else ()), HEADINGS[-1])]
    for each in found:
        begin = each.started or each.created
        rows.append(
            (
                *((each.namespace,) if namespaces else ()),
                each.name,
                each.result,
                output.duration(each.created, None, now),
                output.duration(begin, each.ended, now),
                str(each.attempt + 1),
                *((object_key(each).name,) if wide else ()),
                one_line(each.failure.message) if each.failure else "-",
            )
        )
    return output.table(rows)


@click.command("postmortem")
@shared.shown_job
@click.option(
    "--output", "-o", "form", type=click.Choice(["html", "json"]), default="html", help="Output format."
)
@click.option(
    "--to", default="", metavar="FILE", help="File to write; - for standard output. Default: JOB.html."
)
@target_flags
def postmortem(target: Target, job: str, form: str, to: str) -> None:
    """Write a page about JOB: first failure, last log lines, attempts, loss, changes.

    Works for deleted jobs too, as long as the operator keeps their records. JSON goes to standard output.
    """
    shared.run(_postmortem(target, job, form, to))


async def _postmortem(target: Target, name: str, form: str, to: str) -> int:
    async with target.open() as jobs:
        record = await jobs.record(name)
    text = output.json_text(record) + "\n" if form == "json" else record_page(record)
    return _deliver(text, to or ("-" if form == "json" else f"{record.summary.name}.html"))


def _deliver(text: str, to: str) -> int:
    if to == "-":
        say(text, nl=False)
        return 0
    try:
        _write_private(Path(to), text)
    except OSError as error:
        shared.say_error(f"cannot write {to}: {error.strerror}")
        return shared.BAD_INPUT
    say(f"wrote {to}")
    return 0


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read. A symbolic link is replaced, not followed."""
    if path.is_relative_to("/dev") or path.is_relative_to("/proc"):
        path.write_text(text, encoding="utf-8")  # /dev/stdout may be a link to a regular file
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink()
        raise
