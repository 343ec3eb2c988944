"""The printed lines, which tools parse, and the AUC."""

from __future__ import annotations

import pytest

from examples.resnet import progress as resnet
from examples.wide_and_deep import progress as wide_and_deep

LINES = [
    pytest.param(
        wide_and_deep.step_line(1, 120, 235, 0.14321),
        "epoch 1 step 120/235 loss 0.1432",
        id="a step of wide_and_deep",
    ),
    pytest.param(
        wide_and_deep.epoch_line(2, 0.93456, 8.24, 199_523),
        "epoch 2 done train_auc 0.9346 seconds 8.2 rows/s 24214",
        id="an epoch of wide_and_deep",
    ),
    pytest.param(
        wide_and_deep.done_line(0.94192, 99_762, 24.31, 399_046, 14.5),
        "done auc 0.9419 test_rows 99762 seconds 24.3 rows/s 27520",
        id="the end of wide_and_deep",
    ),
    pytest.param(resnet.step_line(4, 62, 62, 2.0), "epoch 4 step 62/62 loss 2.0000", id="a step of resnet"),
    pytest.param(
        resnet.epoch_line(1, 0.93, 7.7, 3_968),
        "epoch 1 done accuracy 0.9300 seconds 7.7 images/s 515",
        id="an epoch of resnet",
    ),
    pytest.param(
        resnet.done_line(0.962, 1_000, 24.1, 0, 0.0),
        "done accuracy 0.9620 test_images 1000 seconds 24.1 images/s 0",
        id="the end of resnet when there was nothing left to train",
    ),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_lines_are_stable(line, expected):
    assert line == expected


@pytest.mark.parametrize(
    ("positive", "negative", "auc"),
    [
        pytest.param([0, 0, 5], [7, 0, 0], 1.0, id="all positives above all negatives"),
        pytest.param([5, 0, 0], [0, 0, 7], 0.0, id="all of them the wrong way round"),
        pytest.param([3, 3, 3], [2, 2, 2], 0.5, id="no relation"),
        pytest.param([0, 4, 0], [0, 6, 0], 0.5, id="one prediction for everybody"),
        pytest.param([0, 1, 1], [1, 1, 0], 0.875, id="three pairs of four in order and one tie"),
        pytest.param([0, 0, 0], [1, 1, 0], 0.5, id="nobody is positive"),
    ],
)
def test_the_auc_is_the_chance_that_a_positive_ranks_higher(positive, negative, auc):
    assert wide_and_deep.area_under_curve(positive, negative) == pytest.approx(auc)
