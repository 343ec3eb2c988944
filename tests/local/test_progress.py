"""What a line says about how far training is."""

from __future__ import annotations

import pytest

from paddlejob.local.ui.progress import last_line, last_progress, parse, result

LINES = {
    "step 12/235 loss 0.14": "step 12/235 loss 0.14",
    "epoch 1 step 120/235 loss 0.1432": "epoch 1 step 120/235 loss 0.1432",
    "loss: 0.14": "loss 0.14",
    "Epoch [2/10], Step [100/600], Loss: 0.3012": "epoch 2 step 100/600 loss 0.3012",
    "batch: [20], epoch 0 loss[1]:[0.693147]": "epoch 0 step 20 loss 0.693147",
    "[worker-0] iter 5 loss=1e-3, lr 0.1": "step 5 loss 1e-3",
    "train loss nan": "loss nan",
    "Batch 7 took 2 s": "step 7",
    "epoch: 0, batch_id: 0, loss is: 2.5": "epoch 0 step 0 loss 2.5",
    "Epoch 3, batch_id 200, loss is: [0.1434]": "epoch 3 step 200 loss 0.1434",
    "epoch: [1/500], global_step: 10, lr: 0.1, loss: 0.345, eta: 1:02": "epoch 1 step 10 loss 0.345",
    "loss: 5.4, learning_rate: 1e-05, global_step: 10": "step 10 loss 5.4",
    "Epoch: [0] [  100/1000] learning_rate: 0.1 loss: 2.345 eta: 1": "epoch 0 step 100/1000 loss 2.345",
    "  3%|3 | 10/300 [00:05<02:30, 1.93it/s]": "step 10/300",
    "step  10/938 - loss: 0.1872 - acc: 0.9437 - ETA: 12s": "step 10/938 loss 0.1872",
    "[Train][Epoch 1/120][Iter: 10/1251] lr: 0.1 loss: 6.91": "epoch 1 step 10/1251 loss 6.91",
}


@pytest.mark.parametrize(("line", "expected"), LINES.items(), ids=LINES)
def test_lines_that_tell_progress(line, expected):
    assert str(parse(line)) == expected


@pytest.mark.parametrize("line", ["", "loading data", "the lossless codec", "batched", "epoch 1 done"])
def test_lines_that_tell_none(line):
    assert parse(line) is None


def test_the_last_line_is_what_a_terminal_would_show():
    assert last_line(b"one\n\x1b[32mtwo\x1b[0m\n\n") == "two"
    assert last_line(b" 10%\r 50%\r100%\r\n") == "100%"
    assert last_line(b"\xff\xfe binary\n").endswith("binary")
    assert last_line(b"\n \n") == ""


def test_the_last_progress_may_be_some_lines_back():
    assert str(last_progress(b"step 1 loss 2\nstep 2 loss 1\nsaving\n")) == "step 2 loss 1"
    assert last_progress(b"saving\n") is None


def test_a_program_tells_its_result_in_a_line_that_begins_with_done():
    lines = b"done auc 0.9 seconds 3\nLAUNCH INFO exit code 0\n"
    assert result(lines) == "done auc 0.9 seconds 3"
    assert result(b"all done\n") == ""
