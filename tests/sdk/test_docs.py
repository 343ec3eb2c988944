"""docs/sdk.md is right: every block of code runs, in order, on this machine and on a cluster in memory."""

from __future__ import annotations

import inspect
import linecache
import re
from pathlib import Path

import pytest

from paddlejob import Job, train
from paddlejob.sdk.training import DEFAULT_IMAGE

ROOT = Path(__file__).parents[2]
GUIDES = (ROOT / "docs" / "sdk.md", ROOT / "docs" / "sdk.zh-CN.md")
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def without_comments(code: str) -> str:
    return re.sub(r" *#.*$", "", code, flags=re.MULTILINE)


@pytest.fixture
def directory(memory, laptop: Path) -> Path:
    """The current directory of somebody who reads the guide."""
    (laptop / "train.py").write_text("print('epoch 1/1 loss 0.5')\n")
    (laptop / "model.py").write_text("LOSS = 0.5\n")
    (laptop / "broken.py").write_text("raise ValueError('bad shape')\n")
    (laptop / "configs").mkdir()
    (laptop / "configs" / "small.yaml").write_text("layers: 2\n")
    return laptop


def run(code: str, name: str, namespace: dict) -> None:
    """Run code as a cell runs, with source that can be found."""
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), namespace)


@pytest.mark.slow
def test_every_block_runs(directory, capsys):
    namespace: dict = {"__name__": "guide"}
    for number, code in enumerate(blocks(GUIDES[0].read_text())):
        run(code, f"<sdk.md {number}>", namespace)
    printed = capsys.readouterr().out
    for part in (
        "worker-1 epoch 1/1 loss 0.5\n",
        "worker-0 1\nValueError: bad shape\n",
        "Completed: the worker succeeded, step 3/3 loss 0.1\n",
        "\nstep 3/3 loss 0.1\n0.1\nCompleted\n",
        "mnist on cluster: ",
    ):
        assert part in printed
    for job in Job.list():
        job.delete(force=True)


def test_what_the_guide_promises_is_so():
    text = GUIDES[0].read_text()
    options = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))))
    assert options == set(inspect.signature(train).parameters) - {"program"}
    assert f"by default `{DEFAULT_IMAGE}`" in text


def test_the_guides_have_the_same_code_and_sections():
    english, chinese = (guide.read_text() for guide in GUIDES)
    assert [without_comments(each) for each in blocks(chinese)] == [
        without_comments(each) for each in blocks(english)
    ]
    assert len(re.findall(r"^## ", chinese, re.MULTILINE)) == len(re.findall(r"^## ", english, re.MULTILINE))
    assert len(re.findall(r"^\| ", chinese, re.MULTILINE)) == len(re.findall(r"^\| ", english, re.MULTILINE))


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_the_readme_shows_the_first_lines(readme):
    assert blocks(GUIDES[0].read_text())[0] in blocks(readme.read_text())
