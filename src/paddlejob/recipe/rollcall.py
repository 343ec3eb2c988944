"""How the pods of one Job agree: everybody is here, all servers are ready, all trainers are done.

Every pod is a server and a trainer at once, so none may leave while another still trains, and none can train
when another has gone. Trainer 0 keeps a list (`Hub`); every pod, itself included, holds one connection to it.

    member to hub    Hello, Serving, Done, Gone
    hub to member    Refused: another roster           Serve: all said Hello
                     Train: all are Serving            Over: all are Done
                     Abort: one is Gone, or its connection broke

A broken connection is noticed at once and needs no polling. This module decides; it sends nothing itself.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec


class Message(msgspec.Struct, frozen=True, tag_field="say"):
    """One line of JSON between a member and the hub."""


class Hello(Message, frozen=True, tag="hello"):
    """I am trainer `member`, and this is everybody I know."""

    member: int
    roster: tuple[str, ...]


class Serving(Message, frozen=True, tag="serving"):
    """My server is ready."""


class Done(Message, frozen=True, tag="done"):
    """My trainer has succeeded."""


class Gone(Message, frozen=True, tag="gone"):
    """I have failed or been stopped; nobody needs to wait for me."""

    reason: str


class Refused(Message, frozen=True, tag="refused"):
    """You know other pods than I do: look again."""

    reason: str


class Serve(Message, frozen=True, tag="serve"):
    """Everybody is here: start the servers."""


class Train(Message, frozen=True, tag="train"):
    """All servers are ready: start the trainers."""


class Over(Message, frozen=True, tag="over"):
    """All trainers have succeeded: stop the servers and leave."""


class Abort(Message, frozen=True, tag="abort"):
    """Training cannot go on, because of this member; those that fail after it fail because of it."""

    member: int
    reason: str


FromMember = Hello | Serving | Done | Gone
FromHub = Refused | Serve | Train | Over | Abort


class Stage(enum.IntEnum):
    """How far a member, or the whole roll, is."""

    ABSENT = 0
    HERE = 1
    SERVING = 2
    DONE = 3


_REACHES: Mapping[type[Message], Stage] = {Serving: Stage.SERVING, Done: Stage.DONE}
_ANNOUNCES: Mapping[Stage, FromHub] = {Stage.HERE: Serve(), Stage.SERVING: Train(), Stage.DONE: Over()}


class Hub(msgspec.Struct, frozen=True):
    """Who has come how far. Immutable: every event gives a new one."""

    roster: tuple[str, ...]
    stages: tuple[Stage, ...]
    aborted: Abort | None = None

    @classmethod
    def waiting_for(cls, roster: tuple[str, ...]) -> Hub:
        """Return a hub that has seen nobody."""
        return cls(roster, (Stage.ABSENT,) * len(roster))

    @property
    def stage(self) -> Stage:
        """How far everybody is."""
        return min(self.stages)

    @property
    def absent(self) -> tuple[str, ...]:
        """The addresses that have not said Hello."""
        return tuple(at for at, stage in zip(self.roster, self.stages, strict=True) if stage is Stage.ABSENT)


class Step(msgspec.Struct, frozen=True):
    """What follows from an event: the new state and what everybody is told."""

    hub: Hub
    tell_all: FromHub | None = None


def admit(hub: Hub, hello: Hello) -> Step | Refused:
    """Let a member in, or tell it why not."""
    if hub.aborted:
        return Refused(f"training was given up: {hub.aborted.reason}")
    if hello.roster != hub.roster:
        return Refused("another list of pods")
    if not 0 <= hello.member < len(hub.roster):
        return Refused(f"there is no trainer {hello.member} among {len(hub.roster)}")
    if hub.stages[hello.member] is not Stage.ABSENT:
        return Refused(f"trainer {hello.member} is here already")
    return _advance(hub, hello.member, Stage.HERE)


def hear(hub: Hub, member: int, message: FromMember) -> Step:
    """Take note of what a member says."""
    if isinstance(message, Gone):
        return lose(hub, member, message.reason)
    reached = _REACHES.get(type(message))
    if reached is None or reached != hub.stages[member] + 1:
        return lose(hub, member, f"sent {type(message).__name__} out of turn")
    return _advance(hub, member, reached)


def lose(hub: Hub, member: int, reason: str) -> Step:
    """Take note that a member has gone.

    Before all have come, it may come again. Afterwards nobody can train without it; when all are done, nobody
    needs it.
    """
    if hub.aborted or hub.stage is Stage.DONE:
        return Step(hub)
    if hub.stage is Stage.ABSENT:
        return Step(_with_stage(hub, member, Stage.ABSENT))
    abort = Abort(member, f"trainer {member} ({hub.roster[member]}): {reason}")
    return Step(msgspec.structs.replace(hub, aborted=abort), abort)


def _advance(hub: Hub, member: int, stage: Stage) -> Step:
    after = _with_stage(hub, member, stage)
    return Step(after, _ANNOUNCES[after.stage] if after.stage > hub.stage else None)


def _with_stage(hub: Hub, member: int, stage: Stage) -> Hub:
    stages = (*hub.stages[:member], stage, *hub.stages[member + 1 :])
    return msgspec.structs.replace(hub, stages=stages)
