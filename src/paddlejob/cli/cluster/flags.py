"""Which jobs a command is about: the flags that kubectl has, and what they mean here.

`kubectl pdj VERB` is about a cluster. `paddlejob VERB` is about the runs on this machine, and about a cluster
when -n, -A, --context or --kubeconfig says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from paddlejob.cli.terminal import say

if TYPE_CHECKING:
    from paddlejob.client.job import Jobs

Function = Callable[..., Any]

_CLUSTER_FLAGS = ("-n", "--namespace", "-A", "--all-namespaces", "--context", "--kubeconfig")


class Program(NamedTuple):
    """The program that was started, and the flags before its verb."""

    name: str
    is_local: bool
    flags: tuple[str | None, str | None, str | None] = (None, None, None)


class Target(NamedTuple):
    """Where the jobs are that a command is about."""

    program: str
    is_local: bool
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    def open(self) -> Jobs:
        """Return the jobs of the cluster that kubectl would talk to, or of this machine. Raises KubeError."""
        if self.is_local:
            from paddlejob.client.local_runs import LocalRuns  # noqa: PLC0415

            return LocalRuns.open()
        from paddlejob.client.cluster import Cluster  # noqa: PLC0415

        cluster = Cluster.open(kubeconfig=self.kubeconfig, context=self.context, namespace=self.namespace)
        cluster.on_trouble = _Trouble().tell
        return cluster

    @property
    def command(self) -> str:
        """How a person calls this program for these jobs, to be followed by a verb."""
        flags = (("-n", self.namespace), ("--context", self.context), ("--kubeconfig", self.kubeconfig))
        return " ".join([self.program, *(f"{flag} {value}" for flag, value in flags if value)])


class _Trouble:
    """Tells whoever waits that a connection is broken, and that all are whole again, once each."""

    def __init__(self) -> None:
        self._broken: set[str] = set()

    def tell(self, watched: str, text: str) -> None:
        before = bool(self._broken)
        if text:
            self._broken.add(watched)
        else:
            self._broken.discard(watched)
        if bool(self._broken) != before:
            say(f"cannot follow right now, trying again: {text}" if text else "following again", err=True)


def cluster_flags(function: Function) -> Function:
    """Add -n, --context and --kubeconfig."""
    for option in (
        click.option("--kubeconfig", default=None, metavar="FILE", help="Kubeconfig to use."),
        click.option("--context", default=None, metavar="NAME", help="Context of the kubeconfig to use."),
        click.option(
            "--namespace", "-n", default=None, metavar="NAME", help="Namespace; default: that of the context."
        ),
    ):
        function = option(function)
    return function


def target_flags(function: Function) -> Function:
    """Add the flags that choose a cluster, and give the function the `target` that they mean."""

    @functools.wraps(function)
    def with_target(
        namespace: str | None, context: str | None, kubeconfig: str | None, **arguments: Any
    ) -> Any:
        program: Program = click.get_current_context().obj
        given = (namespace, context, kubeconfig)
        chosen = tuple(mine or before for mine, before in zip(given, program.flags, strict=True))
        # A flag chooses the cluster also when it is empty, as that of an unset variable: never a guess.
        is_local = program.is_local and set(given) == {None} and not arguments.get("all_namespaces")
        return function(target=Target(program.name, is_local, *chosen), **arguments)

    return cluster_flags(with_target)


def means_cluster(arguments: Iterable[str]) -> bool:
    """Tell whether the arguments of a verb choose a cluster."""
    for argument in arguments:
        if argument == "--":
            return False
        if argument.partition("=")[0] in _CLUSTER_FLAGS or argument.startswith(("-n", "-A")):
            return True
    return False
