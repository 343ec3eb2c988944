"""Separates the trainer's arguments from our own, and formats them for `paddle train`.

The trainer's flags have names of every kind, `--local=0` and `--config` among them. So our own options are
few, `--local` is ours only with a number of pods, and everything after `--` belongs to the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddlejob.plainjob import errors


def separate(arguments: Sequence[str], own: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """Return our arguments and the trainer's, in order; `own` says which of our options take a value."""
    ours: list[str] = []
    others: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            return ours, others + rest
        takes_next = own.get(name, False) and not equals and bool(rest)
        words = [word, rest.pop(0)] if takes_next else [word]
        target = (
            ours if name in own and not _trainers_own_local(name, value if equals else words[-1]) else others
        )
        target += words
    return ours, others


def _trainers_own_local(name: str, value: str) -> bool:
    return name == "--local" and value in ("0", "false")


def as_flags(arguments: Sequence[str]) -> dict[str, str | None]:
    """Return flags by name, in the order in which each first came; a later value replaces an earlier one.

    Accepts --key=value, --key value, and --key alone (None). Raises SettingsError for a stray word.
    """
    flags: dict[str, str | None] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not name:
            raise errors.SettingsError(
                f"argument {word!r} does not follow a --key: write --key=value or --key value"
            )
        if equals:
            flags[name] = value
        elif rest and not rest[0].startswith("--"):
            flags[name] = rest.pop(0)
        else:
            flags[name] = None
    return flags


def as_words(flags: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return flags as --key=value words."""
    return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items())
