"""The behaviour table of the in-memory API server on a real one: what holds there must hold here."""

from __future__ import annotations

import asyncio

import pytest

from devcluster import ApiError, Cluster
from paddlejob.kube.transport.config import load_config
from paddlejob.kube.transport.http import HttpTransport
from tests.simulator import behaviour_deletes, behaviour_reads, behaviour_writes
from tests.simulator.behaviour import BEHAVIOURS, WIDGET_DEFINITION, WIDGETS, Api

TABLES = (behaviour_writes, behaviour_deletes, behaviour_reads)
"""Imported for their entries."""


@pytest.fixture(scope="session")
def widgets(control_plane: Cluster) -> None:
    """Serve the custom resource of the table."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    try:
        control_plane.request("POST", definitions, WIDGET_DEFINITION)
    except ApiError as error:
        if error.code != 409:
            raise


@pytest.mark.usefixtures("widgets")
@pytest.mark.parametrize("sentence", BEHAVIOURS)
async def test_a_real_server_behaves(sentence: str, control_plane: Cluster, namespace: str) -> None:
    transport = HttpTransport(load_config(control_plane.kubeconfig))
    try:
        api = Api(transport, namespace)
        async with asyncio.timeout(30):
            while (await transport.request("GET", WIDGETS.path(namespace))).status != 200:
                await asyncio.sleep(0.05)
        await BEHAVIOURS[sentence](api)
    finally:
        await transport.close()
