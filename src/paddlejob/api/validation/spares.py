"""Validates spares: each must be able to take the rank of any worker while the others restart in place."""

from __future__ import annotations

from collections.abc import Iterator

from paddlejob.api.defaulting import EffectiveSpec
from paddlejob.api.v1 import Intranet, PaddleJobSpec, Role, RoleSpec
from paddlejob.api.validation.errors import FieldError, forbidden

ONLY_COLLECTIVE = "only collective jobs have spares; remove spec.ps and spec.heter, or spares"
NOT_ELASTIC = "elastic jobs have no spares; remove elastic, requests and limits, or spares"
NEEDS_POD_IP = "spares need intranet PodIP; remove intranet or spares"
NEEDS_IN_PLACE = "spares need restarts in place; remove recorder: false and inPlace: false, or spares"


def spares_errors(given: PaddleJobSpec, spec: EffectiveSpec) -> Iterator[FieldError]:
    """Yield the fields that prevent spares."""
    if given.spares <= 0:
        return
    worker = given.worker or RoleSpec()
    obstacles = {
        ONLY_COLLECTIVE: bool(given.replicas(Role.PS) or given.replicas(Role.HETER)),
        NOT_ELASTIC: given.elastic is not None or bool(worker.requests or worker.limits),
        NEEDS_POD_IP: spec.intranet is not Intranet.POD_IP,
        NEEDS_IN_PLACE: given.recorder is False or not given.restart_policy.in_place,
    }
    yield from (forbidden("spec.spares", message) for message, applies in obstacles.items() if applies)
