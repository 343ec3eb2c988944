"""Commands of the documentation that need no cluster, run as they are written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.blocks import ENGLISH, ROOT, RUN_ELSEWHERE, Command, blocks, matches
from docs.endless import until_it_speaks

pytestmark = pytest.mark.slow

PROGRAM = """
import os
os.makedirs("output", exist_ok=True)
open("output/final.pdparams", "w").write("weights")
print("done acc 0.97", flush=True)
"""
LINKS = ("deploy", "examples", "scripts")
BLOCKS = {
    page: [each for each in blocks(page, "bash", "console") if each.commands() and not each.is_for_a_cluster]
    for page in ENGLISH
    if page not in RUN_ELSEWHERE
}
NEED_PADDLE = [page for page, found in BLOCKS.items() if any("paddle_env.py" in each.text for each in found)]
"""They train, which takes a minute: a part of `make test-tools`."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where somebody sits who reads the page: beside a train.py, in something like a clone."""
    directory = tmp_path / "clone"
    directory.mkdir()
    (directory / "train.py").write_text(PROGRAM)
    shutil.copy(ROOT / "tests/kubeflow/corpus/collective.yaml", directory / "kubeflow-job.yaml")
    (directory / ".venv").symlink_to(sys.prefix)
    for name in LINKS:
        (directory / name).symlink_to(ROOT / name)
    return directory


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.tools if page in NEED_PADDLE else ())
        for page, found in BLOCKS.items()
        if found
    ],
)
def test_commands_run_as_they_are_written(page, playing, directory, tmp_path):
    printed = []
    home = tmp_path / "home"
    home.mkdir()
    environ = {
        **{name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")},
        "HOME": str(home),
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "BROWSER": "true",
        "PADDLEJOB_CACHE": os.environ.get("PADDLEJOB_CACHE") or str(Path.home() / ".cache" / "paddlejob"),
    }

    def run(command: Command) -> None:
        arguments = {"cwd": directory, "env": environ}
        if " ui" in command.text:
            assert "http://127.0.0.1:" in until_it_speaks(command.text, **arguments)
            return
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.text],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=560,
            **arguments,
        )
        assert done.returncode == 0, f"{command.text}\n{done.stdout}"
        printed.append(done.stdout)
        if command.output is not None:
            assert matches(command.output, done.stdout), f"{command.text}\n{done.stdout}"

    if page in NEED_PADDLE:
        # What `make demo` leaves behind, which these pages have their reader run first.
        subprocess.run([sys.executable, str(ROOT / "scripts/example_data.py")], check=True)
    playing(BLOCKS[page], run)
    if page == "docs/plain-job.md":
        result, job, output = (each.text for each in blocks(page, "text")[1:4])
        first_trainer = "".join(re.findall(r"^\[0\] .*\n", printed[-1], flags=re.MULTILINE))
        assert re.search(any_number(result) + r"\Z", first_trainer), printed[-1]
        assert missing(job.replace("paddle-cluster-job", "jobs/wide-and-deep"), directory) == []
        assert missing(output.replace("output", "jobs/wide-and-deep/output", 1), directory) == []


def any_number(text: str) -> str:
    """Return the pattern of a text in which measured numbers may differ."""
    return re.sub(r"\d+(?:\\\.\d+)?", lambda found: r"[\d.]+", re.escape(text))


def missing(tree: str, directory: Path) -> list[str]:
    """Return what the drawing of a directory shows and is not there."""
    top, *lines = tree.splitlines()
    folders, absent = [top], []
    for line in lines:
        branch, names = re.match(r"(.*── )(.*?)(?: {2,}.*| \.\.\.)?$", line).groups()
        depth = len(branch) // len("├── ")
        for name in names.split(", "):
            folders[depth:] = [name]
            if not directory.joinpath(*folders).exists():
                absent.append("/".join(folders))
    return absent


def test_what_a_drawing_shows_and_is_not_there(tmp_path):
    (tmp_path / "job" / "0").mkdir(parents=True)
    (tmp_path / "job" / "0" / "data").touch()
    drawn = "job\n├── 0\n│   ├── data    the shard\n│   └── a, b\n├── 1 ...\n└── SUMS    of all\n"
    assert missing(drawn, tmp_path) == ["job/0/a", "job/0/b", "job/1", "job/SUMS"]
