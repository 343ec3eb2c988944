"""Bills of materials in SPDX 2.3: what is in the wheel's environment, and what is in the image."""

from __future__ import annotations

import email
import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote

VENDORED = "paddlejob/dashboard/static/vendor/README.md"


class Package(NamedTuple):
    """One piece of software."""

    ecosystem: str
    """As package URLs call it: pypi, npm, deb."""
    name: str
    version: str
    license: str = "NOASSERTION"

    @property
    def purl(self) -> str:
        """Return its package URL."""
        namespace = "debian/" if self.ecosystem == "deb" else ""
        name, version = (quote(each, safe=":") for each in (self.name, self.version))
        return f"pkg:{self.ecosystem}/{namespace}{name}@{version}"


def of_wheels(wheels: Iterable[Path]) -> list[Package]:
    """Return the packages of wheels, and the scripts that ours carries for browsers."""
    found: set[Package] = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"[^/]+\.dist-info/METADATA", name):
                    found.add(_python_package(archive.read(name).decode()))
                elif name == VENDORED:
                    found.update(_vendored(archive.read(name).decode()))
    return sorted(found)


def of_image(archive: IO[bytes]) -> list[Package]:
    """Return the Debian and Python packages in an image, as `docker save` writes it."""
    files: dict[str, str] = {}
    with tarfile.open(fileobj=archive) as image:
        manifest = json.load(_opened(image, "manifest.json"))
        for layer in manifest[0]["Layers"]:
            with tarfile.open(fileobj=_opened(image, layer)) as content:
                for member in content:
                    if member.isfile() and _is_telling(member.name):
                        files[member.name] = _opened(content, member.name).read().decode(errors="replace")
    found: set[Package] = set()
    for name, text in files.items():
        if name.endswith("dpkg/status"):
            found.update(_debian(text))
        else:
            found.update(_vendored(text) if name.endswith(VENDORED) else [_python_package(text)])
    return sorted(found)


def _is_telling(name: str) -> bool:
    return name.endswith((VENDORED, ".dist-info/METADATA")) or name.lstrip("./") == "var/lib/dpkg/status"


def _opened(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    opened = archive.extractfile(name)
    assert opened is not None
    return opened


def _python_package(metadata: str) -> Package:
    fields = email.message_from_string(metadata)
    license_ = str(fields.get("License-Expression") or "NOASSERTION")
    return Package("pypi", str(fields["Name"]).lower().replace("_", "-"), str(fields["Version"]), license_)


def _vendored(readme: str) -> set[Package]:
    rows = re.findall(r"^\| `[^|]*` \| (\w+) \| ([\d.]+) \|", readme, re.MULTILINE)
    return {Package("npm", name, version) for name, version in rows}


def _debian(status: str) -> Iterable[Package]:
    for paragraph in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            yield Package("deb", fields["Package"], fields["Version"])


def spdx(subject: str, packages: list[Package], files: Iterable[Path], epoch: int) -> str:
    """Return the document for a subject, which is `files` and contains the packages."""
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    mark = hashlib.sha256(json.dumps([subject, digests, packages]).encode()).hexdigest()
    described = {
        "SPDXID": "SPDXRef-subject",
        "name": subject,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": each} for each in digests.values()],
    }
    document: dict[str, Any] = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": subject,
        "documentNamespace": f"https://paddlejob.invalid/spdx/{subject}-{mark[:16]}",
        "creationInfo": {"created": created, "creators": ["Tool: paddlejob-release"]},
        "packages": [described, *map(_spdx_package, packages)],
        "relationships": [
            _relationship("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-subject"),
            *(_relationship("SPDXRef-subject", "CONTAINS", _id(each)) for each in packages),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def _spdx_package(package: Package) -> dict[str, Any]:
    return {
        "SPDXID": _id(package),
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": package.license,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.purl,
            }
        ],
    }


def _id(package: Package) -> str:
    return "SPDXRef-" + re.sub(
        r"[^a-zA-Z0-9.]+", "-", f"{package.ecosystem}-{package.name}-{package.version}"
    )


def _relationship(element: str, kind: str, related: str) -> dict[str, str]:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
