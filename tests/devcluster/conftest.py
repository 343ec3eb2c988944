"""A private cache, and a stand-in for the Go compiler where a test is about what surrounds a build."""

from __future__ import annotations

from pathlib import Path

import pytest

GO_SCRIPT = """#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit 0; fi
echo "$@" >> {calls}
while [ "$1" != -o ]; do shift; done
{body}
"""


class StandInGo:
    """A `go` on PATH that records its calls; `body` is what `go build` does, with the output's path in $2."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._program = directory / "go"
        self._calls = directory / "calls"
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
        self.behave('echo built > "$2"')

    def behave(self, body: str, *, version: str = "go1.99.0") -> None:
        self._program.write_text(GO_SCRIPT.format(version=version, calls=self._calls, body=body))
        self._program.chmod(0o755)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []

    def path(self) -> Path:
        return self._program


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PADDLEJOB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInGo:
    directory = tmp_path / "path"
    directory.mkdir()
    return StandInGo(directory, monkeypatch)
