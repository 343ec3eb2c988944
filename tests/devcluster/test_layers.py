from __future__ import annotations

import os
import stat
import tarfile

import pytest

from devcluster import layers
from devcluster.layers import OPAQUE, BuiltLayer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="marks of deletion can only be made by root")


def members(layer: BuiltLayer) -> list[str]:
    with tarfile.open(layer.archived.path) as tar:
        return tar.getnames()


def fill(*paths):
    def write(tree):
        for path in paths:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(path)

    return write


def test_a_layer_is_found_again_under_its_key(cache):
    built = layers.build("key", fill("a/b"))
    assert layers.find("key") == built
    assert members(built) == ["a", "a/b"]


def test_a_layer_that_failed_is_not_found(cache):
    with pytest.raises(ZeroDivisionError):
        layers.build("key", lambda tree: 1 / 0)
    assert layers.find("key") is None
    assert list((cache / "images").iterdir()) == []


def test_the_names_of_this_machines_users_stay_here(cache):
    with tarfile.open(layers.build("key", fill("a")).archived.path) as tar:
        assert {(entry.uname, entry.gname) for entry in tar} == {("", "")}


@needs_root
def test_a_deletion_is_marked_as_images_mark_it(cache):
    layer = layers.build("key", lambda tree: os.mknod(tree / "gone", stat.S_IFCHR, 0))
    assert members(layer) == [".wh.gone"]


@needs_root
def test_a_replaced_directory_hides_what_was_in_it(cache):
    def replace(tree):
        (tree / "d").mkdir()
        os.setxattr(tree / "d", OPAQUE, b"y")

    assert members(layers.build("key", replace)) == ["d", "d/.wh..wh..opq"]


@pytest.mark.parametrize(
    ("path", "result"),
    [
        pytest.param("/usr/bin/x", "/usr/bin/x", id="without links"),
        pytest.param("/bin/x", "/usr/bin/x", id="a relative link"),
        pytest.param("/sh", "/usr/bin/bash", id="an absolute link through another"),
        pytest.param("/out", "/etc", id="no link leads out of the image"),
        pytest.param("/loop/x", "/loop/x", id="a loop comes to an end"),
    ],
)
def test_links_are_followed_within_the_image(tmp_path, path, result):
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    for link, target in (("bin", "usr/bin"), ("sh", "/bin/bash"), ("out", "../../etc"), ("loop", "loop")):
        (tmp_path / link).symlink_to(target)
    assert layers.resolve([tmp_path], path) == result


@needs_root
def test_a_file_of_an_upper_layer_hides_the_one_below_until_it_is_deleted(cache):
    below, above = layers.build("one", fill("a", "b")), layers.build("two", fill("a"))
    top = layers.build("three", lambda tree: os.mknod(tree / "b", stat.S_IFCHR, 0))
    trees = [below.tree, above.tree, top.tree]
    assert layers.lookup(trees, "/a") == above.tree / "a"
    assert layers.lookup(trees, "/b") is None


@needs_root
def test_copying_from_a_stage_sees_all_its_layers_and_only_the_path(cache):
    below = layers.build("one", fill("opt/a", "opt/b", "usr/c"))
    above = layers.build("two", lambda tree: fill("opt/d")(tree) or os.mknod(tree / "opt/b", stat.S_IFCHR, 0))
    merged = layers.merged([below, above], "/opt")
    assert sorted(path.name for path in merged.rglob("*")) == ["a", "d", "opt"]
