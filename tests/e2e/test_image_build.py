"""Images are built as their Dockerfiles say; the base comes from the cache that the other tests use."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from devcluster.build.compile import Progress
from devcluster.errors import DevclusterError
from devcluster.images.build import Image, archive, build_image

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


def build(context: Path, name: str = "x:1", **options: Any) -> Image:
    arguments, progress = {"BASE": "python:3.11-slim"}, Progress(io.StringIO())
    dockerfile = context / "Dockerfile"
    return build_image(name, dockerfile, context, arguments=arguments, progress=progress, **options)


def unpack(image: Image, target: Path) -> dict[str, Any]:
    """Write the files of an image's last layer into a directory and return the image's configuration."""
    with archive(image) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        tar.extractall(target, filter="tar")
    [manifest] = json.loads((target / "manifest.json").read_text())
    with tarfile.open(target / manifest["Layers"][-1]) as layer:
        layer.extractall(target / "last", filter="tar")
    config: dict[str, Any] = json.loads((target / manifest["Config"]).read_text())["config"]
    return config


def test_stages_files_and_settings_end_up_in_the_image(context: Path, tmp_path: Path) -> None:
    config = unpack(build(context), tmp_path / "image")
    made = tmp_path / "image" / "last" / "opt" / "made"
    assert made.read_text() == "hello\n"
    assert config["Entrypoint"] == ["cat", "/opt/made"]
    assert config["User"] == "65532:65532"
    assert "NAME=world" in config["Env"]


def test_an_image_starts_from_one_that_was_built_before(context: Path, tmp_path: Path) -> None:
    (context / "Dockerfile").write_text("FROM scratch\nENV NAME=world\nCOPY greeting /\n")
    build(context, "example.org/first:1")
    (context / "Dockerfile").write_text("FROM example.org/first:1\nUSER 5\nCOPY greeting /again\n")
    config = unpack(build(context), tmp_path / "image")
    assert (config["User"], "NAME=world" in config["Env"]) == ("5", True)


def test_an_image_is_the_same_until_something_changes(context: Path) -> None:
    first = build(context)
    assert build(context) == first
    (context / "greeting").write_text("good bye\n")
    assert build(context).id != first.id


def digest(context: Path, timestamp: int) -> str:
    with archive(build(context, timestamp=timestamp)) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def test_no_layer_comes_from_an_image_of_another_time(context: Path) -> None:
    (context / "Dockerfile").write_text("FROM scratch\nCOPY greeting /\nENV NAME=world\n")
    first, second, again = (digest(context, time) for time in (1_600_000_000, 1_700_000_000, 1_600_000_000))
    assert first == again != second


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_an_image_with_a_time_is_the_same_where_nothing_is_cached(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for name in ("one", "other"):
        monkeypatch.setenv("PADDLEJOB_CACHE", str(tmp_path / name))
        digests.add(digest(context, 1_700_000_000))
    assert len(digests) == 1


def test_nothing_that_was_borrowed_for_a_step_stays_in_the_image(
    context: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple")
    command = "RUN pip config list | grep -o index.example > /made"
    (context / "Dockerfile").write_text(f"FROM python:3.11-slim\n{command}\n")
    unpack(build(context), tmp_path / "image")
    files = [path for path in (tmp_path / "image" / "last").rglob("*") if path.is_file()]
    assert [path.name for path in files if path.stat().st_size and path.name != "hosts"] == ["made"]


def test_a_command_that_fails_is_quoted_with_its_last_words(context: Path) -> None:
    (context / "Dockerfile").write_text("FROM python:3.11-slim\nRUN echo too bad >&2; exit 3\n")
    with pytest.raises(DevclusterError, match=r"(?s)could not be built:.*too bad.*exit status 3"):
        build(context)
