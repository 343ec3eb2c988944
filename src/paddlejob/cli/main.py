"""The `paddlejob` command."""

from __future__ import annotations

import click

import paddlejob
from paddlejob.cli.catalog import FIRST_VERBS, SECTIONS
from paddlejob.cli.lazy_group import LazyGroup
from paddlejob.cli.target import Program
from paddlejob.cli.terminal import say


class _PaddleJob(LazyGroup):
    def show_introduction(self, ctx: click.Context) -> None:
        """Print the verbs that a person on a laptop needs first."""
        formatter = ctx.make_formatter()
        formatter.write_usage(ctx.command_path, "COMMAND [ARGS]...")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("Train PaddlePaddle on this machine, or on Kubernetes with the same YAML.")
        with formatter.section("First steps"):
            formatter.write_dl([(verb, self.table[verb][1]) for verb in FIRST_VERBS])
        formatter.write_paragraph()
        formatter.write_text(
            "`paddlejob --help` lists all commands, `paddlejob COMMAND --help` explains one."
        )
        say(formatter.getvalue(), nl=False)


@click.command(cls=_PaddleJob, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(paddlejob.__version__, "--version", "-V", prog_name="paddlejob")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Train PaddlePaddle on this machine, or on Kubernetes with the same YAML.

    JOB is a run on this machine: its name, the name of its job for the newest run of it, or @latest. With -n,
    -A, --context or --kubeconfig it is a job on a cluster; `kubectl pdj` does the same without these flags.
    Commands that only show a job take the newest one if no JOB is given.
    """
    ctx.obj = Program("paddlejob", is_local=True)


if __name__ == "__main__":
    main()
