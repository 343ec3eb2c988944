"""The barriers of a Job: all pods have joined, all servers are ready, all trainers are done.

Every pod runs a server and a trainer, so no pod may leave while another still trains, and no pod can train
after another has left. Trainer 0 coordinates. Every pod, including trainer 0, holds one connection to it.

    trainer to coordinator    Join, ServerReady, TrainerDone, Left
    coordinator to trainer    Rejected: the pods have different lists of pods
                              StartServers: all have joined
                              StartTrainers: all servers are ready
                              AllDone: all trainers have succeeded
                              Abort: one has left, or its connection broke

A broken connection is noticed without polling. This module decides; coordinator.py does the I/O.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec


class Message(msgspec.Struct, frozen=True, tag_field="type"):
    """One line of JSON between a trainer and the coordinator."""


class Join(Message, frozen=True, tag="join"):
    """A pod joins as trainer `trainer`, with the addresses of all pods."""

    trainer: int
    addresses: tuple[str, ...]


class ServerReady(Message, frozen=True, tag="serverReady"):
    """The server of the pod is ready. `split` is the split of its shard, empty for other data."""

    split: str = ""


class TrainerDone(Message, frozen=True, tag="trainerDone"):
    """The trainer of the pod has succeeded."""


class Left(Message, frozen=True, tag="left"):
    """The pod has failed or was stopped."""

    reason: str


class Rejected(Message, frozen=True, tag="rejected"):
    """The pod cannot join and must list the pods again."""

    reason: str


class StartServers(Message, frozen=True, tag="startServers"):
    """All pods have joined."""


class StartTrainers(Message, frozen=True, tag="startTrainers"):
    """All servers are ready."""


class AllDone(Message, frozen=True, tag="allDone"):
    """All trainers have succeeded: stop the servers and exit."""


class Abort(Message, frozen=True, tag="abort"):
    """Training cannot continue because of this trainer, the first that failed."""

    trainer: int
    reason: str


FromTrainer = Join | ServerReady | TrainerDone | Left
FromCoordinator = Rejected | StartServers | StartTrainers | AllDone | Abort


class PodStage(enum.IntEnum):
    """The progress of a pod or of the whole Job."""

    ABSENT = 0
    JOINED = 1
    READY = 2
    DONE = 3


_REACHES: Mapping[type[Message], PodStage] = {ServerReady: PodStage.READY, TrainerDone: PodStage.DONE}
_ANNOUNCES: Mapping[PodStage, FromCoordinator] = {
    PodStage.JOINED: StartServers(),
    PodStage.READY: StartTrainers(),
    PodStage.DONE: AllDone(),
}


class Coordinator(msgspec.Struct, frozen=True):
    """The progress of each pod. Immutable: every event returns a new one."""

    addresses: tuple[str, ...]
    stages: tuple[PodStage, ...]
    split: str | None = None
    """The split of the first ready pod. All others must have the same."""
    aborted: Abort | None = None

    @classmethod
    def waiting_for(cls, addresses: tuple[str, ...]) -> Coordinator:
        """Return a coordinator that no pod has joined yet."""
        return cls(addresses, (PodStage.ABSENT,) * len(addresses))

    @property
    def stage(self) -> PodStage:
        """The stage that every pod has reached."""
        return min(self.stages)

    @property
    def absent(self) -> tuple[str, ...]:
        """The addresses of the pods that have not joined."""
        pods = zip(self.addresses, self.stages, strict=True)
        return tuple(address for address, stage in pods if stage is PodStage.ABSENT)


class Transition(msgspec.Struct, frozen=True):
    """The result of an event: the new state, and a message for every pod."""

    coordinator: Coordinator
    broadcast: FromCoordinator | None = None


def join(coordinator: Coordinator, message: Join) -> Transition | Rejected:
    """Let a pod join, or reject it with a reason."""
    if coordinator.aborted:
        return Rejected(f"training was aborted: {coordinator.aborted.reason}")
    if message.addresses != coordinator.addresses:
        return Rejected("it has a different list of pods")
    if not 0 <= message.trainer < len(coordinator.addresses):
        return Rejected(f"there is no trainer {message.trainer} among {len(coordinator.addresses)}")
    if coordinator.stages[message.trainer] is not PodStage.ABSENT:
        return Rejected(f"trainer {message.trainer} has already joined")
    return _advance(coordinator, message.trainer, PodStage.JOINED)


def receive(coordinator: Coordinator, trainer: int, message: FromTrainer) -> Transition:
    """Handle a message of a pod that has joined."""
    if isinstance(message, Left):
        return leave(coordinator, trainer, message.reason)
    reached = _REACHES.get(type(message))
    if reached is None or reached != coordinator.stages[trainer] + 1:
        return leave(coordinator, trainer, f"sent {type(message).__name__} out of turn")
    if isinstance(message, ServerReady):
        if coordinator.split not in (None, message.split):
            return leave(coordinator, trainer, "its shard belongs to a different split: split the data again")
        coordinator = msgspec.structs.replace(coordinator, split=message.split)
    return _advance(coordinator, trainer, reached)


def leave(coordinator: Coordinator, trainer: int, reason: str) -> Transition:
    """Handle the loss of a pod.

    It may join again until all pods have joined. After that, training is aborted, unless all trainers are
    done.
    """
    if coordinator.aborted or coordinator.stage is PodStage.DONE:
        return Transition(coordinator)
    if coordinator.stage is PodStage.ABSENT:
        return Transition(_with_stage(coordinator, trainer, PodStage.ABSENT))
    abort = Abort(trainer, f"trainer {trainer} ({coordinator.addresses[trainer]}): {reason}")
    return Transition(msgspec.structs.replace(coordinator, aborted=abort), abort)


def _advance(coordinator: Coordinator, trainer: int, stage: PodStage) -> Transition:
    after = _with_stage(coordinator, trainer, stage)
    return Transition(after, _ANNOUNCES[after.stage] if after.stage > coordinator.stage else None)


def _with_stage(coordinator: Coordinator, trainer: int, stage: PodStage) -> Coordinator:
    stages = (*coordinator.stages[:trainer], stage, *coordinator.stages[trainer + 1 :])
    return msgspec.structs.replace(coordinator, stages=stages)
