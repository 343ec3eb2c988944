"""Parses the start configuration of an image from its Dockerfile. Nothing is built."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

import msgspec

_CONTINUED = re.compile(r"\\\s*$")
_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")
_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_MAX_CHARACTERS = 1 << 20
_NEEDS_BUILD = ("http://", "https://", "git@", "<<")
_FLAG = re.compile(r"--(\w+)(?:=(\S+))?\s*")


class Copy(msgspec.Struct, frozen=True):
    """An ADD or COPY: sources as written, and the absolute destination. A trailing slash is kept."""

    sources: tuple[str, ...]
    target: str


class ImageConfig(msgspec.Struct, frozen=True):
    """Start configuration of an image's containers."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    workdir: str = "/"
    environment: Mapping[str, str] = {}
    copies: tuple[Copy, ...] = ()
    notes: tuple[str, ...] = ()
    """Instructions that are ignored because they need a build."""


FindBase = Callable[[str], ImageConfig | None]


def parse(text: str, find_base: FindBase = lambda _: None) -> ImageConfig:
    """Return the configuration of a Dockerfile's last stage.

    `find_base` resolves images named by FROM. Raises ValueError if FROM is missing, a quote is not closed
    or the expansion of variables is too long.
    """
    stages: dict[str, ImageConfig] = {}
    stage: _Stage | None = None
    arguments: dict[str, str] = {}
    name = ""
    for instruction, rest in instructions(text):
        if instruction == "FROM":
            words = [word for word in _substitute(rest, arguments).split() if not word.startswith("--")]
            image = words[0] if words else ""
            stage = _Stage(stages.get(image) or find_base(image) or ImageConfig(), arguments)
            name = words[2] if len(words) > 2 else ""
        elif stage is not None:
            stage.apply(instruction, rest)
            stages[name] = stage.config
        elif instruction == "ARG":
            _declare(rest, arguments)
    if stage is None:
        raise ValueError("it has no FROM")
    return stage.config


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield instructions in capitals with their arguments; lines are joined, comments removed."""
    lines = iter(text.splitlines())
    logical = ""
    for line in lines:
        if line.lstrip().startswith("#") or (logical and not line.strip()):
            continue
        logical += _CONTINUED.sub(" ", line)
        if _CONTINUED.search(line):
            continue
        instruction, _, rest = logical.strip().partition(" ")
        for end in _HEREDOC.findall(rest) if instruction.upper() in ("RUN", "COPY", "ADD") else ():
            next((each for each in lines if each.strip() == end), None)
        if instruction:
            yield instruction.upper(), rest.strip()
        logical = ""


class _Stage:
    """A build stage being parsed."""

    def __init__(self, base: ImageConfig, arguments: Mapping[str, str]) -> None:
        self.config = base
        self._command_is_inherited = True
        self._arguments: dict[str, str] = dict(arguments)
        self._shell: tuple[str, ...] = ("/bin/sh", "-c")

    def apply(self, instruction: str, rest: str) -> None:
        """Apply an instruction, or ignore it if it does not affect the start."""
        match instruction:
            case "ENV":
                self._change(environment={**self.config.environment, **self._variables(rest)})
            case "ARG":
                _declare(self._substituted(rest), self._arguments)
            case "WORKDIR":
                self._change(workdir=self._absolute(self._substituted(rest).strip().strip("\"'")))
            case "SHELL":
                self._shell = _exec_form(rest) or self._shell
            case "ENTRYPOINT":
                self._change(entrypoint=self._program(rest))
                if self._command_is_inherited:
                    # As in a build, a new entrypoint resets the base image's command.
                    self._change(command=())
            case "CMD":
                self._command_is_inherited = False
                self._change(command=self._program(rest))
            case "ADD" | "COPY":
                self._copy(instruction, rest)

    def _change(self, **fields: object) -> None:
        self.config = msgspec.structs.replace(self.config, **fields)

    def _program(self, rest: str) -> tuple[str, ...]:
        words = _exec_form(rest)
        return words if words is not None else (*self._shell, rest)

    def _variables(self, rest: str) -> dict[str, str]:
        text = self._substituted(rest)
        name, _, value = text.partition(" ")
        if "=" not in name:
            return {name: value.strip()}
        pairs = (word.partition("=") for word in shlex.split(text))
        return {name: value for name, _, value in pairs}

    def _copy(self, instruction: str, rest: str) -> None:
        flags, text = {}, self._substituted(rest)
        while found := _FLAG.match(text):
            flags[found[1]] = found[2]
            text = text[found.end() :]
        words = _exec_form(text) or tuple(shlex.split(text))
        if "from" in flags or any(word.startswith(_NEEDS_BUILD) for word in words[:-1]):
            self._change(notes=(*self.config.notes, f"{instruction} {rest} needs a build and is left out"))
        elif len(words) > 1:
            copy = Copy(sources=words[:-1], target=self._absolute(words[-1]))
            self._change(copies=(*self.config.copies, copy))

    def _absolute(self, path: str) -> str:
        whole = posixpath.normpath(posixpath.join(self.config.workdir, path))
        return f"{whole}/" if path.endswith(("/", "/.")) or path == "." else whole

    def _substituted(self, text: str) -> str:
        return _substitute(text, {**self._arguments, **self.config.environment})


def _substitute(text: str, values: Mapping[str, str]) -> str:
    def replacement(found: re.Match[str]) -> str:
        if found[0] == "\\$":
            return "$"
        value = values.get(found[1] or found[4], "")
        if found[2] == "-":
            return value or found[3]
        if found[2] == "+":
            return found[3] if value else ""
        return value

    substituted = _VARIABLE.sub(replacement, text)
    if len(substituted) > _MAX_CHARACTERS:
        # A variable that contains itself twice doubles with every line.
        raise ValueError(f"its variables make a line of more than {_MAX_CHARACTERS:,} characters")
    return substituted


def _declare(rest: str, arguments: dict[str, str]) -> None:
    for word in shlex.split(rest):
        name, _, value = word.partition("=")
        arguments.setdefault(name, value)
        if value:
            arguments[name] = value


def _exec_form(text: str) -> tuple[str, ...] | None:
    """Return the words of a JSON list, or None for the shell form."""
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return tuple(words) if is_list else None
