"""`kubectl pdj`: PaddleJobs on a cluster."""

from __future__ import annotations

import click

import paddlejob
from paddlejob.cli.cluster.flags import Program, cluster_flags
from paddlejob.cli.verbs import Table, Verbs

_HERE = "paddlejob.cli.cluster"

RUN_VERBS: Table = {
    "submit": (f"{_HERE}.submit", "Submit jobs from files, and optionally follow them."),
    "get": (f"{_HERE}.get", "List jobs: status, duration, reason."),
    "describe": (f"{_HERE}.inspect:describe", "Show a job, its ranks and its events."),
    "explain": (f"{_HERE}.inspect:explain", "Explain why a job is stuck or failed, and what to do."),
    "logs": (f"{_HERE}.logs", "Show or follow the logs of all ranks, or of some."),
    "wait": (f"{_HERE}.inspect:wait", "Wait until jobs end, or reach another state."),
    "top": (f"{_HERE}.top", "Show jobs, or the ranks of one, live."),
    "ui": ("paddlejob.cli.ui", "Show jobs in a browser, live."),
    "events": (f"{_HERE}.inspect:events", "List what happened to a job and its pods."),
    "history": ("paddlejob.cli.history:history", "List finished jobs, including deleted ones."),
    "postmortem": ("paddlejob.cli.history:postmortem", "Write a report about a job to an HTML page."),
}
CHANGE_VERBS: Table = {
    "scale": (f"{_HERE}.change:scale", "Change the number of workers of a job."),
    "suspend": (f"{_HERE}.change:suspend", "Stop the pods of a job until `resume`."),
    "resume": (f"{_HERE}.change:resume", "Start the pods of a suspended job again."),
    "retry": (f"{_HERE}.change:retry", "Run a finished job again, as a new job."),
    "stop": (f"{_HERE}.change:stop", "Stop the pods of a job and keep the job."),
    "delete": (f"{_HERE}.change:delete", "Delete jobs and everything that belongs to them."),
}
POD_VERBS: Table = {
    "env": (f"{_HERE}.inspect:env", "Show the environment of one rank."),
    "exec": (f"{_HERE}.pods:execute", "Run a command in a rank."),
    "stack": (f"{_HERE}.pods:stack", "Show where in its code each rank is."),
    "cp": (f"{_HERE}.pods:copy", "Copy files out of a rank or into it."),
    "port-forward": (f"{_HERE}.pods:port_forward", "Forward ports of this machine to a rank."),
}
OTHER_VERBS: Table = {
    "validate": (f"{_HERE}.submit:validate", "Check job files without submitting them."),
    "convert": ("paddlejob.cli.kubeflow:convert", "Convert PaddleJobs of Kubeflow, with a report."),
    "import": ("paddlejob.cli.kubeflow:import_", "Move running PaddleJobs of Kubeflow to this operator."),
    "install": ("paddlejob.cli.install", "Print or apply what installs the operator on a cluster."),
    "version": (f"{_HERE}.about:version", "Show the versions of this program and of the cluster."),
    "completion": (
        f"{_HERE}.about:completion",
        "Print a script that completes commands and names in a shell.",
    ),
}
SECTIONS = {
    "Jobs": RUN_VERBS,
    "Changes": CHANGE_VERBS,
    "Ranks": POD_VERBS,
    "Other": OTHER_VERBS,
}
VERBS: Table = {**RUN_VERBS, **CHANGE_VERBS, **POD_VERBS, **OTHER_VERBS}

EPILOG = (
    "Exit codes: 0 done, or the job completed; 1 the job failed; 2 the command is wrong or could not be "
    "carried out; 124 timed out; 130 interrupted."
)


@click.command(
    cls=Verbs,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@cluster_flags
@click.version_option(paddlejob.__version__, prog_name="kubectl pdj")
@click.pass_context
def group(ctx: click.Context, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Submit, follow and change PaddleJobs on a cluster, with kubectl's flags and your own permissions.

    JOB is the exact name of a job, or @latest for the newest one.
    """
    ctx.obj = Program("kubectl pdj", is_local=False, flags=(namespace, context, kubeconfig))


def main() -> None:
    """Run the command, under the name by which kubectl's users call it."""
    group(prog_name="kubectl pdj")


if __name__ == "__main__":
    main()
