"""What an explanation is made of, as text for a terminal and as JSON for programs."""

from __future__ import annotations

import enum
import json
import shlex
from collections.abc import Iterator

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.core.messages import one_line

WIDTH = 400
"""Longest sentence of an explanation; what schedulers and webhooks say has no limit of its own."""
MOST_FINDINGS = 3
MOST_DETAILS = 8
MOST_ADVICE = 3


class Then(enum.StrEnum):
    """What else a change of a job needs before it takes effect."""

    NOTHING = ""
    RECREATE = "recreate"
    """Pods that exist keep the template that they were made from: suspend the job and resume it."""
    RETRY = "retry"
    """A finished job never runs again: submit it as a new one."""


class Change(msgspec.Struct, frozen=True):
    """A JSON Patch of one object, for whoever has the right to apply it."""

    resource: str
    """As kubectl calls it, such as `pdj` or `resourcequota`."""
    name: str
    patch: tuple[JsonObject, ...]

    def command(self, namespace: str) -> str:
        """Return the kubectl command that applies it."""
        # ASCII: what a template holds must not reach a terminal as it is.
        patch = json.dumps(self.patch, separators=(",", ":"))
        words = ("kubectl", "-n", namespace, "patch", self.resource, self.name, "--type=json", "-p", patch)
        return shlex.join(words)


class Advice(msgspec.Struct, frozen=True):
    """One change that would be enough, if it is known exactly also as a patch."""

    text: str
    change: Change | None = None
    then: Then = Then.NOTHING
    keeps: float = 1.0
    """How much of what the job asked for is left to it; of several changes the mildest comes first."""

    def commands(self, namespace: str, job: str) -> tuple[str, ...]:
        """Return the commands that carry it out, none where it takes a decision first."""
        if self.change is None:
            return ()
        more = {
            Then.NOTHING: (),
            # An operator that sees both at once sees no change.
            Then.RECREATE: (
                _verb("suspend", namespace, job),
                _verb("wait", namespace, job, "--for=suspended"),
                _verb("resume", namespace, job),
            ),
            Then.RETRY: (_verb("retry", namespace, job),),
        }
        return (self.change.command(namespace), *more[self.then])


class Finding(msgspec.Struct, frozen=True):
    """One cause that would be enough to hold a job up, or the one that ended it."""

    cause: str
    """One word for programs, such as QuotaExceeded."""
    summary: str
    rank: str = ""
    """The replica that the others wait for, or that failed first, such as worker-3."""
    details: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    """Alternatives: each of them would do."""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job is where it is: one sentence, then a screen of details."""

    namespace: str
    name: str
    phase: str
    findings: tuple[Finding, ...]
    """At least one. The first is the headline; of a job that waits, each has to be dealt with."""
    exit_code: int | None = None
    """Exit code of the container that failed first."""
    log: tuple[str, ...] = ()
    """The last lines of the replica that failed first."""
    unseen: tuple[str, ...] = ()
    """What could not be read, and the right that it takes."""

    @property
    def summary(self) -> str:
        """The one sentence."""
        return self.findings[0].summary

    @property
    def cause(self) -> str:
        """One word for programs."""
        return self.findings[0].cause

    @property
    def rank(self) -> str:
        """The replica that the others wait for, or that failed first; empty where there is none."""
        return self.findings[0].rank

    @property
    def advice(self) -> tuple[Advice, ...]:
        """What to do first, as alternatives."""
        return self.findings[0].advice

    def to_dict(self) -> JsonObject:
        """Return the explanation as JSON."""
        data: JsonObject = {"summary": self.summary, "cause": self.cause, "rank": self.rank}
        data |= msgspec.json.decode(msgspec.json.encode(self))
        for finding, written in zip(self.findings, data["findings"], strict=True):
            for each, advice in zip(finding.advice, written["advice"], strict=True):
                advice["commands"] = list(each.commands(self.namespace, self.name))
        return data

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def tidy(finding: Finding, *, local: bool = False) -> Finding:
    """Return a finding whose texts are single lines, and few; of a `local` run there is nothing to patch."""
    advice = (
        Advice(one_line(each.text, WIDTH), None if local else each.change, each.then, each.keeps)
        for each in finding.advice
    )
    return msgspec.structs.replace(
        finding,
        summary=one_line(finding.summary, WIDTH),
        details=tuple(one_line(line, WIDTH) for line in finding.details[:MOST_DETAILS]),
        advice=tuple(advice)[:MOST_ADVICE],
    )


def _lines(of: Explanation) -> Iterator[str]:
    first, *others = of.findings
    yield f"{of.name}: {of.phase or 'new'}: {first.summary}"
    if first.rank and first.rank not in first.summary:
        yield f"  waiting for {first.rank}"
    yield from (f"  {line}" for line in first.details)
    if of.log:
        yield f"Last lines of {of.rank}:"
        yield from (f"  | {line}" for line in of.log)
    yield from _advice_lines(of, first)
    for other in others:
        yield f"Also: {other.summary}"
        yield from (f"  {line}" for line in other.details)
        yield from _advice_lines(of, other)
    yield from of.unseen


def _advice_lines(of: Explanation, finding: Finding) -> Iterator[str]:
    if finding.advice:
        yield "What to do:" if len(finding.advice) == 1 else "What to do, one of:"
    for each in finding.advice:
        yield f"  - {each.text}"
        yield from (f"      {command}" for command in each.commands(of.namespace, of.name))


def _verb(verb: str, namespace: str, job: str, *options: str) -> str:
    return shlex.join(("kubectl", "pdj", "-n", namespace, verb, job, *options))
