from __future__ import annotations

import os
import tarfile

import pytest

from devcluster import layers
from trees import fill, members


def test_a_layer_is_found_again_under_its_key(cache):
    built = layers.build("key", fill("a/b"))
    assert layers.find("key") == built
    assert members(built) == ["a", "a/b"]


def test_a_layer_that_failed_is_not_found(cache):
    with pytest.raises(ZeroDivisionError):
        layers.build("key", lambda tree: 1 / 0)
    assert layers.find("key") is None
    assert list((cache / "images").iterdir()) == []


def test_layers_that_nobody_used_for_long_are_removed(cache):
    for key in ("old", "used"):
        layers.build(key, fill("a"))
        os.utime(cache / "images" / key, (1, 1))
    layers.find("used")
    layers.prune()
    assert (layers.find("old"), layers.find("used") is None) == (None, False)


def test_the_names_of_this_machines_users_stay_here(cache):
    with tarfile.open(layers.build("key", fill("a")).archived.path) as tar:
        assert {(entry.uname, entry.gname) for entry in tar} == {("", "")}


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
