"""`kubectl pdj` as one file, as krew installs it."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import tarfile

import pytest
import yaml

import paddlejob
from scripts.release import plugin
from scripts.release.make import HASHES
from scripts.release.source import ROOT
from tests.release.conftest import EPOCH

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugin")
    found = plugin.wheels(wheel, ROOT / "constraints.txt", ROOT / HASHES, platform.machine(), folder)
    assert {tag for tag, _ in found} == {"any", "cp311", "cp312", "cp313"}
    first, second = (plugin.zipapp(found, folder / name) for name in ("kubectl-pdj", "again"))
    assert first.read_bytes() == second.read_bytes()
    return first


@pytest.mark.skipif(sys.version_info[:2] > (3, 13), reason="the file is for Python 3.11 to 3.13")
def test_it_runs_without_anything_installed(program, tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(*arguments: str) -> str:
        command = [sys.executable, "-I", "-S", program, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    assert run("--version") == f"kubectl pdj, version {paddlejob.__version__}\n"
    [unpacked] = (tmp_path / ".cache" / "paddlejob" / "kubectl-pdj").iterdir()
    assert (unpacked / "paddlejob" / "bundle" / "v1" / "crd.yaml").exists()
    assert run("install").count("kind: CustomResourceDefinition\n") == 1
    # Compiled modules are loaded too.
    (tmp_path / "job.yaml").write_text("kind: PaddleJob\napiVersion: batch.paddlepaddle.org/v1\n")
    assert run("validate", str(tmp_path / "job.yaml")).startswith("error: ")


def test_another_python_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(plugin, "PYTHONS", ("3.98", "3.99"))
    program = plugin.zipapp([], tmp_path / "kubectl-pdj")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.stderr.startswith(f"error: this file is for Python 3.98, 3.99, and {sys.executable} is ")
    assert done.returncode == 1


def test_krews_manifest_names_the_archive_and_its_content(program, tmp_path):
    archive = plugin.krew_archive(
        program, ROOT / "LICENSE", tmp_path / "kubectl-pdj-linux-amd64.tar.gz", EPOCH
    )
    manifest = yaml.safe_load(plugin.krew_manifest("1.2.3", {"amd64": archive}, "https://example.com/v1.2.3"))
    [platform_] = manifest["spec"]["platforms"]
    assert platform_["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform_["uri"] == "https://example.com/v1.2.3/kubectl-pdj-linux-amd64.tar.gz"
    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("pdj", "v1.2.3")
    with tarfile.open(archive) as opened:
        member = opened.getmember(platform_["bin"])
        assert opened.extractfile(member).read() == program.read_bytes()
        assert member.mode == 0o755
