"""The behaviour table on the in-memory API server."""

from __future__ import annotations

import random

import pytest

from paddlejob.api.meta import JsonObject
from paddlejob.kube.errors import StatusCause
from paddlejob.kube.resource import NAMESPACES
from simkube import virtual_loop
from simkube.apiserver.server import ApiServer
from tests.simulator import behaviour_deletes, behaviour_reads, behaviour_writes
from tests.simulator.behaviour import BEHAVIOURS, WIDGET_DEFINITION, Api

TABLES = (behaviour_writes, behaviour_deletes, behaviour_reads)
"""Imported for their entries."""


def default_size(widget: JsonObject) -> JsonObject:
    return {**widget, "spec": {"size": "m", **widget.get("spec", {})}}


def widget_causes(widget: JsonObject, previous: JsonObject | None) -> list[StatusCause]:
    replicas = widget["spec"].get("replicas", 0)
    if replicas >= 0:
        return []
    return [StatusCause("FieldValueInvalid", f"Invalid value: {replicas}: too small", "spec.replicas")]


def unknown_widget_fields(widget: JsonObject) -> list[str]:
    return [
        f'unknown field "spec.{name}"' for name in sorted(widget["spec"]) if name not in {"replicas", "size"}
    ]


def widget_server(**options: object) -> ApiServer:
    server = ApiServer(rng=random.Random(1), **options)
    server.install(
        WIDGET_DEFINITION,
        default=default_size,
        validate=widget_causes,
        unknown_fields=unknown_widget_fields,
    )
    return server


@pytest.mark.parametrize("sentence", BEHAVIOURS)
def test_the_in_memory_server_behaves(sentence: str) -> None:
    async def check() -> None:
        server = widget_server(require_namespaces=True)
        server.create(NAMESPACES, {"metadata": {"name": "test"}})
        await BEHAVIOURS[sentence](Api(server.transport(), "test"))

    virtual_loop.run(check())
