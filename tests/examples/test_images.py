"""The examples' images, as the local runner reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddlejob.local.input import images
from paddlejob.local.input.dockerfile import instructions, parse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REGISTRY = "registry.baidubce.com/paddle-operator"


@pytest.mark.parametrize(
    ("name", "directory", "program", "workdir"),
    [
        ("demo-wide-and-deep:v1", "wide_and_deep", ("python3", "train.py"), "/wide_and_deep"),
        (
            "demo-resnet:v1",
            "resnet",
            ("python", "-m", "paddle.distributed.launch", "train_fleet.py"),
            "/resnet",
        ),
        ("paddle-ubuntu:2.0.0-18.04", "paddle_ubuntu", (), "/"),
    ],
)
def test_an_image_of_the_documents_is_found_with_its_program(name, directory, program, workdir):
    image = images.collect((), EXAMPLES / "any").find(f"{REGISTRY}/{name}")
    assert image is not None
    assert image.directory == EXAMPLES / directory
    assert (*image.config.entrypoint, *image.config.command) == program
    assert image.config.workdir == workdir
    assert image.config.environment == {"PYTHONUNBUFFERED": "1"}
    assert image.config.notes == ()
    for script in (word for word in program if word.endswith(".py")):
        assert (image.directory / script).is_file()


GPU_BASE = f"{REGISTRY}/paddle-base-gpu:cuda11.8-cudnn8-devel-ubuntu22.04"


def test_the_image_for_gpus_is_that_for_the_cpu_with_another_paddle():
    cpu, gpu = ((EXAMPLES / "resnet" / name).read_text() for name in ("Dockerfile", "Dockerfile.gpu"))
    assert parse(gpu) == parse(cpu)
    steps = list(instructions(gpu))
    assert ("ARG", "BASE=paddlepaddle/paddle:3.3.1-gpu-cuda12.6-cudnn9.5") in steps
    assert ("RUN", "python3 -m pip show paddlepaddle-gpu") in steps
    assert ("RUN", "python3 prepare_data.py") in steps
    assert "paddlepaddle==3.3.1" in cpu, "the same version of Paddle in both"


def test_the_base_image_for_gpus_fails_to_build_with_a_paddle_for_the_cpu():
    base = (EXAMPLES / "paddle_base_gpu" / "Dockerfile").read_text()
    assert f"-t {GPU_BASE} ." in base
    assert ("ARG", "BASE=nvidia/cuda:11.8.0-cudnn8-devel-ubuntu22.04") in instructions(base)
    assert "paddlepaddle-gpu==2.6.2" in base
    assert "assert paddle.is_compiled_with_cuda()" in base
