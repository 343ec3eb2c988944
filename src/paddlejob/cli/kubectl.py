"""The `kubectl pdj` command."""

from __future__ import annotations

import click

import paddlejob
from paddlejob.cli.catalog import KUBECTL_SECTIONS
from paddlejob.cli.lazy_group import LazyGroup
from paddlejob.cli.target import Program, cluster_flags

EPILOG = (
    "Exit codes: 0 done, or the job completed; 1 the job failed; 2 the command is wrong or could not be "
    "carried out; 124 timed out; 130 interrupted."
)


@click.command(
    cls=LazyGroup,
    sections=KUBECTL_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@cluster_flags
@click.version_option(paddlejob.__version__, prog_name="kubectl pdj")
@click.pass_context
def group(ctx: click.Context, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Submit, follow and change PaddleJobs on a cluster, with kubectl's flags and your own permissions.

    JOB is the exact name of a job, or @latest for the newest one. Commands that only show a job take the
    newest one if no JOB is given.
    """
    ctx.obj = Program("kubectl pdj", is_local=False, flags=(namespace, context, kubeconfig))


def main() -> None:
    """Run the command under the name that users type."""
    group(prog_name="kubectl pdj")


if __name__ == "__main__":
    main()
