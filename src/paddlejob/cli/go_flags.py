"""Command lines as Deployments of paddle-operator have them: flags in the manner of Go programs.

Go reads `-name` like `--name`, and a switch as `--name` or `--name=false`. Flags of the earlier operator that
mean nothing to this one are taken, and told of in the log: whoever replaces the image should not have to edit
arguments first, nor wonder why an argument has no effect.
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
    """An option that says true when it stands alone."""


def truth(text: object) -> bool:
    """Read a truth value in all spellings that Go takes."""
    word = str(text).lower()
    if word not in (*_TRUE, *_FALSE):
        raise click.BadParameter(f"is {text!r}; write true or false")
    return word in _TRUE


class LogLevel(click.Choice[str]):
    """A level of logging by our name or by zap's, where a number is a verbosity."""

    def __init__(self) -> None:
        super().__init__(("debug", "info", "warning", "error"), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was given by either name."""
        word = str(value).lower()
        known = _ZAP_LEVELS.get(word, "debug" if word.isdecimal() and int(word) else value)
        return super().convert(known, param, ctx)


class LogFormat(click.Choice[str]):
    """A form of log lines by our name or by zap's."""

    def __init__(self) -> None:
        super().__init__(("text", "json"), case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read what was given by either name."""
        return super().convert("text" if str(value).lower() == "console" else value, param, ctx)


class GoCommand(click.Command):
    """A command whose options may be written as a Go program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what was given once it is written the usual way."""
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
    """Declare a flag of the earlier operator that has no effect; `report_ignored` says so, and why."""

    def remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        del param
        if value is not None:
            ctx.meta.setdefault(_IGNORED, []).append(f"{flag} is ignored: {why}")

    return click.option(flag, cls=kind, callback=remember, expose_value=False, hidden=True)


def report_ignored(ctx: click.Context, log: logging.Logger) -> None:
    """Warn of every flag that was given in vain."""
    for sentence in ctx.meta.get(_IGNORED, ()):
        log.warning(sentence)
