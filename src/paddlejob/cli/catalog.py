"""The verbs of `paddlejob` and `kubectl pdj`, in the order and the sections of their help."""

from __future__ import annotations

from collections.abc import Mapping

Table = Mapping[str, tuple[str, str]]
"""Verb to its command (`module`, or `module:name` unless the name is `command`) and a line of help."""

_SHOW, _CHANGE, _SETUP = "paddlejob.cli.show", "paddlejob.cli.change", "paddlejob.cli.setup"


def all_verbs(sections: Mapping[str, Table]) -> Table:
    """Return the verbs of all sections in one table."""
    return {verb: entry for table in sections.values() for verb, entry in table.items()}


SECTIONS: Mapping[str, Table] = {
    "Start training": {
        "init": (f"{_SETUP}.init", "Write a job file for a program, or an example."),
        "run": (f"{_CHANGE}.run", "Run a job file on this machine, without a cluster."),
        "submit": (f"{_CHANGE}.submit", "Submit job files, and optionally follow the jobs."),
        "validate": (f"{_CHANGE}.submit:validate", "Check job files without submitting them."),
        "retry": (f"{_CHANGE}.retry", "Run a finished job again, as a new job."),
    },
    "Look at jobs": {
        "get": (f"{_SHOW}.get", "List jobs with status, progress and result."),
        "logs": (f"{_SHOW}.logs", "Show or follow the logs of a job."),
        "describe": (f"{_SHOW}.describe", "Show a job, its ranks and its events."),
        "explain": (f"{_SHOW}.explain", "Explain why a job is stuck or failed, and what to do."),
        "top": (f"{_SHOW}.top", "Show jobs, or the ranks of one, live."),
        "attach": (f"{_SHOW}.attach", "Watch a live run on this machine, as `run` shows it."),
        "wait": (f"{_SHOW}.wait", "Wait until jobs end, or reach another state."),
        "ui": (f"{_SHOW}.ui", "Show jobs in a browser, live."),
        "events": (f"{_SHOW}.events", "List the events of a job and its pods."),
        "env": (f"{_SHOW}.env", "Show the environment of a rank."),
        "stack": (f"{_SHOW}.stack", "Show the current call stack of each rank."),
        "history": (f"{_SHOW}.history", "List finished jobs, including deleted ones."),
        "postmortem": (f"{_SHOW}.history:postmortem", "Write a report about a job to an HTML page."),
    },
    "Change jobs": {
        "stop": (f"{_CHANGE}.suspend:stop", "Stop a job and keep its record."),
        "delete": (f"{_CHANGE}.delete", "Delete jobs with everything that belongs to them."),
        "scale": (f"{_CHANGE}.scale", "Change the number of workers of a job."),
        "suspend": (f"{_CHANGE}.suspend:suspend", "Stop the pods of a job until `resume`."),
        "resume": (f"{_CHANGE}.suspend:resume", "Start the pods of a suspended job again."),
    },
    "Work inside a rank": {
        "cp": (f"{_CHANGE}.cp", "Copy files out of a rank or into it."),
        "exec": (f"{_CHANGE}.execute", "Run a command in a rank."),
        "port-forward": (f"{_CHANGE}.port_forward", "Forward ports of this machine to a rank."),
    },
    "Set up a cluster": {
        "install": (f"{_SETUP}.install", "Print or apply the manifests of the operator."),
        "operator": (f"{_SETUP}.operator", "Run the operator."),
        "dashboard": (f"{_SETUP}.dashboard", "Serve the dashboard to many users."),
        "convert": (f"{_SETUP}.kubeflow:convert", "Convert PaddleJobs of Kubeflow, with a report."),
        "import": (f"{_SETUP}.kubeflow:import_", "Move running PaddleJobs of Kubeflow to this operator."),
    },
    "Plain Kubernetes Jobs": {
        "data": (f"{_SETUP}.data", "Prepare training data for a plain Kubernetes Job."),
        "start": (f"{_SETUP}.start", "Start training inside a plain Kubernetes Job."),
    },
    "Help": {
        "docs": (f"{_SETUP}.docs", "Show the documentation of this version, offline."),
        "version": (f"{_SETUP}.version", "Show the versions of this program and of the cluster."),
        "completion": (f"{_SETUP}.version:completion", "Print the completion script for a shell."),
    },
}

ONLY_PADDLEJOB = frozenset({"attach", "dashboard", "data", "docs", "init", "operator", "run", "start"})
"""Verbs that `kubectl pdj` does not have."""

KUBECTL_SECTIONS: Mapping[str, Table] = {
    title: verbs
    for title, table in SECTIONS.items()
    if (verbs := {verb: entry for verb, entry in table.items() if verb not in ONLY_PADDLEJOB})
}

FIRST_VERBS = ("init", "run", "get", "logs", "describe", "explain", "stop", "ui")
"""The verbs that `paddlejob` shows without arguments."""

ALIASES: Mapping[str, str] = {"runs": "get", "rm": "delete"}
"""Other names of a verb, which help does not list."""

SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("ps", "ls", "list", "status"), "get"),
    **dict.fromkeys(("create", "apply", "up"), "run"),
    **dict.fromkeys(("remove", "prune"), "delete"),
    **dict.fromkeys(("kill", "cancel", "down"), "stop"),
    "manifests": "install",
}
"""Words of other tools, which an error answers with our verb."""

VERBS = all_verbs(SECTIONS)
KUBECTL_VERBS = all_verbs(KUBECTL_SECTIONS)
