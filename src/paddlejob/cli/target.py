"""The flags that choose between the runs on this machine and the jobs on a cluster.

`kubectl pdj VERB` works on a cluster. `paddlejob VERB` works on the runs on this machine, and on a cluster
with -n, -A, --context or --kubeconfig.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from paddlejob.client.job import Jobs

Function = Callable[..., Any]


class Program(NamedTuple):
    """The program that was started, and the flags before its verb."""

    name: str
    is_local: bool
    flags: tuple[str | None, str | None, str | None] = (None, None, None)


class Target(NamedTuple):
    """The place of the jobs that a command works on."""

    program: str
    is_local: bool
    run_dir: Path | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def open(self) -> Jobs:
        """Return the jobs of this machine, or of the cluster that kubectl would use. Raises KubeError."""
        # Only one of the two is needed, and each takes a tenth of a second to import.
        if self.is_local:
            from paddlejob.client.local_runs import LocalRuns  # noqa: PLC0415

            return LocalRuns.open(self.run_dir)
        from paddlejob.client.cluster import Cluster  # noqa: PLC0415

        cluster = Cluster.open(kubeconfig=self.kubeconfig, context=self.context, namespace=self.namespace)
        cluster.on_trouble = _ConnectionNotice().show
        return cluster

    def command(self, words: str) -> str:
        """Return the command line for a verb with its arguments, with the flags of this target."""
        flags = (("-n", self.namespace), ("--context", self.context), ("--kubeconfig", self.kubeconfig))
        given = (f"{flag} {value}" for flag, value in flags if value)
        run_dir = ("--run-dir", shlex.quote(str(self.run_dir))) if self.run_dir else ()
        return " ".join([self.program, *given, words, *run_dir])


class _ConnectionNotice:
    """Reports once that a connection is broken, and once that all connections work again."""

    def __init__(self) -> None:
        self._broken: set[str] = set()

    def show(self, watched: str, text: str) -> None:
        before = bool(self._broken)
        if text:
            self._broken.add(watched)
        else:
            self._broken.discard(watched)
        if bool(self._broken) != before:
            say(f"cannot follow right now, trying again: {text}" if text else "following again", err=True)


class _RunDirOption(click.Option):
    """`--run-dir`, which the help of `kubectl pdj` does not show."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        program = ctx.obj
        is_cluster = isinstance(program, Program) and not program.is_local
        return None if is_cluster else super().get_help_record(ctx)


def run_dir_flag(function: Function) -> Function:
    """Add --run-dir."""
    return click.option(
        "--run-dir",
        cls=_RunDirOption,
        type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
        default=None,
        metavar="DIR",
        help="Directory of the runs. Default: $PADDLEJOB_RUNS, or ~/.local/state/paddlejob/runs.",
    )(function)


def cluster_flags(function: Function) -> Function:
    """Add -n, --context and --kubeconfig."""
    for option in (
        click.option("--kubeconfig", default=None, metavar="FILE", help="Kubeconfig to use."),
        click.option("--context", default=None, metavar="NAME", help="Context of the kubeconfig to use."),
        click.option(
            "--namespace", "-n", default=None, metavar="NAME", help="Namespace. Default: that of the context."
        ),
    ):
        function = option(function)
    return function


def target_flags(function: Function) -> Function:
    """Add the flags that choose the jobs, and pass the resulting `target` to the function."""

    @functools.wraps(function)
    def with_target(
        namespace: str | None,
        context: str | None,
        kubeconfig: str | None,
        run_dir: Path | None,
        **arguments: Any,
    ) -> Any:
        program: Program = click.get_current_context().obj
        given = (namespace, context, kubeconfig)
        # An empty flag, as from an unset shell variable, chooses the cluster too.
        is_local = program.is_local and set(given) == {None} and not arguments.get("all_namespaces")
        if run_dir and not is_local:
            raise click.UsageError("--run-dir is for runs on this machine, not for a cluster")
        chosen = (mine or before for mine, before in zip(given, program.flags, strict=True))
        target = Target(program.name, is_local, run_dir, *chosen)
        return function(target=target, **arguments)

    return cluster_flags(run_dir_flag(with_target))
