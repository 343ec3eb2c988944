"""The notes of a release: its changelog, and what changed in the CRD and in the operator's rights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from scripts.release import changes

RELEASED = Path("tests/release/released")
"""Where the CRD and the operator's file of every release are kept."""
_FILES = {"crd": "deploy/v1/crd.yaml", "operator": "deploy/v1/operator.yaml"}
VERIFY = """\
## Verify

`ALLOWED_SIGNERS` is `scripts/release/allowed_signers` in a clone of the repository that you trust. Do not
take it from the place of these files.

```bash
ssh-keygen -Y verify -f "$ALLOWED_SIGNERS" -I paddlejob-release -n file -s SHA256SUMS.sig < SHA256SUMS
sha256sum --check SHA256SUMS
```

`make release` on the commit that `provenance.json` names gives the same files, except for the image.
"""


def notes(version: str, source: Path, remarks: list[str]) -> str:
    """Return the notes: what is new, and what an administrator has to look at."""
    parts = [f"# paddlejob {version}\n", section((source / "CHANGELOG.md").read_text(), version)]
    if previous := release_before(version, source / RELEASED):
        parts.append(_differences(source, previous))
    if remarks:
        parts.append("## About this build\n\n" + "".join(f"- {each}\n" for each in remarks))
    return "\n".join([*parts, VERIFY])


def section(changelog: str, version: str) -> str:
    """Return what is new in a version: its section, or until it has one what is not released yet."""
    sections = dict(re.findall(r"^## \[([^\]]+)\].*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL))
    if found := (sections.get(version) or sections.get("Unreleased", "")).strip():
        return f"{found}\n"
    raise SystemExit(f"CHANGELOG.md has no section [{version}]; write one")


def release_before(version: str, released: Path) -> str:
    """Return the newest release that is older than a version, empty where there is none."""
    older = [path.stem.removeprefix("crd-") for path in released.glob("crd-*.yaml")]
    return max((each for each in older if _order(each) < _order(version)), key=_order, default="")


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _differences(source: Path, previous: str) -> str:
    old = {name: _objects((source / RELEASED / f"{name}-{previous}.yaml").read_text()) for name in _FILES}
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


def _objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]
