"""Files that pages show are the files that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from click.testing import CliRunner

from docs.blocks import ENGLISH, ROOT, blocks
from e2e.images import RESNET, recipes
from paddlejob.cli.main import main

EXAMPLES = ROOT / "deploy" / "examples"


def test_the_job_that_init_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["init", "--name", "mnist"]).exit_code == 0
    [shown] = blocks("docs/first-job.md", "yaml")
    written = (tmp_path / "job.yaml").read_text()
    assert written.partition("apiVersion")[2] == shown.text.partition("apiVersion")[2]


def test_the_job_of_the_tutorial():
    shown = yaml.safe_load(blocks("docs/cluster.md", "yaml")[0].text)
    assert shown == yaml.safe_load((EXAMPLES / "wide_and_deep.yaml").read_text())


def without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def missing(shown: str, text: str) -> Iterator[str]:
    """Yield the lines that are not in a text, or not in this order."""
    rest = iter(without_comments(text))
    for line in without_comments(shown):
        if line not in rest:
            yield line


@pytest.mark.parametrize(
    ("language", "position", "file"),
    [
        ("dockerfile", 0, "examples/wide_and_deep/Dockerfile"),
        ("yaml", 1, "deploy/examples/resnet.yaml"),
        ("yaml", 3, "deploy/examples/data_demo.yaml"),
    ],
)
def test_the_parts_of_files_in_the_tutorial(language, position, file):
    block = blocks("docs/cluster.md", language)[position]
    assert list(missing(block.text, (ROOT / file).read_text())) == []


@pytest.mark.parametrize("position", [0, 1])
def test_the_parts_of_files_for_language_models(position):
    block = blocks("docs/llm.md", "yaml")[position]
    assert list(missing(block.text, (ROOT / "examples/llm/finetune.yaml").read_text())) == []


def test_images_are_built_as_they_are_on_the_node():
    builds = {
        (name, file or f"{context}/Dockerfile", context)
        for page in ENGLISH
        for block in blocks(page, "bash")
        for file, name, context in re.findall(
            r"^docker build (?:-f (\S+) )?-t (\S+) (\S+)", block.text, flags=re.MULTILINE
        )
    }
    made = {
        (each.name, *(str(path.relative_to(ROOT)) for path in (each.dockerfile, each.context)))
        for each in recipes()
    }
    # No machine of the tests has a GPU.
    assert builds - made == {(RESNET, "examples/resnet/Dockerfile.gpu", "examples/resnet")}
    assert len(builds) == 4
