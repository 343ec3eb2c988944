"""The operator's Dockerfile, read as a builder reads it; `make e2e` builds it and runs the result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from paddlejob.local.input.dockerfile import instructions
from scripts import manifests

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
INSTRUCTIONS = list(instructions(DOCKERFILE.read_text()))
RULES = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()


def named(name: str) -> list[str]:
    return [rest for instruction, rest in INSTRUCTIONS if instruction == name]


FROM_CONTEXT = {
    source for rest in named("COPY") if not rest.startswith("--from=") for source in rest.split()[:-1]
}


@pytest.mark.parametrize("source", sorted(FROM_CONTEXT))
def test_what_it_copies_is_there(source):
    assert (ROOT / source).exists()


def test_what_it_copies_is_sent_to_the_builder_and_nothing_else():
    everything, *kept = [rule for rule in RULES if not rule.startswith(("#", "**/"))]
    assert everything == "*"
    assert {rule.removeprefix("!") for rule in kept} == FROM_CONTEXT
    assert {"**/__pycache__", "**/*.egg-info"} <= set(RULES)


def test_the_wheel_in_the_image_carries_what_any_wheel_does():
    carried = [path.resolve() for path in (ROOT / "src/paddlejob/bundle").iterdir() if path.is_symlink()]
    copied = {ROOT / source for source in FROM_CONTEXT}
    assert len(carried) == 4
    assert [path for path in carried if copied.isdisjoint((path, *path.parents))] == []


def test_the_base_is_one_argument_and_an_exact_version_without_a_host():
    argument, *_ = named("ARG")
    assert {rest.split()[0] for rest in named("FROM")} == {"${PYTHON_IMAGE}"}
    assert re.fullmatch(r"PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-\w+", argument)


def test_every_version_that_it_installs_is_pinned():
    installs = re.findall(r"pip install ([^&]*)", " ".join(named("RUN")))
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)


def test_the_operator_runs_on_the_event_loop_of_its_extra():
    assert "\nuvloop==" in (ROOT / "deploy" / "docker" / "requirements.txt").read_text()


def test_it_runs_as_the_user_that_the_manifests_name():
    last_stage = INSTRUCTIONS[[name for name, _ in INSTRUCTIONS].index("FROM", 2) :]
    assert ("USER", f"{manifests.USER}:{manifests.USER}") in last_stage


def test_it_starts_what_the_manifests_start():
    objects = manifests.operator_objects(manifests.Install())
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert [*json.loads(named("ENTRYPOINT")[0]), *json.loads(named("CMD")[0])] == container["command"]


def test_its_comment_names_the_image_of_the_manifests():
    assert f"-t {manifests.IMAGE} ." in DOCKERFILE.read_text()
