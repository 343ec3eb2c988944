"""Everything here needs the real API server."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory, so that `-m "not apiserver"` leaves them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("apiserver")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Collect garbage after each test, so that an unclosed connection fails the test that opened it."""
    gc.collect()
