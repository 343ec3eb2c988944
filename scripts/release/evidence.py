"""What lets others verify a release: checksums, where it comes from, and a signature over both."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

CHECKSUMS = "SHA256SUMS"
PROVENANCE = "provenance.json"
SIGNERS = "allowed_signers"
IDENTITY = "paddlejob-release"
NAMESPACE = "file"


def write_provenance(folder: Path, *, commit: str, version: str, constraints: Path) -> None:
    """Write an in-toto statement with SLSA's provenance: these files come from this commit."""
    statement: dict[str, Any] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in _digests(folder).items()
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://paddlejob.invalid/make-release/v1",
                "externalParameters": {"commit": commit, "version": version},
                "internalParameters": {},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {"name": constraints.name, "digest": {"sha256": _digest(constraints)}},
                ],
            },
            "runDetails": {"builder": {"id": "https://paddlejob.invalid/make-release"}},
        },
    }
    (folder / PROVENANCE).write_text(json.dumps(statement, indent=1) + "\n")


def write_checksums(folder: Path) -> None:
    """Write the file that `sha256sum --check` reads."""
    (folder / CHECKSUMS).write_text(
        "".join(f"{digest}  {name}\n" for name, digest in _digests(folder).items())
    )


def sign(folder: Path, key: Path) -> None:
    """Sign the checksums with an SSH key, and write down who may sign."""
    checksums, public = folder / CHECKSUMS, key.with_name(f"{key.name}.pub").read_text().split()[:2]
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(checksums)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / SIGNERS).write_text(f'{IDENTITY} namespaces="{NAMESPACE}" {" ".join(public)}\n')


def test_key(place: Path) -> Path:
    """Return a key for releases that nobody is to trust, which is made when it is not there."""
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test key", "-f", str(place)]
        subprocess.run(command, check=True)
    return place


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _digest(path) for path in files}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
