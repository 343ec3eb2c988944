"""A group of commands that imports a command when it is used, so that help is fast."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from paddlejob.cli.catalog import ALIASES, SYNONYMS, Table, all_verbs
from paddlejob.cli.terminal import say

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that lists its verbs without importing them."""

    def __init__(self, *args: Any, sections: Mapping[str, Table], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.table = all_verbs(sections)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program; a wrong command line is reported with the same prefix as other errors."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as error:
            show_error(error)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the help, with exit code 0, if there are no arguments."""
        if not args and not ctx.resilient_parsing:
            self.show_introduction(ctx)
            ctx.exit()
        return super().parse_args(ctx, args)

    def show_introduction(self, ctx: click.Context) -> None:
        """Print the help for a call without arguments."""
        say(ctx.get_help())

    def invoke(self, ctx: click.Context) -> Any:
        """Import and run a verb. Ctrl-C ends the program with code 130 unless the verb handles it."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the help."""
        del ctx
        return [*self.table]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb, or fail with the verb that was probably meant."""
        if entry := self.table.get(ALIASES.get(cmd_name, cmd_name)):
            return load(entry[0])
        import difflib  # noqa: PLC0415 - only for a misspelt verb

        near = (
            [SYNONYMS[cmd_name]] if cmd_name in SYNONYMS else difflib.get_close_matches(cmd_name, self.table)
        )
        if near and near[0] in self.table:
            ctx.fail(f"No such command '{cmd_name}'; did you mean {near[0]}?")
        return None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete verbs, with their line of help, and options."""
        verbs = [(verb, line) for verb, (_, line) in self.table.items() if verb.startswith(incomplete)]
        return [
            *(CompletionItem(verb, help=line) for verb, line in verbs),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the sections."""
        del ctx
        for title, table in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(verb, line) for verb, (_, line) in table.items()])


def load(place: str) -> click.Command:
    """Import a command."""
    module, _, name = place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), name or "command")
    return command


def show_error(error: click.ClickException) -> None:
    """Print a wrong command line: the usage, and the error."""
    if isinstance(error, click.UsageError) and error.ctx:
        say(error.ctx.get_usage(), err=True)
        say(f"Try '{error.ctx.command_path} --help' for help.\n", err=True)
    say(f"error: {error.format_message()}", err=True)
