"""The base class of the ingredients of simulated histories."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from paddlejob.api.meta import JsonObject
from simkube.kubelet import outcomes

if TYPE_CHECKING:
    from sim.simulation import Simulation


class Ingredient(msgspec.Struct, frozen=True):
    """Something that happens in a history."""

    def outcome(self, pod: JsonObject, container: str, restarts: int) -> outcomes.Outcome | None:
        """Return the outcome of a container, None if the ingredient leaves it alone."""
        return None

    async def act(self, simulation: Simulation) -> None:
        """Act until the faults heal; the history ends only after that."""

    def heal(self, simulation: Simulation) -> None:
        """End the faults that outlast `act`."""
