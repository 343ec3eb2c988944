from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest

from devcluster.archive import Image, Layer, write_archive


@pytest.fixture
def layer(tmp_path):
    def make(name):
        path = tmp_path / f"{name}.tar"
        with tarfile.open(path, "w") as tar:
            tar.addfile(tarfile.TarInfo(name))
        return Layer.of(path)

    return make


def archived(*images):
    stream = io.BytesIO()
    write_archive(images, stream)
    return tarfile.open(fileobj=io.BytesIO(stream.getvalue()))


def content(tar, name):
    return tar.extractfile(name).read()


def test_a_layer_is_known_by_the_digest_of_its_content(layer):
    one = layer("one")
    assert one.digest == hashlib.sha256(one.path.read_bytes()).hexdigest()


def test_the_list_names_every_image_its_configuration_and_its_layers_in_order(layer):
    one, two = layer("one"), layer("two")
    tar = archived(Image("repo/name:v1", (one, two), {"Cmd": ["run"]}))
    (entry,) = json.loads(content(tar, "manifest.json"))
    description = json.loads(content(tar, entry["Config"]))
    assert entry["RepoTags"] == ["repo/name:v1"]
    assert [content(tar, name) for name in entry["Layers"]] == [one.path.read_bytes(), two.path.read_bytes()]
    assert description["rootfs"]["diff_ids"] == [f"sha256:{one.digest}", f"sha256:{two.digest}"]
    assert description["config"] == {"Cmd": ["run"]}


def test_layers_that_images_share_are_written_once(layer):
    base, extra = layer("base"), layer("extra")
    names = archived(Image("a:1", (base,)), Image("b:1", (base, extra)), Image("c:1", (base,))).getnames()
    assert len(names) == len(set(names))
    assert sum(name.endswith("layer.tar") for name in names) == 2
