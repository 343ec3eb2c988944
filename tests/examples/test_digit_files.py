"""prepare_data.py of ResNet: the bytes of MNIST's own format."""

from __future__ import annotations

import pytest

from examples.resnet import prepare_data


def image(pixel: int, digit: int) -> bytes:
    return bytes([pixel] * 784 + [digit])


def test_images_have_a_header_of_sixteen_bytes_and_then_only_pixels():
    content = prepare_data.images_file([image(1, 7), image(2, 8)])
    assert content[:16].hex() == "00000803000000020000001c0000001c"
    assert content[16:] == bytes([1] * 784 + [2] * 784)


def test_labels_have_a_header_of_eight_bytes_and_then_only_labels():
    assert prepare_data.labels_file([image(1, 7), image(2, 8)]).hex() == "00000801000000020708"


def test_a_csv_line_is_pixels_and_then_the_digit():
    assert prepare_data.parse(",".join(["3"] * 784 + ["9"]) + "\n") == [image(3, 9)]


def test_an_image_of_another_size_is_refused():
    with pytest.raises(prepare_data.PrepareError, match="an image has 3 values instead of 785"):
        prepare_data.parse("1,2,3\n")


def test_training_and_testing_share_no_image():
    images = [index.to_bytes(785, "big") for index in range(5_000)]
    parts = prepare_data.split(images)
    assert (len(parts["train"]), len(parts["t10k"])) == (4_000, 1_000)
    assert sorted(parts["train"] + parts["t10k"]) == images
    assert parts["t10k"] != images[4_000:]


def test_a_short_file_means_that_the_data_is_not_complete(tmp_path):
    images = [index.to_bytes(785, "big") for index in range(5_000)]
    prepare_data.write(tmp_path, images)
    assert prepare_data.is_complete(tmp_path)
    assert not prepare_data.prepare(tmp_path)
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1])
    assert not prepare_data.is_complete(tmp_path)
