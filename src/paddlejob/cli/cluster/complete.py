"""Completion of names and ranks, for shells and for kubectl (`kubectl_complete-pdj`)."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

import click

from paddlejob.cli.cluster.flags import Target
from paddlejob.cli.terminal import say

TIMEOUT_SECONDS = 3.0
NO_FILE_COMPLETION = 4
"""Directive of cobra, which kubectl uses: do not complete file names."""
FILE_COMPLETION = 0


def main() -> None:
    """Print what kubectl offers for `kubectl pdj WORDS...`, and whether it may offer files too."""
    from click.shell_completion import ShellComplete  # noqa: PLC0415

    from paddlejob.cli.cluster.main import group  # noqa: PLC0415

    words, incomplete = (sys.argv[1:-1], sys.argv[-1]) if len(sys.argv) > 1 else ([], "")
    items = ShellComplete(group, {}, "kubectl pdj", "").get_completions(words, incomplete)
    takes_file = any(item.type == "file" for item in items)
    for item in items:
        if item.type == "plain":
            say(f"{item.value}\t{item.help}" if item.help else item.value)
    say(f":{FILE_COMPLETION if takes_file else NO_FILE_COMPLETION}")


def job_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the names of jobs that begin so."""

    async def find(target: Target) -> list[str]:
        async with target.open() as jobs:
            return [job.name for job in await jobs.list()]

    return [name for name in _answer(find(_target(ctx))) if name.startswith(incomplete)]


def rank_names(ctx: click.Context, incomplete: str) -> list[str]:
    """Return the ranks of the job that is named on the command line."""
    # Of a command line that ends with an option the arguments are not sorted out yet.
    job = ctx.params.get("job") or next(iter(ctx.args), None)

    async def find(target: Target) -> list[str]:
        async with target.open() as jobs:
            spec = (await jobs.get(str(job))).state.spec
        return [f"{role}-{index}" for role, each in spec.roles() for index in range(each.replicas)]

    return [rank for rank in _answer(find(_target(ctx))) if rank.startswith(incomplete)] if job else []


def _target(ctx: click.Context) -> Target:
    """Return the target of a command line that is not complete."""
    root = ctx.find_root()
    is_local = root.info_name == "paddlejob"
    flags = [ctx.params.get(name) or root.params.get(name) for name in ("namespace", "context", "kubeconfig")]
    return Target(root.info_name or "", is_local and not any(flags), *flags)


def _answer(work: Coroutine[Any, Any, list[str]]) -> list[str]:
    """Return what a query finds; a shell never sees an error and never waits long."""
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415

    logging.getLogger("paddlejob").addHandler(logging.NullHandler())

    async def within_time() -> list[str]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await work

    try:
        return asyncio.run(within_time())
    except Exception:  # noqa: BLE001 - whatever it is, there is nothing to offer
        return []


if __name__ == "__main__":
    main()
