from __future__ import annotations

import os
import stat

import pytest

from devcluster import layers
from devcluster.layers import OPAQUE
from trees import fill, members


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEJOB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_deletion_is_marked_as_images_mark_it(cache):
    layer = layers.build("key", lambda tree: os.mknod(tree / "gone", stat.S_IFCHR, 0))
    assert members(layer) == [".wh.gone"]


def test_a_replaced_directory_hides_what_was_in_it(cache):
    def replace(tree):
        (tree / "d").mkdir()
        os.setxattr(tree / "d", OPAQUE, b"y")

    assert members(layers.build("key", replace)) == ["d", "d/.wh..wh..opq"]


def test_a_file_of_an_upper_layer_hides_the_one_below_until_it_is_deleted(cache):
    below, above = layers.build("one", fill("a", "b")), layers.build("two", fill("a"))
    top = layers.build("three", lambda tree: os.mknod(tree / "b", stat.S_IFCHR, 0))
    trees = [below.tree, above.tree, top.tree]
    assert layers.lookup(trees, "/a") == above.tree / "a"
    assert layers.lookup(trees, "/b") is None


def test_copying_from_a_stage_sees_all_its_layers_and_only_the_path(cache):
    below = layers.build("one", fill("opt/a", "opt/b", "usr/c"))
    above = layers.build("two", lambda tree: fill("opt/d")(tree) or os.mknod(tree / "opt/b", stat.S_IFCHR, 0))
    merged = layers.merged([below, above], "/opt")
    assert sorted(path.name for path in merged.rglob("*")) == ["a", "d", "opt"]
