from __future__ import annotations

import pytest

from tests.support.simulated_cluster import SimulatedCluster


@pytest.fixture
def cluster() -> SimulatedCluster:
    """An API server in memory; only the operator runs, when it is told to."""
    return SimulatedCluster()
