"""Reads Dockerfiles: instructions, their flags, variables and the files a context leaves out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from devcluster.programs import DevclusterError

_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_FLAG = re.compile(r"--([a-z]+)(?:=(\S+))?\s+")


@dataclass(frozen=True)
class Instruction:
    """One instruction: `COPY --from=build /a /b` has the name COPY, one flag, and the text `/a /b`."""

    name: str
    text: str
    flags: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Give the instruction on one line."""
        return f"{self.name} {' '.join(self.text.split())}"

    def words(self) -> list[str]:
        """Give its arguments, written as a JSON list or separated by blanks."""
        return exec_form(self.text) or shlex.split(self.text)


def parse(text: str) -> list[Instruction]:
    """Give the instructions of a Dockerfile.

    Raises: DevclusterError for one without FROM, and for text that follows an instruction (`<<EOF`).
    """
    instructions = [_instruction(line) for line in _logical_lines(text)]
    if not any(each.name == "FROM" for each in instructions):
        raise DevclusterError("The Dockerfile has no FROM.")
    return instructions


def _logical_lines(text: str) -> Iterator[str]:
    whole = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or not line.strip():
            continue
        if line.rstrip().endswith("\\"):
            whole += line.rstrip()[:-1]
            continue
        yield (whole + line).strip()
        whole = ""
    if whole:
        yield whole.strip()


def _instruction(line: str) -> Instruction:
    name, _, text = line.partition(" ")
    name, text, flags = name.upper(), text.strip(), {}
    while name in ("ADD", "COPY", "FROM", "RUN") and (found := _FLAG.match(text)):
        flags[found[1]] = found[2] or "true"
        text = text[found.end() :]
    if name in ("ADD", "COPY", "RUN") and "<<" in text:
        raise DevclusterError(f"`{name} {text.splitlines()[0]}`: text within a Dockerfile is not understood.")
    return Instruction(name, text, flags)


def exec_form(text: str) -> list[str] | None:
    """Give the words of a JSON list, None for anything else, which is then the shell's."""
    try:
        words = json.loads(text)
    except ValueError:
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return None


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Replace `$A`, `${A}`, `${A:-b}` and `${A:+b}`; a variable that is not set is empty."""

    def replacement(found: re.Match[str]) -> str:
        if found[0] == "\\$":
            return "$"
        value = values.get(found[1] or found[4], "")
        if found[2] == "-":
            return value or found[3]
        if found[2] == "+":
            return found[3] if value else ""
        return value

    return _VARIABLE.sub(replacement, text)


def variables(text: str) -> dict[str, str]:
    """Read `A=b "C=d e"`, or the old form `A b c`."""
    name, _, rest = text.partition(" ")
    if "=" not in name:
        return {name: rest.strip()}
    return dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)


class Ignored:
    """The paths that a .dockerignore keeps out of a build."""

    def __init__(self, text: str) -> None:
        lines = (line.strip() for line in text.splitlines())
        rules = (line for line in lines if line and not line.startswith("#"))
        self._rules = [(rule.startswith("!"), _pattern(rule.removeprefix("!"))) for rule in rules]

    def __contains__(self, path: str) -> bool:
        """Tell whether a path, relative to the context, is kept out; the last rule that fits decides."""
        kept_out = False
        for keeps, pattern in self._rules:
            if pattern.match(path):
                kept_out = not keeps
        return kept_out


def _pattern(rule: str) -> re.Pattern[str]:
    """A rule fits a path and everything below it; ** stands for any number of directories."""
    text = ""
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", rule.strip("/")):
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part, re.escape(part))
    return re.compile(f"{text}(?:/.*)?$")
