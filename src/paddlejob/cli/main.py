"""The `paddlejob` command. A verb's module is imported when the verb is used, so that help is instant."""

from __future__ import annotations

import importlib

import click

import paddlejob

VERBS = {
    "operator": ("paddlejob.cli.operator", "Run the operator that makes PaddleJobs work on a cluster."),
    "run": ("paddlejob.cli.local.run", "Run a PaddleJob on this machine, without a cluster."),
    "runs": ("paddlejob.cli.local.runs", "List the runs on this machine."),
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


class Verbs(click.Group):
    """A group that knows its verbs without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table: what one reaches for first comes first."""
        return [*super().list_commands(ctx), *VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one verb that is asked for."""
        if cmd_name not in VERBS:
            import difflib  # noqa: PLC0415

            if near := difflib.get_close_matches(cmd_name, VERBS, n=1):
                ctx.fail(f"No such command '{cmd_name}'; did you mean {near[0]}?")
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(VERBS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table without importing a verb."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(paddlejob.__version__, prog_name="paddlejob")
def main() -> None:
    """Train PaddlePaddle on Kubernetes, or on this machine with the same YAML."""


if __name__ == "__main__":
    main()
