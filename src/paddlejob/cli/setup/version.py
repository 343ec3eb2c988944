"""`version` and `completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

import paddlejob
from paddlejob.api.resources import PADDLE_JOBS
from paddlejob.cli import output, shared
from paddlejob.cli.target import Program, Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client.cluster import Cluster


@click.command("version")
@click.option("--client", is_flag=True, help="Do not ask the cluster.")
@output.output_option("json", "yaml")
@target_flags
def command(target: Target, client: bool, form: str | None) -> None:
    """Show the versions of this program and of the cluster."""
    shared.run(_version(target, client_only=client or target.is_local, form=form))


async def _version(target: Target, *, client_only: bool, form: str | None) -> int:
    found = {"clientVersion": paddlejob.__version__}
    try:
        if not client_only:
            found |= await _cluster_versions(target)
    finally:
        # Our own version is printed also if the cluster does not answer.
        _print_versions(found, form)
    return 0


async def _cluster_versions(target: Target) -> dict[str, str]:
    async with target.open() as jobs:
        assert isinstance(jobs, Cluster)
        version = (await jobs.client.server_version()).git_version
        has_jobs = await jobs.client.has_resource(PADDLE_JOBS)
    return {"serverVersion": version, "paddleJobs": PADDLE_JOBS.api_version if has_jobs else "not installed"}


def _print_versions(found: dict[str, str], form: str | None) -> None:
    if form:
        output.print_object(found, form)
        return
    titles = {
        "clientVersion": "Client Version",
        "serverVersion": "Server Version",
        "paddleJobs": "PaddleJobs",
    }
    for key, value in found.items():
        say(f"{titles[key]}: {value}")


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes commands, job names and ranks.

    `kubectl pdj` does not need it if kubectl's own completion is set up, which finds kubectl_complete-pdj on
    the PATH.
    """
    program: Program = ctx.obj
    name = program.name.replace(" ", "-")
    variable = f"_{name.replace('-', '_')}_COMPLETE".upper()
    found = get_completion_class(shell)
    assert found is not None
    say(found(ctx.find_root().command, {}, name, variable).source())
