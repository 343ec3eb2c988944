from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paddlejob.api.crd.definition import crd_v1
from scripts import generate


def test_a_missing_file_is_stale(tmp_path: Path) -> None:
    assert {path for path, _ in generate.stale_files(tmp_path)} == {
        tmp_path / name for name, _ in generate.GENERATED
    }


def test_an_edited_file_is_stale(tmp_path: Path) -> None:
    for path, text in generate.stale_files(tmp_path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    edited = tmp_path / "deploy/v1/crd.yaml"
    edited.write_text(edited.read_text().replace("maximum: 2", "maximum: 3"))
    assert [path for path, _ in generate.stale_files(tmp_path)] == [edited]


@pytest.mark.parametrize("name", ["deploy/v1/crd.yaml", "deploy/v1beta1/crd.yaml"])
def test_a_manifest_is_marked_as_generated(name: str) -> None:
    first = (generate.ROOT / name).read_text().splitlines()[0]
    assert first.startswith("# Generated from src/paddlejob/api")


def test_a_manifest_loses_nothing() -> None:
    assert yaml.safe_load(generate.manifest(crd_v1())) == crd_v1()
