"""Images are built as their Dockerfiles say; the base comes from the cache that the other tests use."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from devcluster.build import Progress
from devcluster.image_build import build_image
from devcluster.programs import DevclusterError

TWO_STAGES = """\
ARG BASE=debian:nothing
FROM ${BASE} AS build
WORKDIR /work
COPY greeting ./
RUN cat greeting > /made && rm greeting && chown 5:6 /made
FROM ${BASE}
ENV NAME=world
COPY --from=build /made /opt/
USER 65532:65532
ENTRYPOINT ["cat", "/opt/made"]
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "greeting").write_text("hello\n")
    (tmp_path / "Dockerfile").write_text(TWO_STAGES)
    return tmp_path


def build(context: Path, said: io.StringIO | None = None):
    progress = Progress(said or io.StringIO())
    return build_image(
        "x:1", context / "Dockerfile", context, arguments={"BASE": "python:3.11-slim"}, progress=progress
    )


def test_stages_files_and_settings_end_up_in_the_image(context: Path) -> None:
    image = build(context)
    (made,) = image.layers[-1].path.parent.glob("tree/opt/made")
    assert made.read_text() == "hello\n"
    assert image.config["Entrypoint"] == ["cat", "/opt/made"]
    assert image.config["User"] == "65532:65532"
    assert "NAME=world" in image.config["Env"]


def test_nothing_is_built_twice_until_something_changes(context: Path) -> None:
    first, said = build(context), io.StringIO()
    assert build(context, said) == first
    assert {line.rpartition(": ")[2].partition(",")[0] for line in said.getvalue().splitlines()[1:-1]} == {
        "cached"
    }
    (context / "greeting").write_text("good bye\n")
    assert build(context).layers[-1] != first.layers[-1]


def test_nothing_that_was_borrowed_for_a_step_stays_in_its_layer(context: Path) -> None:
    text = TWO_STAGES.replace("RUN cat", "RUN cat /etc/resolv.conf > /dev/null && cat")
    (context / "Dockerfile").write_text(text.partition("FROM ${BASE}\n")[0])
    tree = build(context).layers[-1].path.parent / "tree"
    assert {path.name for path in tree.rglob("*") if not path.is_dir()} == {"made", "greeting"}


def test_a_command_that_fails_is_quoted_with_its_last_words(context: Path) -> None:
    (context / "Dockerfile").write_text("FROM python:3.11-slim\nRUN echo too bad >&2; exit 3\n")
    with pytest.raises(DevclusterError, match=r"ended with code 3:\ntoo bad"):
        build(context)
