"""`kubectl pdj` as one executable file for people without pip, and krew's manifest of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml

from scripts.release.distributions import pack

PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Kubernetes' word for a machine, and that of wheels."""
MANYLINUX = ("manylinux_2_17", "manylinux2014", "manylinux_2_28", "manylinux_2_26", "manylinux_2_31")
_MAIN = Path(__file__).with_name("zipapp_main.py")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def wheels(wheel: Path, constraints: Path, hashes: Path, machine: str, out: Path) -> list[tuple[str, Path]]:
    """Download the wheels that `kubectl pdj` needs; return each with the Python that it is for, or `any`.

    Exits if the hash of one is not among the known ones.
    """
    found: dict[str, tuple[str, Path]] = {}
    for python in PYTHONS:
        tag = f"cp{python.replace('.', '')}"
        folder = out / tag
        platforms = [f"--platform={each}_{machine}" for each in MANYLINUX]
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
                *("--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms),
                *(f"--constraint={constraints}", f"--dest={folder}", str(wheel)),
            ],
            check=True,
        )
        for path in folder.glob("*.whl"):
            found[path.name] = ("any" if path.name.endswith("-none-any.whl") else tag, path)
    known = hashes.read_text()
    for _, path in found.values():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.name != wheel.name and f"--hash=sha256:{digest}" not in known:
            raise SystemExit(f"release: {path.name} has the hash {digest}, which {hashes.name} does not list")
    return [found[name] for name in sorted(found)]


def zipapp(found: list[tuple[str, Path]], target: Path) -> Path:
    """Write the file: the wheels, unchanged, and the program that unpacks them."""
    digest = hashlib.sha256()
    for _, path in found:
        digest.update(path.read_bytes())
    pythons = [f"cp{each.replace('.', '')}" for each in PYTHONS]
    main = _MAIN.read_text().replace("@DIGEST@", digest.hexdigest()[:16])
    main = main.replace("PYTHONS: list[str] = []  # @PYTHONS@", f"PYTHONS = {pythons}")
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo("__main__.py", _ZIP_TIME), main)
            for tag, path in found:
                archive.writestr(zipfile.ZipInfo(f"wheels/{tag}/{path.name}", _ZIP_TIME), path.read_bytes())
    target.chmod(0o755)
    return target


def krew_archive(program: Path, license_file: Path, target: Path, epoch: int) -> Path:
    """Write what krew downloads: the program under the name that kubectl looks for, and the licence."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "kubectl-pdj")
        folder.mkdir()
        (folder / "kubectl-pdj").write_bytes(program.read_bytes())
        (folder / "kubectl-pdj").chmod(0o755)
        (folder / "LICENSE").write_bytes(license_file.read_bytes())
        return pack(folder, target, epoch)


def krew_manifest(version: str, archives: dict[str, Path], url: str) -> str:
    """Return the manifest that a krew index lists, for the archives of each machine under one URL."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": arch}},
            "uri": f"{url}/{path.name}",
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bin": "kubectl-pdj/kubectl-pdj",
        }
        for arch, path in archives.items()
    ]
    versions = f"{PYTHONS[0]} to {PYTHONS[-1]}"
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "pdj"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Submit, follow and change PaddleJobs",
            "description": "Submits, follows, explains and changes PaddleJobs, which train PaddlePaddle.\n",
            "caveats": f"Needs Python {versions} as python3 on the PATH.\n",
            "platforms": platforms,
        },
    }
    return str(yaml.safe_dump(manifest, sort_keys=False))
