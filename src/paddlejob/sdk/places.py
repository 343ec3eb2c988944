"""Where jobs run: on this machine, or on a cluster that the user's kubeconfig knows."""

from __future__ import annotations

import sys

from paddlejob.client.job import Jobs
from paddlejob.sdk.background import BACKGROUND
from paddlejob.sdk.errors import JobError

LAPTOP = "laptop"
CLUSTER = "cluster"


def open_jobs(where: str, namespace: str | None = None, *, python: str = "") -> Jobs:
    """Return the jobs of a place: `laptop`, `cluster` for the current context, or the name of a context.

    Raises JobError.
    """
    if where == LAPTOP:
        return _local_runs(namespace, python)
    if python:
        raise JobError("python= is for where='laptop'; on a cluster the image has its own")
    from paddlejob.client.cluster import Cluster  # noqa: PLC0415 - a laptop run does not need it

    async def opened() -> Cluster:
        return Cluster.open(context=None if where == CLUSTER else where, namespace=namespace)

    cluster = BACKGROUND.call(opened)
    BACKGROUND.close_with(cluster, cluster.client.close)
    return cluster


def _local_runs(namespace: str | None, python: str) -> Jobs:
    from paddlejob.client.local_runs import LocalRuns  # noqa: PLC0415

    if namespace:
        raise JobError("namespace= is for a cluster; the runs on a laptop have none")
    return LocalRuns.open(python=python or sys.executable)
