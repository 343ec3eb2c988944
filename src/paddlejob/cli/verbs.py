"""A group of commands that are imported when they are used, so that help is instant."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = 130

Table = Mapping[str, tuple[str, str]]
"""From a verb to its module, perhaps with the name of its command (`module:name`), and one line of help."""


class Verbs(click.Group):
    """A group that knows its verbs without importing them."""

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Table],
        synonyms: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        """`sections` are the verbs as help shows them: what one reaches for first comes first.

        `synonyms` are other words for a verb, which are not understood but answered with the verb.
        """
        super().__init__(*args, **kwargs)
        self._synonyms = synonyms or {}
        self.sections = sections
        self.table = {verb: entry for table in sections.values() for verb, entry in table.items()}

    def invoke(self, ctx: click.Context) -> Any:
        """Import and run a verb; Ctrl-C, where the verb itself does not handle it, is exit code 130."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table."""
        return [*super().list_commands(ctx), *self.table]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one verb that is asked for."""
        if cmd_name not in self.table:
            import difflib  # noqa: PLC0415 - only for a misspelt verb

            synonym = self._synonyms.get(cmd_name)
            if near := [synonym] if synonym else difflib.get_close_matches(cmd_name, self.table, n=1):
                ctx.fail(f"No such command '{cmd_name}'; did you mean {near[0]}?")
            return super().get_command(ctx, cmd_name)
        return load(self.table[cmd_name][0])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Offer verbs with their line of help, without importing them, and options."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - not needed for anything else

        verbs = [(verb, line) for verb, (_, line) in self.table.items() if verb.startswith(incomplete)]
        return [
            *(CompletionItem(verb, help=line) for verb, line in verbs),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the tables without importing a verb."""
        del ctx
        for title, table in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(verb, line) for verb, (_, line) in table.items()])


def load(place: str) -> click.Command:
    """Import a command."""
    module, _, name = place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), name or "command")
    return command
