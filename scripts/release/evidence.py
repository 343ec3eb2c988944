"""Checksums, provenance and signature of a release."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CHECKSUMS = "SHA256SUMS"
PROVENANCE = "provenance.json"
SIGNERS = Path("scripts/release/allowed_signers")
"""The maintainers' public keys. A release has no copy: its own list of signers would prove nothing."""
IDENTITY = "paddlejob-release"
NAMESPACE = "file"


def write_provenance(
    folder: Path, *, commit: str, version: str, inputs: Iterable[Path], packages: Iterable[Path]
) -> None:
    """Write an in-toto statement with SLSA's provenance: the commit, the pins and the packages inside.

    `.invalid` marks identifiers of a build on the maintainer's machine; no hosted builder vouches for it.
    """
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
                    *(
                        {"name": path.name, "digest": {"sha256": _digest(path)}}
                        for path in (*inputs, *sorted(packages, key=lambda each: each.name))
                    ),
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
    """Sign the checksums with an SSH key."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(folder / CHECKSUMS)]
    subprocess.run(command, check=True, capture_output=True)


def signer(key: Path) -> str:
    """Return the line of an allowed signers file for a key."""
    kind, public = key.with_name(f"{key.name}.pub").read_text().split()[:2]
    return f'{IDENTITY} namespaces="{NAMESPACE}" {kind} {public}'


def is_listed(key: Path, source: Path) -> bool:
    """Return whether the source names the key as one of the maintainers'."""
    return signer(key) in (source / SIGNERS).read_text().splitlines()


def test_key(place: Path) -> Path:
    """Return a key for test releases, created if missing."""
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
