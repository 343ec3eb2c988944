"""The manifests of this directory, as people submit them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.definitions import documents

HERE = Path(__file__).parent
PLACEHOLDER = "[YOUR_REPO]"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file; the guide's placeholder for a registry is filled in."""
    text = path.read_text().replace(PLACEHOLDER, "registry.example.org/me")
    return [document for document in documents(text) if document]


def manifests(*, wild: bool = True) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of all files by the file's name."""
    paths = [*HERE.glob("*.yaml"), *(HERE.glob("wild/*.yaml") if wild else ())]
    return {str(path.relative_to(HERE).with_suffix("")): read(path) for path in sorted(paths)}


def jobs() -> dict[str, dict[str, Any]]:
    """Return the PaddleJobs of all files by the file's name."""
    return {
        name: document
        for name, documents in manifests().items()
        for document in documents
        if document["kind"] == "PaddleJob"
    }
