"""The operator's Dockerfile, read as a builder reads it; `make e2e` builds it and runs the result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from devcluster.dockerfile import Ignored, Instruction, parse
from scripts import manifests

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
INSTRUCTIONS = parse(DOCKERFILE.read_text())
FROM_CONTEXT = [
    source
    for each in INSTRUCTIONS
    if each.name == "COPY" and "from" not in each.flags
    for source in each.words()[:-1]
]


def named(name: str) -> list[Instruction]:
    return [each for each in INSTRUCTIONS if each.name == name]


@pytest.mark.parametrize("source", FROM_CONTEXT)
def test_what_it_copies_is_there_and_is_sent_to_the_builder(source):
    assert (ROOT / source).exists()
    assert source not in Ignored(DOCKERFILE.with_name("Dockerfile.dockerignore").read_text())


@pytest.mark.parametrize(
    "path", [".git/config", ".venv/bin/python", "src/paddlejob/__pycache__/a.pyc", "tests/a.py"]
)
def test_what_it_does_not_need_is_not_sent(path):
    assert path in Ignored(DOCKERFILE.with_name("Dockerfile.dockerignore").read_text())


def test_the_base_is_one_argument_and_an_exact_version_without_a_host():
    [argument] = named("ARG")
    assert {each.text.split()[0] for each in named("FROM")} == {"${PYTHON_IMAGE}"}
    assert re.fullmatch(r"PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-\w+", argument.text)


def test_every_version_that_it_installs_is_pinned():
    installs = re.findall(r"pip install ([^&]*)", " ".join(each.text for each in named("RUN")))
    assert len(installs) == 2
    assert all("==" in each or "-c constraints.txt" in each for each in installs)


def test_the_operator_runs_on_the_event_loop_of_its_extra():
    assert any('$(ls /wheels/*.whl)[operator]"' in each.text for each in named("RUN"))


def test_it_runs_as_the_user_that_the_manifests_name():
    assert INSTRUCTIONS.index(named("USER")[0]) > INSTRUCTIONS.index(named("FROM")[-1])
    assert named("USER")[0].text == f"{manifests.USER}:{manifests.USER}"


def test_it_starts_what_the_manifests_start():
    container = manifests.operator_objects(manifests.Install())[-2]["spec"]["template"]["spec"]["containers"][
        0
    ]
    assert [*named("ENTRYPOINT")[0].words(), *named("CMD")[0].words()] == container["command"]


def test_its_comment_names_the_image_of_the_manifests():
    assert f"-t {manifests.IMAGE} ." in DOCKERFILE.read_text()
