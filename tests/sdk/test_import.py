"""`import paddlejob` costs nothing, and gives the SDK to whoever asks for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import paddlejob

HEAVY = ("asyncio", "msgspec", "yaml", "aiohttp", "paddlejob.sdk", "paddlejob.client")


def loaded(statement: str) -> list[str]:
    code = f"import sys\n{statement}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_the_package_imports_nothing_else():
    assert loaded("import paddlejob") == []


def test_a_laptop_needs_no_http_client():
    assert "aiohttp" not in loaded(
        "from paddlejob import train; from paddlejob.client.local_runs import LocalRuns"
    )


def test_the_package_lists_what_it_has():
    assert set(paddlejob.__all__) <= set(dir(paddlejob))
    assert all(getattr(paddlejob, name) for name in paddlejob.__all__)
    with pytest.raises(AttributeError, match="module 'paddlejob' has no attribute 'trian'"):
        paddlejob.trian  # noqa: B018
