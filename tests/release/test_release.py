"""A release: complete, verifiable, and the same bytes in another folder."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import paddlejob
from paddlejob import install
from scripts.release import evidence, notes, sbom, source
from scripts.release.source import ROOT

VERSION = paddlejob.__version__


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two releases of the last commit, without an image, made by two runs in two folders."""
    made = []
    key = evidence.test_key(tmp_path_factory.mktemp("key") / "key")
    commit = source.commit_id()
    for name in ("one", "two"):
        out = tmp_path_factory.mktemp(name) / f"release of {name}"
        program = [sys.executable, ROOT / "scripts" / "release" / "make.py", "--skip-image", "--key", key]
        program += ["--commit", commit, "--machines", "amd64"]  # half the downloads
        done = subprocess.run(
            [*program, "--out", out, "--image", "mirror.example.com/operator"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        made.append(out)
    return made


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_a_second_run_in_another_folder_gives_the_same_bytes(releases):
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in releases)
    assert first == second


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_it_is_complete_and_can_be_verified(releases):
    folder = releases[0]
    wheel = f"paddlejob-{VERSION}-py3-none-any.whl"
    programs = [f"kubectl-pdj-{VERSION}-linux-amd64.{kind}" for kind in ("pyz", "tar.gz")]
    expected = {
        *(wheel, f"{wheel}.spdx.json", f"paddlejob-{VERSION}.tar.gz", f"paddlejob-{VERSION}.tgz", *programs),
        *("install.yaml", "install-namespaced.yaml", "install-v1beta1.yaml", "dashboard.yaml", "pdj.yaml"),
        *("LICENSE", "NOTES.md", "SHA256SUMS", "SHA256SUMS.sig", "provenance.json"),
    }
    assert {path.name for path in folder.iterdir()} == expected
    text = (folder / "NOTES.md").read_text()
    assert "does not list, so the signature proves nothing" in text
    line = text.partition("its line would be: ")[2].partition("\n")[0]
    assert verified(folder, clone(folder.parent / "clone", line)) == [True, True]
    statement = json.loads((folder / "provenance.json").read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert subjects[wheel] == hashlib.sha256((folder / wheel).read_bytes()).hexdigest()
    assert subjects.keys() == expected - {
        "provenance.json",
        "SHA256SUMS",
        "SHA256SUMS.sig",
    }
    dependencies = {
        each["name"] for each in statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    }
    with zipfile.ZipFile(folder / programs[0]) as program:
        inside = {name.rpartition("/")[2] for name in program.namelist() if name.endswith(".whl")}
    assert inside - {wheel} < dependencies


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_the_manifests_name_the_image_of_the_release(releases):
    for file in releases[0].glob("install*.yaml"):
        objects = list(yaml.safe_load_all(file.read_text()))
        [deployment] = [each for each in objects if each["kind"] == "Deployment"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"mirror.example.com/operator:{VERSION}"
        assert objects[0]["kind"] == "CustomResourceDefinition"
    options = install.Options(image=f"mirror.example.com/operator:{VERSION}")
    assert (releases[0] / "install.yaml").read_text() == install.manifests(options)


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_helm_takes_the_chart(releases, helm):
    chart = releases[0] / f"paddlejob-{VERSION}.tgz"
    shown = subprocess.run([helm, "template", "paddle", chart], capture_output=True, text=True, check=True)
    assert "kind: Deployment" in shown.stdout


@pytest.mark.tools
@pytest.mark.timeout(900)
def test_the_bill_of_materials_lists_what_a_wheel_installs(releases):
    bill = json.loads((releases[0] / f"paddlejob-{VERSION}-py3-none-any.whl.spdx.json").read_text())
    versions = {each["name"]: each.get("versionInfo") for each in bill["packages"]}
    assert versions["paddlejob"] == VERSION
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    assert {name: versions[name] for name in ("aiohttp", "click", "msgspec")} == {
        name: pinned[name] for name in ("aiohttp", "click", "msgspec")
    }
    assert {"preact", "htm", "uplot"} <= versions.keys()
    ids = [each["SPDXID"] for each in bill["packages"]]
    assert len(ids) == len(set(ids))
    assert {each["relatedSpdxElement"] for each in bill["relationships"]} == set(ids)


def test_the_bill_of_an_image_lists_its_debian_and_python_packages():
    def archive(files: dict[str, bytes]) -> bytes:
        with io.BytesIO() as buffer:
            with tarfile.open(fileobj=buffer, mode="w") as tar:
                for name, content in files.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
            return buffer.getvalue()

    status = (
        b"Package: libc6\nStatus: install ok installed\nVersion: 2.41-12\n\n"
        b"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    )
    base = archive({"var/lib/dpkg/status": status})
    metadata = b"Metadata-Version: 2.4\nName: Some_Package\nVersion: 1.0\nLicense-Expression: MIT\n\nText\n"
    own = archive(
        {"opt/paddlejob/lib/python3.13/site-packages/some_package-1.0.dist-info/METADATA": metadata}
    )
    manifest = json.dumps([{"Layers": ["base.tar", "own.tar"]}]).encode()
    image = archive({"base.tar": base, "own.tar": own, "manifest.json": manifest})
    assert sbom.of_image(io.BytesIO(image)) == [
        sbom.Package("deb", "libc6", "2.41-12"),
        sbom.Package("pypi", "some-package", "1.0", "MIT"),
    ]


def test_a_package_url_has_no_characters_that_mean_something_in_a_url():
    found = sbom.Package("deb", "libstdc++6", "1:12.2.0-14+deb12u1~x")
    assert found.purl == "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1~x"


def test_a_bill_of_materials_has_the_fields_that_spdx_requires(tmp_path):
    (tmp_path / "image.tar").write_text("an image")
    packages = [sbom.Package("deb", "libstdc++6", "14.2.0-19+b1"), sbom.Package("npm", "htm", "3.1.1", "MIT")]
    bill = json.loads(sbom.spdx("image.tar", packages, [tmp_path / "image.tar"], 1_700_000_000))
    assert (bill["spdxVersion"], bill["dataLicense"]) == ("SPDX-2.3", "CC0-1.0")
    assert (bill["SPDXID"], bill["name"]) == ("SPDXRef-DOCUMENT", "image.tar")
    assert re.fullmatch(r"https://[^#\s]+", bill["documentNamespace"])
    assert bill["creationInfo"] == {
        "created": "2023-11-14T22:13:20Z",
        "creators": ["Tool: paddlejob-release"],
    }
    assert len(bill["packages"]) == 3
    for package in bill["packages"]:
        assert re.fullmatch(r"SPDXRef-[a-zA-Z0-9.-]+", package["SPDXID"])
        assert package["name"]
        assert package["downloadLocation"] == "NOASSERTION"
        # Otherwise a verification code would be required.
        assert package["filesAnalyzed"] is False
    described = {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES"}
    assert {**described, "relatedSpdxElement": "SPDXRef-subject"} in bill["relationships"]


def test_notes_are_the_changelogs():
    changelog = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.2.0]\n\n- second\n\n## [0.1.0]\n\n- first\n"
    assert notes.section(changelog, "0.2.0") == "- second\n"
    assert notes.section(changelog, "0.3.0") == "- new\n"
    with pytest.raises(SystemExit, match=r"CHANGELOG.md has no section \[0.3.0\]"):
        notes.section(changelog.replace("- new\n", ""), "0.3.0")


def test_notes_say_what_an_administrator_has_to_look_at_since_the_release_before():
    text = notes.notes(VERSION, ROOT, [])
    before = notes.release_before(VERSION, ROOT / notes.RELEASED)
    crd, rights = (
        text.partition(f"## {title} since {before}\n")[2].partition("\n## ")[0]
        for title in ("The CRD", "The operator's rights")
    )
    assert "- new: `spec.recorder`" in crd
    assert "**changed**" not in crd
    assert "- new: create tokenreviews.authentication.k8s.io everywhere" in rights
    assert "- gone: " not in rights


def test_the_release_before_is_the_newest_older_one(tmp_path):
    for version in ("0.1.0", "0.9.0", "0.10.0", "1.0.0"):
        (tmp_path / f"crd-{version}.yaml").touch()
    found = {each: notes.release_before(each, tmp_path) for each in ("0.1.0", "0.2.0", "0.11.0", "2.0.0")}
    assert found == {"0.1.0": "", "0.2.0": "0.1.0", "0.11.0": "0.10.0", "2.0.0": "1.0.0"}


def test_the_versions_agree():
    assert not (ROOT / notes.RELEASED / f"crd-{VERSION}.yaml").exists(), "it is released: choose the next"
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "paddlejob" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def clone(folder: Path, signer: str) -> Path:
    """Make a clone of the repository that contains only the list of signers."""
    place = folder / evidence.SIGNERS
    place.parent.mkdir(parents=True)
    place.write_text(f"{signer}\n")
    return folder


def verified(folder: Path, trusted: Path) -> list[bool]:
    """Run the documented commands; return whether the signature and the checksums are right."""
    commands = notes.VERIFY.split("```bash\n")[1].split("```")[0].splitlines()
    environment = {**os.environ, "ALLOWED_SIGNERS": str(trusted / evidence.SIGNERS)}
    return [
        subprocess.run(
            each, cwd=folder, shell=True, capture_output=True, check=False, env=environment
        ).returncode
        == 0
        for each in commands
    ]


def test_a_changed_file_is_found(tmp_path):
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "file").write_text("as released")
    key, other = (evidence.test_key(tmp_path / name) for name in ("key", "other"))
    trusted = clone(tmp_path / "clone", evidence.signer(key))
    assert evidence.is_listed(key, trusted)
    assert not evidence.is_listed(other, trusted)
    evidence.write_checksums(folder)
    evidence.sign(folder, key)
    assert verified(folder, trusted) == [True, True]
    (folder / "file").write_text("changed")
    assert verified(folder, trusted) == [True, False]
    # A new signature by another key is not accepted, although its signer is named in the folder.
    for stale in ("SHA256SUMS", "SHA256SUMS.sig"):
        (folder / stale).unlink()
    (folder / "allowed_signers").write_text(evidence.signer(other))
    evidence.write_checksums(folder)
    evidence.sign(folder, other)
    assert verified(folder, trusted) == [False, True]


def test_the_hashes_are_those_of_the_pinned_versions():
    pinned = set(re.findall(r"^(\S+==\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {each.lower().replace("_", "-") for each in pinned}
    for name in ("requirements.txt", "build-requirements.txt"):
        text = (ROOT / "deploy" / "docker" / name).read_text()
        listed = re.findall(r"^([a-z]\S+==\S+)(.*?)(?=^[a-z]|\Z)", text, re.MULTILINE | re.DOTALL)
        assert listed
        assert {requirement for requirement, _ in listed} <= pinned
        assert all("--hash=sha256:" in hashes for _, hashes in listed)
        assert "//" not in text
