"""The parts of an explanation, as text for a terminal and as JSON for programs."""

from __future__ import annotations

import enum
import json
import shlex
from collections.abc import Iterator

import msgspec

from paddlejob.api.meta import JsonObject
from paddlejob.text import one_line

WIDTH = 400
"""Maximum length of a sentence. Messages of schedulers and webhooks can have any length."""
MAX_FINDINGS = 3
MAX_DETAILS = 8
MAX_ADVICE = 3


class FollowUp(enum.StrEnum):
    """The step after a change of a job that makes it take effect."""

    NOTHING = ""
    RECREATE = "recreate"
    """Existing pods keep their old template: suspend the job and resume it."""
    RETRY = "retry"
    """A finished job never runs again: submit it as a new job."""


class Change(msgspec.Struct, frozen=True):
    """A JSON Patch of one object. The reader may lack the right to apply it."""

    resource: str
    """The name that kubectl uses, such as `pdj` or `resourcequota`."""
    name: str
    patch: tuple[JsonObject, ...]

    def command(self, namespace: str) -> str:
        """Return the kubectl command that applies it."""
        # ASCII, so that escape sequences in a template do not reach the terminal.
        patch = json.dumps(self.patch, separators=(",", ":"))
        words = ("kubectl", "-n", namespace, "patch", self.resource, self.name, "--type=json", "-p", patch)
        return shlex.join(words)


class Advice(msgspec.Struct, frozen=True):
    """One change that would be enough, with a patch if it is known exactly."""

    text: str
    change: Change | None = None
    then: FollowUp = FollowUp.NOTHING
    keeps: float = 1.0
    """The fraction of the replicas or requests that the change keeps; the largest comes first."""

    def commands(self, namespace: str, job: str) -> tuple[str, ...]:
        """Return the commands that apply it, none without a patch."""
        if self.change is None:
            return ()
        more = {
            FollowUp.NOTHING: (),
            # Without the wait, the operator may see both changes together, which is no change.
            FollowUp.RECREATE: (
                _verb("suspend", namespace, job),
                _verb("wait", namespace, job, "--for=suspended"),
                _verb("resume", namespace, job),
            ),
            FollowUp.RETRY: (_verb("retry", namespace, job),),
        }
        return (self.change.command(namespace), *more[self.then])


class Finding(msgspec.Struct, frozen=True):
    """One cause that alone keeps the job from running, or the cause that ended it."""

    cause: str
    """One word for programs, such as QuotaExceeded."""
    summary: str
    rank: str = ""
    """The replica that the others wait for, or that failed first, such as worker-3."""
    details: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    """Alternatives: each one is enough."""


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job is in its state: one sentence, then a screen of details."""

    namespace: str
    name: str
    phase: str
    findings: tuple[Finding, ...]
    """At least one. The first is the headline. A waiting job runs only after all of them are fixed."""
    exit_code: int | None = None
    """Exit code of the container that failed first."""
    log: tuple[str, ...] = ()
    """The last lines of the replica that failed first."""
    unseen: tuple[str, ...] = ()
    """Objects that could not be read, and the missing right."""

    @property
    def summary(self) -> str:
        """The headline."""
        return self.findings[0].summary

    @property
    def cause(self) -> str:
        return self.findings[0].cause

    @property
    def rank(self) -> str:
        """The replica that the others wait for, or that failed first; may be empty."""
        return self.findings[0].rank

    @property
    def advice(self) -> tuple[Advice, ...]:
        """Alternatives for the first finding."""
        return self.findings[0].advice

    def to_dict(self) -> JsonObject:
        """Return the explanation as JSON, with the commands of each advice."""
        data: JsonObject = {"summary": self.summary, "cause": self.cause, "rank": self.rank}
        data |= msgspec.json.decode(msgspec.json.encode(self))
        for finding, written in zip(self.findings, data["findings"], strict=True):
            for each, advice in zip(finding.advice, written["advice"], strict=True):
                advice["commands"] = list(each.commands(self.namespace, self.name))
        return data

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def tidy(finding: Finding, *, local: bool = False) -> Finding:
    """Return a finding with short texts of one line each, and without patches for a `local` run."""
    advice = (
        Advice(one_line(each.text, WIDTH), None if local else each.change, each.then, each.keeps)
        for each in finding.advice
    )
    return msgspec.structs.replace(
        finding,
        summary=one_line(finding.summary, WIDTH),
        details=tuple(one_line(line, WIDTH) for line in finding.details[:MAX_DETAILS]),
        advice=tuple(advice)[:MAX_ADVICE],
    )


def _lines(explanation: Explanation) -> Iterator[str]:
    first, *others = explanation.findings
    yield f"{explanation.name}: {explanation.phase or 'new'}: {first.summary}"
    if first.rank and first.rank not in first.summary:
        yield f"  waiting for {first.rank}"
    yield from (f"  {line}" for line in first.details)
    if explanation.log:
        yield f"Last lines of {explanation.rank}:"
        yield from (f"  | {line}" for line in explanation.log)
    yield from _advice_lines(explanation, first)
    for other in others:
        yield f"Also: {other.summary}"
        yield from (f"  {line}" for line in other.details)
        yield from _advice_lines(explanation, other)
    yield from explanation.unseen


def _advice_lines(explanation: Explanation, finding: Finding) -> Iterator[str]:
    if finding.advice:
        yield "What to do:" if len(finding.advice) == 1 else "What to do, one of:"
    for each in finding.advice:
        yield f"  - {each.text}"
        commands = each.commands(explanation.namespace, explanation.name)
        yield from (f"      {command}" for command in commands)


def _verb(verb: str, namespace: str, job: str, *options: str) -> str:
    return shlex.join(("kubectl", "pdj", "-n", namespace, verb, job, *options))
