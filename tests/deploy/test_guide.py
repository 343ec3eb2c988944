"""The guide is right: its commands run as they are, and its files exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import ControlPlane, ensure

ROOT = Path(__file__).parents[2]
GUIDES = (ROOT / "docs" / "install.md", ROOT / "docs" / "install.zh-CN.md")
ORDER = (
    "From the package, without a clone",
    "Quick install",
    "Namespaces",
    "Operating the operator",
    "Upgrade",
    "From paddle-operator",
    "From manifests to Helm",
    "Uninstall",
    "Helm",
)
"""In this order each section finds the cluster as it expects it."""
NEEDS_MORE_THAN_AN_API_SERVER = (
    "docker build",
    "paddlejob install --image registry.example.com/paddlejob-operator:0.2.0 --apply",
    "kubectl -n paddle-system rollout status",
    "kubectl -n paddle-system logs",
)
"""`make e2e` builds the image and runs its pod; tests/release applies what the package carries."""


def sections(guide: Path) -> dict[str, str]:
    parts = re.split(r"^##+ (.*)$", guide.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(text: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of somebody with kubectl, helm and a cluster."""
    home = tmp_path_factory.mktemp("home")
    for name, program in ensure(["kubectl", "helm"]).items():
        (home / name).symlink_to(program)
    (home / "paddlejob").symlink_to(Path(sys.executable).with_name("paddlejob"))
    with ControlPlane.start() as plane:
        yield {"HOME": str(home), "KUBECONFIG": str(plane.kubeconfig), "PATH": f"{home}:{os.environ['PATH']}"}


@pytest.mark.apiserver
@pytest.mark.usefixtures("kubectl", "helm")
def test_its_commands_run_as_they_are(shell) -> None:
    text = sections(GUIDES[0])
    for line in (line for section in ORDER for line in commands(text[section])):
        if not line.startswith(NEEDS_MORE_THAN_AN_API_SERVER):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line],
                cwd=ROOT,
                env=shell,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_every_section_with_commands_is_run() -> None:
    assert {name for name, text in sections(GUIDES[0]).items() if commands(text)} == set(ORDER)


def test_what_cannot_be_run_here_is_in_the_guide() -> None:
    lines = commands(GUIDES[0].read_text())
    assert all(any(line.startswith(each) for line in lines) for each in NEEDS_MORE_THAN_AN_API_SERVER)


def test_both_languages_show_the_same_commands() -> None:
    assert commands(GUIDES[0].read_text()) == commands(GUIDES[1].read_text())


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_file_that_it_names_is_there(guide: Path) -> None:
    named = set(re.findall(r"\bdeploy/[\w/.-]*\w", guide.read_text()))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
    links = re.findall(r"\]\(([\w.-]+\.md)\)", guide.read_text())
    assert [link for link in links if not (guide.parent / link).exists()] == []
