"""Command lines of Deployments written for paddle-operator: flags in the style of Go programs.

Go parses `-name` like `--name`, and a switch as `--name` or `--name=false`. Flags of paddle-operator that
have no effect here are accepted and reported in the log: replacing the image must not require editing
arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")
_ZAP_LEVELS = {"warn": "warning", "dpanic": "error", "panic": "error", "fatal": "error"}
_IGNORED = f"{__name__}.ignored"


class GoSwitch(click.Option):
    """An option that is true when given without a value."""


def truth(text: object) -> bool:
    """Parse a boolean in every spelling that Go accepts."""
    word = str(text).lower()
    if word not in (*_TRUE, *_FALSE):
        raise click.BadParameter(f"{text!r} is not a boolean; use true or false")
    return word in _TRUE


class LogLevel(click.Choice[str]):
    """A log level with the name of Python or zap; a number is a verbosity of zap."""

    def __init__(self) -> None:
        super().__init__(("debug", "info", "warning", "error"), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert either name to ours."""
        word = str(value).lower()
        known = _ZAP_LEVELS.get(word, "debug" if word.isdecimal() and int(word) else value)
        return super().convert(known, param, ctx)


class LogFormat(click.Choice[str]):
    """A log format by our name or by zap's."""

    def __init__(self) -> None:
        super().__init__(("text", "json"), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert either name to ours."""
        return super().convert("text" if str(value).lower() == "console" else value, param, ctx)


class GoCommand(click.Command):
    """A command that accepts options in the style of Go programs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments after rewriting them in the usual style."""
        return super().parse_args(ctx, list(_usual(args, self.params)))


def _usual(args: Sequence[str], params: Sequence[click.Parameter]) -> Iterator[str]:
    """Yield the arguments with two dashes before every long name, and with a value after every switch."""
    options = {name: param for param in params if isinstance(param, click.Option) for name in param.opts}
    rest = iter(args)
    for argument in rest:
        name, equals, value = argument.partition("=")
        option = options.get(f"-{name}" if name.startswith("-") and not name.startswith("--") else name)
        if argument == "--" or option is None:
            yield argument
            if argument == "--":
                break
        elif isinstance(option, GoSwitch):
            yield f"{option.opts[0]}={value if equals else 'true'}"
        elif equals:
            yield f"{option.opts[0]}={value}"
        else:
            # The next argument is the value, whatever it looks like.
            yield option.opts[0]
            yield from (value for value in (next(rest, None),) if value is not None)
    yield from rest


def ignored_option(
    flag: str, why: str, kind: type[click.Option] = click.Option
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a flag of the earlier operator that has no effect; `report_ignored` logs the reason."""

    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        del param
        if value is not None:
            ctx.meta.setdefault(_IGNORED, []).append(f"{flag} is ignored: {why}")

    return click.option(flag, cls=kind, callback=remember, expose_value=False, hidden=True)


def report_ignored(ctx: click.Context, log: logging.Logger) -> None:
    """Log a warning for every flag that has no effect."""
    for sentence in ctx.meta.get(_IGNORED, ()):
        log.warning(sentence)
