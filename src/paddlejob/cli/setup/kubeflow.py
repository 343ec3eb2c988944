"""`convert` and `import`: from Kubeflow's PaddleJob to ours."""

from __future__ import annotations

import sys

import click

from paddlejob.api.meta import JsonObject
from paddlejob.cli import shared
from paddlejob.cli.target import Target, target_flags
from paddlejob.cli.terminal import say
from paddlejob.client import kubeflow
from paddlejob.client import manifest as manifests
from paddlejob.client.cluster import Cluster
from paddlejob.client.errors import UnsupportedError
from paddlejob.kubeflow import Converted, differences, is_kubeflow
from paddlejob.kubeflow import convert as convert_job


@click.command("convert")
@shared.files_argument
@click.option("--elastic", is_flag=True, help="Convert elasticPolicy too, which Kubeflow never acted on.")
@click.option("--quiet", "-q", is_flag=True, help="Print the converted jobs only, without the report.")
def convert(files: tuple[str, ...], more: tuple[str, ...], elastic: bool, quiet: bool) -> None:
    """Print PaddleJobs of kubeflow.org/v1 as jobs of this operator; other objects are printed unchanged.

    The report on stderr lists lost and changed fields, and differences in the variables of the pods.
    """
    sources = shared.required_files(files, more)
    with shared.errors_shown():
        sys.exit(_convert(sources, elastic=elastic, quiet=quiet))


def _convert(sources: tuple[str, ...], *, elastic: bool, quiet: bool) -> int:
    code, written = 0, []
    for source in sources:
        read = manifests.read(shared.read_text(source), shared.source_name(source))
        for document in [each for found in read for each in found]:
            if not is_kubeflow(document):
                written.append(document)
                continue
            result = convert_job(document, elastic=elastic)
            written.append(result.manifest)
            problems = manifests.problems(result.manifest)
            if not quiet:
                _report(document, result, is_valid=not problems)
            if problems:
                shared.say_error(*(f"{manifests.name_of(document)}: {each}" for each in problems))
                code = shared.FAILED
    say(manifests.dump(written), nl=False)
    return code


def _report(document: JsonObject, result: Converted, *, is_valid: bool) -> None:
    name = result.manifest["metadata"].get("name") or result.manifest["metadata"].get("generateName")
    say(f"{name}:", err=True)
    for finding in result.findings:
        say(f"  {finding}", err=True)
    if is_valid:
        for pod, found in differences(document, result.manifest):
            say(f"  environment of {pod}:", err=True)
            for each in found:
                say(f"    {each}", err=True)


@click.command("import")
@click.argument("names", nargs=-1, metavar="JOB...")
@click.option("--all", "all_jobs", is_flag=True, help="Move all jobs of the namespace that have not ended.")
@click.option("--elastic", is_flag=True, help="Convert elasticPolicy too, which Kubeflow never acted on.")
@click.option("--dry-run", is_flag=True, help="Only check: convert, let the API server check, and report.")
@click.option(
    "--timeout", type=shared.Duration(), default=300.0, help="Longest wait for old pods. Default: 5m."
)
@target_flags
def import_(
    target: Target, names: tuple[str, ...], all_jobs: bool, elastic: bool, dry_run: bool, timeout: float
) -> None:
    """Move running PaddleJobs of kubeflow.org/v1 to this operator, with their names and queues.

    Each is suspended, and resumes from its checkpoint as a job of this operator when its pods are gone.

    The old one stays suspended until you delete it.
    """
    if bool(names) == all_jobs:
        raise click.UsageError("give names of jobs, or --all")
    shared.run(_import(target, names, elastic=elastic, dry_run=dry_run, seconds=timeout))


async def _import(
    target: Target, names: tuple[str, ...], *, elastic: bool, dry_run: bool, seconds: float
) -> int:
    if target.is_local:
        raise UnsupportedError("jobs of Kubeflow are on a cluster; choose one with -n or --context")
    async with Cluster.open(
        kubeconfig=target.kubeconfig, context=target.context, namespace=target.namespace
    ) as cluster:
        found = await kubeflow.kubeflow_jobs(cluster, names)
        if not found:
            say(f"no PaddleJobs of kubeflow.org/v1 to import in namespace {cluster.namespace}", err=True)
        # All are converted before the first one is changed.
        results = [kubeflow.convert_job(body, elastic=elastic) for body in found]
        for body, result in zip(found, results, strict=True):
            _report(body, result, is_valid=True)
            if dry_run:
                job = await cluster.submit(result.manifest, dry_run=True)
                say(f"{job.kind_and_name} would be imported")
                continue
            job = await kubeflow.move(cluster, body, result.manifest, seconds=seconds, report=say)
            say(
                f"{job.kind_and_name} imported; delete the old one: kubectl delete paddlejob.kubeflow.org "
                f"{job.name}"
            )
    return 0
