"""The notes of a release: its changelog, and what changed in the CRD and in the operator's rights."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from scripts.release import changes
from scripts.release.source import ROOT

_FILES = {"crd": "deploy/v1/crd.yaml", "operator": "deploy/v1/operator.yaml"}
VERIFY = """\
## Verify

```bash
ssh-keygen -Y verify -f allowed_signers -I paddlejob-release -n file -s SHA256SUMS.sig < SHA256SUMS
sha256sum --check SHA256SUMS
```

`make release` on the commit that `provenance.json` names gives the same files.
"""


def notes(version: str, source: Path, previous: str, remarks: list[str]) -> str:
    """Return the notes; `previous` is the release before as git knows it, empty where there is none."""
    parts = [f"# paddlejob {version}\n", section((source / "CHANGELOG.md").read_text(), version)]
    if previous:
        parts.append(_differences(source, previous))
    if remarks:
        parts.append("## About this build\n\n" + "".join(f"- {each}\n" for each in remarks))
    return "\n".join([*parts, VERIFY])


def section(changelog: str, version: str) -> str:
    """Return what is new in a version; what is not released yet comes first, as long as there is any."""
    sections = dict(re.findall(r"^## \[([^\]]+)\].*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL))
    if version not in sections:
        raise SystemExit(f"CHANGELOG.md has no section [{version}]; write one")
    return "\n".join(filter(None, (sections.get("Unreleased", "").strip(), sections[version].strip()))) + "\n"


def _differences(source: Path, previous: str) -> str:
    old = {name: _objects(_show(previous, path)) for name, path in _FILES.items()}
    new = {name: _objects((source / path).read_text()) for name, path in _FILES.items()}
    before, after = changes.rights(old["operator"]), changes.rights(new["operator"])
    rights = [
        *(f"- new: {each}" for each in sorted(after - before)),
        *(f"- gone: {each}" for each in sorted(before - after)),
    ]
    crd = changes.summary(old["crd"][0], new["crd"][0])
    return "\n".join(
        [
            f"## The CRD since {previous}\n",
            *(crd or ["unchanged"]),
            f"\n## The operator's rights since {previous}\n",
            *(rights or ["unchanged"]),
            "",
        ]
    )


def _show(commit: str, path: str) -> str:
    command = ["git", "show", f"{commit}:{path}"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]
