from __future__ import annotations

import pytest

from devcluster.errors import DevclusterError
from devcluster.images.base import PYTHON, Base, base_for
from devcluster.images.build import public_images


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("python:3.11-slim", Base("bookworm", PYTHON)),
        ("python:3.13.7-slim-bookworm", Base("trixie", PYTHON)),
        ("debian:bookworm-slim", Base("bookworm")),
    ],
)
def test_an_image_of_the_public_registry_has_a_stand_in(name, base):
    assert base_for(name) == base


@pytest.mark.parametrize("name", ["python:3.8-slim", "python", "nvidia/cuda:12", "debian:sid"])
def test_an_image_without_a_stand_in_is_refused_with_the_choices(name):
    with pytest.raises(DevclusterError, match=r"debian:bookworm .* build argument"):
        base_for(name)


def test_other_packages_are_another_base():
    assert Base("bookworm").key != Base("bookworm", PYTHON).key != Base("trixie", PYTHON).key


@pytest.mark.parametrize(
    ("dockerfile", "images"),
    [
        ("FROM python:3.11-slim\n", ["python:3.11-slim"]),
        ("ARG P=python:3.11\nFROM ${P} AS build\nFROM $P\n", ["python:3.13"]),
        ("FROM debian:trixie as a\nRUN true\nfrom a\n", ["debian:trixie"]),
        ("FROM scratch\nCOPY FROM /x\n", []),
    ],
)
def test_a_build_needs_the_images_that_it_does_not_make_itself(dockerfile, images):
    assert public_images(dockerfile, {"P": "python:3.13"}) == images
