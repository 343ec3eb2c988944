"""Makes a release of the last commit in one folder: `make release`.

Everything comes from the commit and from pinned packages: a second run elsewhere gives the same bytes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from scripts.release import distributions, evidence, image, notes, plugin, sbom
from scripts.release import source as sources

MANIFESTS = {
    "install.yaml": ("v1/crd.yaml", "v1/operator.yaml"),
    "install-namespaced.yaml": ("v1/crd.yaml", "v1/operator-namespaced.yaml"),
    "install-v1beta1.yaml": ("v1beta1/crd.yaml", "v1beta1/operator.yaml"),
    "dashboard.yaml": ("v1/dashboard.yaml",),
}
IMAGE = "paddlejob-operator"
HASHES = "deploy/docker/requirements.txt"


class Release:
    """The files of one release, written one after the other."""

    def __init__(self, source: Path, out: Path, scratch: Path, epoch: int) -> None:
        self.source, self.out, self.scratch, self.epoch = source, out, scratch, epoch
        project = tomllib.loads((source / "pyproject.toml").read_text())
        self.version: str = project["project"]["version"]
        self.remarks: list[str] = []
        self.packages_inside: dict[str, Path] = {}
        """Third-party wheels inside the release, by file name."""

    def packages(self, machines: list[str]) -> None:
        """Write wheel and sdist, `kubectl pdj` for krew, and the bill of materials of the wheel."""
        wheel = distributions.build_wheel(self.source, self.out, self.epoch)
        distributions.build_sdist(self.source, self.out, self.epoch)
        constraints = self.source / "constraints.txt"
        archives: dict[str, Path] = {}
        for arch in machines:
            found = plugin.wheels(
                wheel, constraints, self.source / HASHES, plugin.MACHINES[arch], self.scratch / arch
            )
            program = plugin.zipapp(found, self.out / f"kubectl-pdj-{self.version}-linux-{arch}.pyz")
            archive = self.out / f"kubectl-pdj-{self.version}-linux-{arch}.tar.gz"
            archives[arch] = plugin.krew_archive(program, self.source / "LICENSE", archive, self.epoch)
            self.packages_inside |= {path.name: path for _, path in found if path.name != wheel.name}
        wheels = [wheel, *self.packages_inside.values()]
        bill = sbom.spdx(wheel.name, sbom.of_wheels(wheels), [wheel], self.epoch)
        (self.out / f"{wheel.name}.spdx.json").write_text(bill)
        url = f"https://example.com/paddlejob/releases/{self.version}"
        (self.out / "pdj.yaml").write_text(plugin.krew_manifest(self.version, archives, url))

    def manifests(self, image_name: str) -> None:
        """Write the chart, and manifests with the image of this version."""
        distributions.pack(
            self.source / "deploy/helm/paddlejob", self.out / f"paddlejob-{self.version}.tgz", self.epoch
        )
        for name, parts in MANIFESTS.items():
            text = "---\n".join((self.source / "deploy" / part).read_text() for part in parts)
            written = text.replace(
                f"image: {IMAGE}:{self.version}\n", f"image: {image_name}:{self.version}\n"
            )
            (self.out / name).write_text(written)

    def image(self, image_name: str) -> None:
        """Write the image and its bill of materials, where it can be built."""
        if reason := image.missing():
            self.remarks.append(f"without the image: {reason}")
            return
        self.remarks.append(
            "the image starts from Debian packages of the day, which stand for the base in the Dockerfile: "
            "its bytes change when Debian's do"
        )
        name = f"{image_name}:{self.version}"
        archive = image.build(name, self.source, self.out / f"{IMAGE}-{self.version}.tar", self.epoch)
        with archive.open("rb") as opened:
            bill = sbom.spdx(archive.name, sbom.of_image(opened), [archive], self.epoch)
        (self.out / f"{archive.name}.spdx.json").write_text(bill)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the release; it must not exist")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--image", default=IMAGE, help="name of the image, without its version")
    parser.add_argument("--key", type=Path, help="SSH key to sign with; a test key by default")
    parser.add_argument("--skip-image", action="store_true")
    parser.add_argument(
        "--machines", nargs="+", default=list(plugin.MACHINES), help="machines that krew serves"
    )
    given = parser.parse_args()
    if given.out.exists():
        sys.exit(f"release: {given.out} exists; remove it or choose another folder")
    given.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        commit = sources.commit_id(given.commit)
        sources.export(source, commit)
        release = Release(source, given.out, Path(scratch), sources.epoch(commit))
        release.packages(given.machines)
        release.manifests(given.image)
        if given.skip_image:
            release.remarks.append("without the image: --skip-image")
        else:
            release.image(given.image)
        key = given.key or evidence.test_key(Path.home() / ".cache" / "paddlejob" / "release-test-key")
        if not evidence.is_listed(key, source):
            release.remarks.append(
                f"signed with a key that {evidence.SIGNERS} does not list, so the signature proves nothing; "
                f"its line would be: {evidence.signer(key)}"
            )
        text = notes.notes(release.version, source, release.remarks)
        (given.out / "NOTES.md").write_text(text)
        shutil.copy(source / "LICENSE", given.out)
        evidence.write_provenance(
            given.out,
            commit=commit,
            version=release.version,
            inputs=[source / "constraints.txt", source / HASHES],
            packages=release.packages_inside.values(),
        )
    evidence.write_checksums(given.out)
    evidence.sign(given.out, key)
    for path in sorted(given.out.iterdir()):
        print(f"{path.stat().st_size:>12,}  {path.name}")
    print("".join(f"note: {each}\n" for each in release.remarks), end="", file=sys.stderr)


if __name__ == "__main__":
    main()
