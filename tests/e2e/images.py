"""The images that the shipped manifests name, built from the shipped Dockerfiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

import paddlejob
from devcluster.images.build import Image, build_image

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WIDE_AND_DEEP = "registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1"
RESNET = "registry.baidubce.com/paddle-operator/demo-resnet:v1"
PADDLE_BASE_GPU = "registry.baidubce.com/paddle-operator/paddle-base-gpu:cuda11.8-cudnn8-devel-ubuntu22.04"
# A tag of its own: the other tests use the image for the CPU.
RESNET_GPU = f"{RESNET}-gpu"
OPERATOR = f"paddlejob-operator:{paddlejob.__version__}"
PLAIN_JOB = "your-repo/paddle:mypaddle"


@dataclass(frozen=True)
class Recipe:
    """Where an image comes from."""

    name: str
    dockerfile: Path
    context: Path
    arguments: dict[str, str] = field(default_factory=dict)

    def build(self) -> Image:
        return build_image(self.name, self.dockerfile, self.context, arguments=self.arguments)


def recipes() -> list[Recipe]:
    """Give all recipes; those of the examples are the ones that examples/images.yaml lists."""
    # The same base as the examples': one file system less to make.
    same_base = {"PYTHON_IMAGE": "python:3.11-slim"}
    listed = yaml.safe_load((EXAMPLES / "images.yaml").read_text())["images"]
    return [
        Recipe(OPERATOR, ROOT / "deploy/docker/Dockerfile", ROOT, same_base),
        Recipe(PLAIN_JOB, ROOT / "deploy/examples/job/Dockerfile", ROOT),
        *(Recipe(name, EXAMPLES / place / "Dockerfile", EXAMPLES / place) for name, place in listed.items()),
    ]


def gpu_recipes() -> list[Recipe]:
    """Return the recipes for GPUs in build order; only the thorough tests build these images of 3 GB."""
    base, resnet = EXAMPLES / "paddle_base_gpu", EXAMPLES / "resnet"
    # It stands for the image with CUDA, which an import of Paddle does not need.
    python = {"BASE": "python:3.11-slim"}
    return [
        Recipe(PADDLE_BASE_GPU, base / "Dockerfile", base, python),
        Recipe(RESNET_GPU, resnet / "Dockerfile.gpu", resnet, {"BASE": PADDLE_BASE_GPU}),
    ]
