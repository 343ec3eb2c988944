"""The `paddlejob` command. A verb's module is imported when the verb is used, so that help is instant."""

from __future__ import annotations

import click

import paddlejob
from paddlejob.cli.cluster.flags import Program, means_cluster
from paddlejob.cli.cluster.main import VERBS as CLUSTER_VERBS
from paddlejob.cli.verbs import Verbs, load

VERBS = {
    "operator": ("paddlejob.cli.operator", "Run the operator that makes PaddleJobs work on a cluster."),
    "dashboard": ("paddlejob.cli.dashboard", "Serve the dashboard inside a cluster, to many users."),
    "install": ("paddlejob.cli.install", "Print or apply what installs the operator on a cluster."),
    "init": ("paddlejob.cli.init", "Write a job file for a program, or an example."),
    "docs": ("paddlejob.cli.docs", "Show the documentation of this version, offline."),
    "run": ("paddlejob.cli.local.run", "Run a PaddleJob on this machine, without a cluster."),
    "runs": ("paddlejob.cli.local.runs", "List the runs on this machine."),
    "attach": ("paddlejob.cli.local.attach", "Watch a live run as if it had been started here."),
    "logs": ("paddlejob.cli.local.logs", "Show the logs of a run."),
    "env": ("paddlejob.cli.local.env", "Show the environment of one rank of a run."),
    "scale": ("paddlejob.cli.local.scale", "Change the number of workers of a live run."),
    "suspend": ("paddlejob.cli.local.suspend", "Pause a live run: stop its pods until `resume`."),
    "resume": ("paddlejob.cli.local.resume", "Resume a suspended run."),
    "stop": ("paddlejob.cli.local.stop", "Stop a live run; its logs and files stay."),
    "cp": ("paddlejob.cli.local.cp", "Copy files that a pod of a run wrote."),
    "rm": ("paddlejob.cli.local.rm", "Remove the logs and files of finished runs."),
    "data": ("paddlejob.cli.data", "Prepare training data for a plain Kubernetes Job."),
    "start": ("paddlejob.cli.start", "Start training inside a plain Kubernetes Job."),
}
"""Verb to module and one line of help. The module's command carries the verb's name."""


SYNONYMS = {
    **dict.fromkeys(("ps", "ls", "list", "status"), "runs"),
    **dict.fromkeys(("create", "apply", "up"), "run"),
    **dict.fromkeys(("remove", "prune"), "rm"),
    "manifests": "install",
    **dict.fromkeys(("kill", "cancel", "down"), "stop"),
}
"""What other tools call a verb."""

BOTH_VERBS = {verb: entry for verb, entry in CLUSTER_VERBS.items() if verb not in VERBS}
"""Verbs that are written once for runs on this machine and for jobs on a cluster."""


class Dispatch(Verbs):
    """Verbs about runs on this machine, or about a cluster when a flag of the verb chooses one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take the verb about a cluster when -n, -A, --context or --kubeconfig is among its flags."""
        verb, *arguments = args
        if verb in CLUSTER_VERBS and means_cluster(arguments):
            return verb, load(CLUSTER_VERBS[verb][0]), arguments
        return super().resolve_command(ctx, args)


@click.command(
    cls=Dispatch,
    sections={
        "Commands": VERBS,
        "Runs on this machine, or with -n or --context jobs on a cluster": BOTH_VERBS,
    },
    synonyms=SYNONYMS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(paddlejob.__version__, "--version", "-V", prog_name="paddlejob")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Train PaddlePaddle on Kubernetes, or on this machine with the same YAML.

    `kubectl pdj` has the same verbs for jobs on a cluster.
    """
    ctx.obj = Program("paddlejob", is_local=True)


if __name__ == "__main__":
    main()
