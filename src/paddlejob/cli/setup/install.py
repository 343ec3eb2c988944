"""`install`: the CRD and the operator on a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from paddlejob import bundle, install
from paddlejob.cli import shared
from paddlejob.cli.target import Program, Target
from paddlejob.cli.terminal import say
from paddlejob.client.cluster import Cluster
from paddlejob.client.errors import ClientError
from paddlejob.install import Options, apply, await_operator


@click.command("install")
@click.option(
    "--apply", "is_applied", is_flag=True, help="Apply the manifests, and wait until the operator runs."
)
@click.option("--namespace", "-n", default="", help="Namespace of the operator. Default: paddle-system.")
@click.option("--image", default="", help="Image of the operator. Default: paddlejob-operator:VERSION.")
@click.option(
    "--replicas",
    type=click.IntRange(min=1),
    default=1,
    help="Replicas of the operator; one of them is the leader.",
)
@click.option(
    "--namespaced",
    is_flag=True,
    help="Restrict the operator and its RBAC to its own namespace.",
)
@click.option("--skip-crd", is_flag=True, help="Leave out the CRD, which only an administrator may install.")
@click.option("--dashboard", is_flag=True, help="Install the dashboard too.")
@click.option("--chart", type=click.Path(path_type=Path), help="Write the Helm chart to this folder instead.")
@click.option("--dry-run", is_flag=True, help="With --apply: let the API server check, and change nothing.")
@click.option("--force-conflicts", is_flag=True, help="With --apply: take over fields of other managers.")
@click.option(
    "--timeout", type=shared.Duration(), default=120.0, help="With --apply: longest wait. Default: 2m."
)
@click.option("--context", default=None, metavar="NAME", help="Context of the kubeconfig to use.")
@click.option("--kubeconfig", default=None, metavar="FILE", help="Kubeconfig to use.")
@click.pass_obj
def command(
    program: Program,
    is_applied: bool,
    namespace: str,
    image: str,
    replicas: int,
    namespaced: bool,
    skip_crd: bool,
    dashboard: bool,
    chart: Path | None,
    dry_run: bool,
    force_conflicts: bool,
    timeout: float,
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Print the manifests of the CRD and the operator of this version, or apply them to a cluster.

    install --image IMAGE | kubectl apply --server-side -f -
    """
    if chart:
        with shared.errors_shown():
            _write_chart(chart)
        return
    before = program.flags
    options = Options(
        namespace=namespace or before[0] or install.NAMESPACE,
        image=image or install.IMAGE,
        namespaced=namespaced,
        replicas=replicas,
        crd=not skip_crd,
        dashboard=dashboard,
    )
    if not is_applied:
        say(install.manifests(options), nl=False)
        return
    target = Target(
        program.name, is_local=False, context=context or before[1], kubeconfig=kubeconfig or before[2]
    )
    shared.run(_apply(target, options, force=force_conflicts, dry_run=dry_run, seconds=timeout))


def _write_chart(folder: Path) -> None:
    try:
        bundle.write(bundle.folder(bundle.CHART), folder)
    except OSError as error:
        raise ClientError(f"cannot write {folder}: {error.strerror}") from error
    say(f"wrote {folder}; install it: helm install paddle {folder} -n paddle-system --create-namespace")


async def _apply(target: Target, options: Options, *, force: bool, dry_run: bool, seconds: float) -> int:
    import yaml  # noqa: PLC0415 - takes long to import

    objects = list(yaml.safe_load_all(install.manifests(options)))
    async with Cluster.open(kubeconfig=target.kubeconfig, context=target.context) as cluster:
        async for line in apply(cluster.client, objects, force=force, dry_run=dry_run):
            say(line)
        if dry_run:
            return 0
        deployment = next(each["metadata"]["name"] for each in objects if each["kind"] == "Deployment")
        await await_operator(cluster.client, options.namespace, deployment, seconds)
    where = f"jobs in namespace {options.namespace}" if options.namespaced else "jobs in all namespaces"
    say(f"the operator runs in namespace {options.namespace} and reconciles {where}")
    return 0
