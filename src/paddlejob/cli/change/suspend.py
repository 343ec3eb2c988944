"""`suspend`, `resume` and `stop`: stop the pods of jobs, and start them again."""

from __future__ import annotations

import click

from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags


@click.command("suspend")
@shared.changed_jobs
@target_flags
def suspend(target: Target, names: tuple[str, ...]) -> None:
    """Stop the pods of each JOB until `resume`."""
    shared.run(shared.change_each(target, names, lambda job: job.suspend()))


@click.command("resume")
@shared.changed_jobs
@target_flags
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Start the pods of each suspended JOB again."""
    shared.run(shared.change_each(target, names, lambda job: job.resume()))


@click.command("stop")
@shared.changed_jobs
@target_flags
def stop(target: Target, names: tuple[str, ...]) -> None:
    """Stop the pods of each JOB and keep its record, logs and files.

    Pods get SIGTERM and their grace period to save their work. On a cluster this is the same as `suspend`.
    """
    shared.run(shared.change_each(target, names, lambda job: job.stop()))
