from __future__ import annotations

import pytest

from devcluster.build.pinning import minimal_go_mod, pinned, tools_go
from devcluster.build.programs import GO_DIRECTORY, UPSTREAM, module
from devcluster.errors import DevclusterError

UPSTREAM_MOD = """\
module k8s.io/kubernetes

go 1.25.0

godebug default=go1.25

require (
	k8s.io/api v0.0.0
	github.com/other/thing v1.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
"""


def test_the_libraries_kept_in_kubernetes_own_tree_are_replaced_by_their_releases():
    assert minimal_go_mod("kubernetes", "v1.36.3", UPSTREAM_MOD).splitlines() == [
        "module paddlejob.devcluster/kubernetes",
        "go 1.25.0",
        "godebug default=go1.25",
        "require k8s.io/kubernetes v1.36.3",
        "replace (",
        "\tk8s.io/api => k8s.io/api v0.36.3",
        "\tk8s.io/kubectl => k8s.io/kubectl v0.36.3",
        ")",
    ]


def test_a_module_without_such_libraries_needs_one_line():
    text = minimal_go_mod("etcd", "v3.6.8", "module x\n\ngo 1.24.0\n")
    assert text.splitlines()[1:] == ["go 1.24.0", "require go.etcd.io/etcd/server/v3 v3.6.8"]


@pytest.mark.parametrize("family", [name for name in sorted(UPSTREAM) if not module(name).own_sources()])
def test_the_committed_list_of_tools_is_the_table_of_programs(family):
    assert (GO_DIRECTORY / family / "tools.go").read_text() == tools_go(family)


def test_every_kubernetes_library_is_replaced_at_the_pinned_version():
    text = (GO_DIRECTORY / "kubernetes" / "go.mod").read_text()
    replaced = [line.split() for line in text.splitlines() if "=>" in line]
    assert len(replaced) == 31
    assert {(entry[-3] == "=>", entry[-1]) for entry in replaced} == {(True, "v0.35.4")}


def test_a_module_with_its_own_source_has_nothing_to_pin():
    with pytest.raises(DevclusterError, match="pki holds its own source"):
        pinned(module("pki"), "v1.0.0")
