"""Completion of names and ranks, for shells and for kubectl (`kubectl_complete-pdj`)."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from typing import Any

import click
from click.shell_completion import ShellComplete

from paddlejob.api.v1 import Role
from paddlejob.cli.kubectl import group
from paddlejob.cli.target import Target
from paddlejob.cli.terminal import say
from paddlejob.client.job import LATEST
from paddlejob.client.ranks import processes_per_pod

TIMEOUT_SECONDS = 3.0
MAX_NUMBERS = 1000
"""Maximum number of ranks of processes that are completed."""
NO_FILE_COMPLETION = 4
"""Directive of cobra: do not complete file names."""
FILE_COMPLETION = 0


def main() -> None:
    """Print the completions of `kubectl pdj WORDS...` in the format of cobra, which kubectl uses."""
    words, incomplete = (sys.argv[1:-1], sys.argv[-1]) if len(sys.argv) > 1 else ([], "")
    items = ShellComplete(group, {}, "kubectl pdj", "").get_completions(words, incomplete)
    takes_file = any(item.type == "file" for item in items)
    for item in items:
        if item.type == "plain" and item.value != "--run-dir":
            say(f"{item.value}\t{item.help}" if item.help else item.value)
    say(f":{FILE_COMPLETION if takes_file else NO_FILE_COMPLETION}")


def job_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the names of jobs with this prefix."""

    async def find(target: Target) -> list[str]:
        async with target.open() as jobs:
            return [job.name for job in await jobs.list()]

    return [name for name in _answer(find(_target(ctx))) if name.startswith(incomplete)]


def rank_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the ranks with this prefix of the job on the command line."""
    # click has not parsed the arguments yet if the command line ends with an option.
    job = ctx.params.get("job")
    if job in (None, LATEST):
        job = next(iter(ctx.args), LATEST)

    async def find(target: Target) -> list[str]:
        async with target.open() as jobs:
            state = (await jobs.get(str(job))).state
        pods = [f"{role}-{index}" for role, each in state.spec.roles() for index in range(each.replicas)]
        count = processes_per_pod(state)
        numbers = range(count * state.spec.replicas(Role.WORKER)) if count > 1 else range(0)
        return pods + [str(rank) for rank in numbers[:MAX_NUMBERS]]

    return [rank for rank in _answer(find(_target(ctx))) if rank.startswith(incomplete)]


def _target(ctx: click.Context) -> Target:
    """Return the target of an incomplete command line."""
    root = ctx.find_root()
    is_local = root.info_name == "paddlejob"
    flags = [ctx.params.get(name) or root.params.get(name) for name in ("namespace", "context", "kubeconfig")]
    return Target(root.info_name or "", is_local and not any(flags), ctx.params.get("run_dir"), *flags)


def _answer(work: Coroutine[Any, Any, list[str]]) -> list[str]:
    """Return the result of a query; nothing after an error or a timeout."""
    logging.getLogger("paddlejob").addHandler(logging.NullHandler())

    async def within_time() -> list[str]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await work

    try:
        return asyncio.run(within_time())
    except Exception:  # noqa: BLE001 - a shell must not see errors
        return []


if __name__ == "__main__":
    main()
