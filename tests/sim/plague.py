"""Trouble that does not fade: every new pod of every job is struck, for a time or for ever."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import math
import random

import msgspec

from paddlejob.api import names
from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import NotFoundError
from paddlejob.kube.resource import PODS
from paddlejob.testing.apiserver.fake_api import ApiServer
from paddlejob.testing.kubelet import outcomes


class Kind(enum.StrEnum):
    """What strikes."""

    NONE = "none"
    EXIT = "workers exit at once"
    EVICTION = "pods are evicted at once"
    POD_DEADLINE = "pods outlive their own activeDeadlineSeconds"
    DELETION = "somebody deletes every new pod"
    DRAIN = "somebody deletes every finished pod"


class Plague(msgspec.Struct, frozen=True):
    """What strikes, and for how long."""

    kind: Kind = Kind.NONE
    until_seconds: float = math.inf
    exit_code: int = 1
    after_seconds: float = 0.5
    """After what time of running, or of being there."""

    def outcome(self, pod: JsonObject) -> outcomes.Outcome | None:
        """Return what becomes of a pod's container, None where this does not strike it."""
        is_worker = pod["metadata"]["labels"][names.LABEL_ROLE] == "worker"
        if asyncio.get_running_loop().time() >= self.until_seconds or not is_worker:
            return None
        match self.kind:
            case Kind.EXIT:
                return outcomes.crash(self.exit_code, after_seconds=self.after_seconds)
            case Kind.EVICTION:
                return outcomes.Evict(after_seconds=self.after_seconds)
            case Kind.POD_DEADLINE:
                return outcomes.outlive_deadline(after_seconds=self.after_seconds)
        return None

    async def delete_pods(self, server: ApiServer) -> None:
        """Delete the pods that this strikes, until its time is over."""
        loop = asyncio.get_running_loop()
        seen: dict[str, float] = {}
        while self.kind in (Kind.DELETION, Kind.DRAIN) and loop.time() < self.until_seconds:
            for pod in server.objects(PODS):
                metadata = pod["metadata"]
                if self.kind is Kind.DRAIN and pod["status"].get("phase") != "Succeeded":
                    continue
                if loop.time() - seen.setdefault(metadata["uid"], loop.time()) >= self.after_seconds:
                    self._delete(server, metadata["namespace"], metadata["name"])
            await asyncio.sleep(0.2)

    def _delete(self, server: ApiServer, namespace: str, name: str) -> None:
        # It may be gone since it was listed.
        with contextlib.suppress(NotFoundError):
            server.delete(PODS, namespace, name, options={"gracePeriodSeconds": 0}, identity="policy")


def draw(rng: random.Random) -> Plague:
    """Draw a plague, which most histories have none of."""
    if rng.random() < 0.6:
        return Plague()
    kind = rng.choice([each for each in Kind if each is not Kind.NONE])
    return Plague(
        kind,
        until_seconds=rng.choice((60.0, 600.0, 7200.0)),
        exit_code=rng.choice((rng.randint(1, 255), 15, 101, 143)),
        after_seconds=rng.choice((0.0, 1.0, 30.0)),
    )
