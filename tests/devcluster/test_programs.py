from __future__ import annotations

import shutil

import pytest

from devcluster.build.programs import GO_DIRECTORY, PROGRAMS, Binary, Module, binary
from devcluster.errors import DevclusterError


@pytest.fixture
def kubernetes(tmp_path):
    directory = tmp_path / "kubernetes"
    shutil.copytree(GO_DIRECTORY / "kubernetes", directory)
    return Module(directory)


def apiserver(module):
    return Binary(PROGRAMS["kube-apiserver"], module)


@pytest.mark.parametrize(
    ("name", "version"), [("kube-apiserver", "v1.35.4"), ("etcd", "v3.6.8"), ("pki", "local")]
)
def test_a_binary_has_the_version_its_module_pins(name, version):
    assert binary(name).version == version


def test_a_binary_lives_in_the_cache_under_name_version_and_key(cache):
    found = binary("kube-apiserver")
    assert found.path == cache / "bin" / f"kube-apiserver-v1.35.4-{found.key}"


@pytest.mark.parametrize("file", ["go.mod", "go.sum"])
def test_the_key_changes_with_what_is_pinned(kubernetes, file):
    before = apiserver(kubernetes).key
    with (kubernetes.directory / file).open("a") as handle:
        handle.write("\n// changed\n")
    assert apiserver(kubernetes).key != before


def test_the_key_changes_with_the_flags(kubernetes, monkeypatch):
    before = apiserver(kubernetes).key
    monkeypatch.setattr(Binary, "flags", ["-race"])
    assert apiserver(kubernetes).key != before


def test_the_key_does_not_change_with_the_list_of_tools(kubernetes):
    before = apiserver(kubernetes).key
    (kubernetes.directory / "tools.go").unlink()
    assert apiserver(kubernetes).key == before


def test_the_key_changes_with_source_of_our_own(tmp_path):
    shutil.copytree(GO_DIRECTORY / "pki", tmp_path / "pki")
    module = Module(tmp_path / "pki")
    before = Binary(PROGRAMS["pki"], module).key
    (module.directory / "main.go").write_text("package main\n")
    assert Binary(PROGRAMS["pki"], module).key != before


def test_kubernetes_programs_are_told_their_version():
    flags = " ".join(binary("kubectl").flags)
    assert "version.gitVersion=v1.35.4" in flags
    assert "version.gitMajor=1 " in flags
    assert "version.gitMinor=35 " in flags


def test_the_first_program_of_a_version_is_expected_to_take_longer(cache):
    alone = binary("kubectl").expected_build_seconds
    server = binary("kube-apiserver")
    assert server.expected_build_seconds == 420
    server.path.parent.mkdir(parents=True)
    server.path.touch()
    assert binary("kubectl").expected_build_seconds == alone - 180


def test_another_kubernetes_is_chosen_by_its_directory(kubernetes):
    text = (kubernetes.directory / "go.mod").read_text()
    (kubernetes.directory / "go.mod").write_text(text.replace("kubernetes v1.35.4", "kubernetes v1.34.4"))
    assert binary("kubectl", kubernetes=str(kubernetes.directory)).version == "v1.34.4"
    assert binary("etcd", kubernetes=str(kubernetes.directory)).version == "v3.6.8"


def test_the_oldest_go_is_read_from_the_module(kubernetes):
    assert kubernetes.go_version == (1, 25, 0)


@pytest.mark.parametrize(
    ("name", "kubernetes", "message"),
    [
        pytest.param(
            "kube-api", "kubernetes", "no program 'kube-api'; the choices are etcd", id="unknown program"
        ),
        pytest.param("kubectl", "kubernetes-9", "pin kubernetes-9 VERSION", id="unknown module"),
    ],
)
def test_a_wrong_name_is_answered_with_the_way_out(name, kubernetes, message):
    with pytest.raises(DevclusterError, match=message):
        binary(name, kubernetes=kubernetes).version  # noqa: B018
