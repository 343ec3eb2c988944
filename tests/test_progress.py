"""What lines say about how far training is: those of Paddle's own programs, and those of anybody."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlejob.training.log_lines import (
    MAX_LINE_LENGTH,
    MAX_LOSSES,
    Progress,
    Tracker,
    metrics,
    parse,
    visible,
)

SHAPES = {
    "PaddleClas": (
        (
            "[06:04:43] ppcls INFO: [Train][Epoch 1/20][Iter: 10/500]lr(LinearWarmup): 0.00100000, "
            "top1: 0.10000, CELoss: 6.91000, loss: 6.90776, batch_cost: 0.30000s, reader_cost: 0.00100, "
            "ips: 123.40000 samples/s, eta: 0:12:34"
        ),
        Progress(1, 20, 10, 500, 6.90776, 123.4, "samples/s", 754),
    ),
    "PaddleClas, more than a day": (
        "[Train][Epoch 2/120][Iter: 0/1251]lr(C): 0.1, loss: 6.9, ips: 9.5 samples/s, eta: 2 days, 1:02:03",
        Progress(2, 120, 0, 1251, 6.9, 9.5, "samples/s", 176523),
    ),
    "PaddleOCR": (
        (
            "[2026/11/16 06:04:43] ppocr INFO: epoch: [1/500], global_step: 10, lr: 0.001000, loss: 0.345, "
            "avg_reader_cost: 0.10000 s, avg_batch_cost: 0.20000 s, avg_samples: 8, ips: 12.3457 samples/s, "
            "eta: 1:02:03, max_mem_reserved: 1024 MB, max_mem_allocated: 1000 MB"
        ),
        Progress(1, 500, 10, None, 0.345, 12.3457, "samples/s", 3723),
    ),
    "PaddleDetection": (
        (
            "[06:04:43] ppdet.engine INFO: Epoch: [0] [  20/1000] learning_rate: 0.000100 loss_cls: 1.5 "
            "loss_iou: 0.5 loss: 2.345 eta: 0:10:00 batch_cost: 0.1 data_cost: 0.0001 ips: 23.4000 images/s"
        ),
        Progress(0, None, 20, 1000, 2.345, 23.4, "images/s", 600),
    ),
    "PaddleSeg": (
        (
            "2026-11-16 06:04:43 [INFO]\t[TRAIN] epoch: 1, iter: 10/1000, loss: 0.6931, lr: 0.010000, "
            "batch_cost: 0.2000, reader_cost: 0.00001, ips: 16.0000 samples/sec | ETA 00:10:00"
        ),
        Progress(1, None, 10, 1000, 0.6931, 16.0, "samples/s", 600),
    ),
    "PaddleRec": (
        (
            "2026-11-16 06:04:43,073 - INFO - epoch: 0, batch_id: 100, auc: 0.512345,loss:0.69 "
            "avg_reader_cost: 0.00100 sec, avg_batch_cost: 0.03 sec, avg_samples: 512, ips: 15000.00 ins/s"
        ),
        Progress(0, None, 100, None, 0.69, 15000.0, "ins/s"),
    ),
    "PaddleVideo": (
        (
            "epoch:[  1/80 ] \x1b[95mtrain step:10  \x1b[0m \x1b[92mloss: 5.40 lr: 0.01\x1b[0m "
            "batch_cost: 0.30000 sec, reader_cost: 0.10000 sec, ips: 16.00000 instance/sec."
        ),
        Progress(1, 80, 10, None, 5.4, 16.0, "instance/s"),
    ),
    "PaddleNLP": (
        (
            "[2026-11-16 06:04:43,073] [    INFO] - loss: 3.25806541, learning_rate: 3e-05, global_step: 10, "
            "interval_runtime: 2.2591, interval_samples_per_second: 3.541, interval_steps_per_second: 4.427, "
            "epoch: 0.0265"
        ),
        Progress(0, None, 10, None, 3.25806541, 3.541, "samples/s"),
    ),
    "PaddleFormers": (
        (
            "[2026-11-16 06:04:43,073] [    INFO] - loss: 1.08, learning_rate: 4e-08, global_step: 1, "
            "interval_runtime: 4.87, interval_samples_per_second: 6.57, interval_steps_per_second: 0.2, "
            "progress_or_epoch: 0.0008"
        ),
        Progress(0, None, 1, None, 1.08, 6.57, "samples/s"),
    ),
    "PaddleFormers 1.2, loading data": (
        (
            "[2026-11-16 06:04:43,073] [    INFO] - [DataLoad global_step: 22] data_load_time: 1.25 ms "
            "(accumulated over 1 micro-batches)"
        ),
        Progress(step=22),
    ),
    "ERNIEKit": (
        (
            "[INFO] - loss: 8.1, learning_rate: 1e-5, global_step: 7, TFLOPS_per_sec_per_card: 23.853, "
            "tokens_per_sec_per_card: 4980.7, tokens_per_sec_per_card_average: 4, progress_or_epoch: 0.0077"
        ),
        Progress(0, None, 7, None, 8.1, 4980.7, "tokens/s/card"),
    ),
    "PaddleNLP, how many steps there are": (
        "[2026-11-16 06:04:43,073] [    INFO] -   Total optimization steps = 37,800",
        Progress(steps=37800),
    ),
    "PaddleNLP, older": (
        "global step 10, epoch: 0, batch: 9, loss: 0.70123, accu: 0.51000, speed: 3.20 step/s",
        Progress(0, None, 10, None, 0.70123, 3.2, "step/s"),
    ),
    "tqdm": (
        "  3%|▎         | 10/300 [00:05<02:30,  1.93it/s]",
        Progress(None, None, 10, 300, None, 1.93, "it/s", 150),
    ),
    "tqdm, slow": (
        "Epoch 1:   0%|          | 1/2500 [00:05<3:32:34,  4.00s/it, loss=0.5]",
        Progress(1, None, 1, 2500, 0.5, 0.25, "it/s", 12754),
    ),
    "tqdm, before the first step": ("  0%|          | 0/300 [00:00<?, ?it/s]", Progress(step=0, steps=300)),
    "tqdm, drawn over itself": (
        "  1%| | 3/300 [00:01<02:30,  2.00it/s]\r  3%| | 10/300 [00:05<02:30,  2.00it/s]\r",
        Progress(None, None, 10, 300, None, 2.0, "it/s", 150),
    ),
    "paddle.Model": (
        "step  10/938 - loss: 0.1872 - acc: 0.9437 - 13ms/step",
        Progress(step=10, steps=938, loss=0.1872),
    ),
    "paddle.Model's bar": (
        (
            "\b\b\b\rstep   9/938 [....] - loss: 0.2 - ETA: 13s\b\b\b\b\r"
            "step  10/938 [>...........................] - loss: 0.1872 - acc: 0.9437 - ETA: 1:12 - 13ms/step"
        ),
        Progress(step=10, steps=938, loss=0.1872, eta_seconds=72),
    ),
    "paddle.Model, an epoch begins": ("Epoch 2/10", Progress(2, 10)),
    "tutorials": (
        "epoch: 0, batch_id: 300, loss is: [2.5], acc is: [0.1]",
        Progress(0, None, 300, None, 2.5),
    ),
    "tutorials, newer": ("epoch: 3, batch_id: 0, loss is: 0.1434", Progress(3, None, 0, None, 0.1434)),
    "static graph with parameter servers": (
        "batch: [20], loss[1]:[0.693147]",
        Progress(step=20, loss=0.693147),
    ),
    "the examples": ("epoch 1 step 392/392 loss 0.1345", Progress(1, None, 392, 392, 0.1345)),
    "the examples' epochs": (
        "epoch 1 loss 0.2001 train_auc 0.7942 seconds 9.0 rows/s 22192",
        Progress(1, None, None, None, 0.2001, 22192.0, "rows/s"),
    ),
    "as in PyTorch's tutorials": (
        "Epoch [2/10], Step [100/600], Loss: 0.3012",
        Progress(2, 10, 100, 600, 0.3012),
    ),
    "behind Chinese words": ("第1轮，loss: 0.5，step: 3", Progress(step=3, loss=0.5)),
}


@pytest.mark.parametrize(("line", "told"), SHAPES.values(), ids=SHAPES)
def test_every_shape_is_understood(line: str, told: Progress) -> None:
    assert parse(line) == told


def test_a_broken_loss_is_told_as_such() -> None:
    told = parse("step 3 loss nan")
    assert told is not None
    assert math.isnan(told.loss or 0.0)
    assert str(told) == "step 3 loss nan"


@pytest.mark.parametrize(
    "line",
    [
        *("", "loading data", "the lossless codec", "batched", "epoch 1 done", "INFO:root:1/2", "-" * 3000),
        "[Eval][Epoch 1][Iter: 0/195]CELoss: 0.5, loss: 0.5, top1: 0.8, ips: 99.0 images/sec",
        "[06:04:43] ppdet.engine INFO: Eval iter: 100",
        "eval model::  50%|█████     | 50/100 [00:05<00:05, 10.0it/s]",
        "[2026-11-16 06:04:43,073] [    INFO] - eval_loss: 0.5, eval_accuracy: 0.9, epoch: 1.0",
    ],
)
def test_other_lines_tell_none(line: str) -> None:
    assert parse(line) is None


RESULTS = {
    "done auc 0.9424 seconds 27.1": {"auc": 0.9424, "seconds": 27.1},
    "done model in /out/model": {},
    "Saved output/final.pdparams, final acc 0.97": {"acc": 0.97},
    "[Eval][Epoch 20][Avg]CELoss: 0.5, loss: 0.5, top1: 0.8": {
        "Epoch": 20.0,
        "CELoss": 0.5,
        "loss": 0.5,
        "top1": 0.8,
    },
    "best metric, hmean: 0.8, is_float16: False, precision: 0.9": {"hmean": 0.8, "precision": 0.9},
    "Best test bbox ap is 0.375.": {"ap": 0.375},
    "mAP(0.50, 11point) = 78.50%": {"mAP": 78.5},
    "[INFO] - eval_loss: 0.5, eval_accuracy: 0.9, epoch: 1.0": {
        "eval_loss": 0.5,
        "eval_accuracy": 0.9,
        "epoch": 1.0,
    },
}


@pytest.mark.parametrize(("line", "numbers"), RESULTS.items(), ids=RESULTS)
def test_a_result_is_recognised_and_its_numbers_have_names(line: str, numbers: dict[str, float]) -> None:
    assert fed(line, "LAUNCH INFO 2026-11-16 06:04:43,073 Exit code 0", "bye").result == line
    assert metrics(line) == numbers


def fed(*lines: str, every_seconds: float = 1.0) -> Tracker:
    tracker = Tracker()
    for number, line in enumerate(lines):
        tracker.feed(line, number * every_seconds)
    return tracker


def test_progress_is_no_result() -> None:
    assert fed("step 1/2 loss 0.5 acc 0.3", "all done", "done", "done.").result == ""
    assert fed("2026-11-18 05:36:12,292 - DEBUG - sft_loss_ratio: 0.0").result == ""


def test_what_one_line_does_not_tell_another_has_told() -> None:
    tracker = fed("Total optimization steps = 100", "loss: 2, global_step: 20", "saving")
    assert str(tracker.progress) == "step 20/100 loss 2"
    assert tracker.progress is not None
    assert tracker.progress.fraction == 0.2


def test_epochs_count_too() -> None:
    tracker = fed("Epoch 3/10", "step 469/938 - loss: 0.5 - 13ms/step")
    assert tracker.progress is not None
    assert tracker.progress.fraction == 0.25
    tracker.feed("Epoch 4/10", 3)
    assert str(tracker.progress) == "epoch 4/10 step 2814/9380 loss 0.5"
    assert tracker.progress.fraction == 0.3


def test_an_evaluation_of_paddle_model_is_a_result_and_no_progress() -> None:
    lines = ("Epoch 1/2", "step 938/938 - loss: 0.1 - acc: 0.9 - 7ms/step", "Eval begin...")
    evaluated = "step 157/157 - loss: 0.03 - acc: 0.98 - 5ms/step"
    tracker = fed(*lines, evaluated, "Eval samples: 10000", "Epoch 2/2")
    assert tracker.result == evaluated
    assert str(tracker.progress) == "epoch 2/2 step 938/1876 loss 0.1"


def test_a_process_that_ends_in_an_evaluation_does_not_hide_the_next():
    tracker = fed("Epoch 1/2", "step 9/9 - loss: 0.1 - 7ms/step", "Eval begin...")
    tracker.restart()
    tracker.feed("Epoch 2/2", 4)
    tracker.feed("step 1/9 - loss: 0.2 - 7ms/step", 5)
    assert str(tracker.progress) == "epoch 2/2 step 10/18 loss 0.2"


ESTIMATES = {
    "the program's own word": (("step 1/9 eta: 0:01:00",), 0, 60.0),
    "which grows old": (("step 1/9 eta: 0:01:00",), 20, 40.0),
    "but is never past": (("step 1/9 eta: 0:00:30",), 31, None),
    "not of a program that has become silent": (("step 1/9 eta: 1:00:00", "step 2/9 eta: 0:59:59"), 62, None),
    "not of a program that repeats its last line": (("step 2/9 eta: 1:00:00",) * 62, 61, None),
    "of a program with long pauses": (("step 1/9", *[""] * 20, "step 2/9 eta: 0:59:00"), 100, 3461.0),
    "from the speed": (("step 0/10", "step 1/10", "step 2/10"), 2, 8.0),
    "from the speed of all epochs": (("Epoch 1/2", "step 0/2 - loss: 1 -", "step 1/2 - loss: 1 -"), 2, 3.0),
    "not a bar's own": (
        ("Epoch 1/2", "step 0/2 - loss: 1 - ETA: 99s", "step 1/2 - loss: 1 - ETA: 99s"),
        2,
        3.0,
    ),
    "a bar's own, where there is only one": (("  3%| | 10/300 [00:05<02:30, 1.9it/s]",), 0, 150.0),
    "after a restart from the new beginning": (("step 4/10", "step 5/10", "step 0/10", "step 1/10"), 3, 9.0),
    "unknown in a second pass": (("step 8/10", "step 9/10", "step 0/10", "step 1/10"), 3, None),
    "unknown without the number of epochs": (("epoch 1 step 1/10", "epoch 1 step 2/10"), 1, None),
    "a bar's own is not that of all epochs": (("Epoch 1:  3%| | 10/300 [00:05<02:30, 1.9it/s]",), 0, None),
    "unknown at first": (("step 1/10",), 0, None),
    "unknown without a total": (("step 1", "step 2"), 1, None),
    "unknown before the first word": ((), 0, None),
}


@pytest.mark.parametrize(("lines", "now", "seconds"), ESTIMATES.values(), ids=ESTIMATES)
def test_when_training_will_be_over(lines: tuple[str, ...], now: float, seconds: float | None) -> None:
    assert fed(*lines).eta_seconds(now) == pytest.approx(seconds)


def test_the_bar_of_an_epoch_is_a_part_of_the_declared_total() -> None:
    tracker = Tracker()
    tracker.total = 900
    tracker.feed("Epoch 1:  3%| | 10/300 [00:05<02:30, 1.9it/s]", 0.0)
    tracker.feed("Epoch 1:  7%| | 20/300 [00:10<02:25, 1.9it/s]", 5.0)
    assert (tracker.progress.step, tracker.progress.steps) == (20, 900)
    assert tracker.eta_seconds(5.0) == pytest.approx(440.0)


def test_a_long_curve_is_thinned_out_evenly() -> None:
    tracker = fed(*(f"step {number} loss {number}" for number in range(10_000)), "step 10000 loss nan")
    assert MAX_LOSSES / 2 <= len(tracker.losses) < MAX_LOSSES
    assert tracker.losses == sorted(tracker.losses)
    assert tracker.losses[-1] > 9000


def test_what_a_terminal_would_show() -> None:
    assert visible("\x1b[32mtwo\x1b[0m\n") == "two"
    assert visible(" 10%\r 50%\r100%\r\n") == "100%"
    assert len(visible("x" * 10 * MAX_LINE_LENGTH)) == MAX_LINE_LENGTH


PIECES = st.sampled_from(
    [
        *(
            "epoch",
            "step ",
            "loss",
            "loss is: ",
            "[",
            "]",
            "(",
            ")",
            "/",
            ":",
            "=",
            " ",
            "\t",
            "1",
            "9" * 400,
            ".",
        ),
        *(
            "e",
            "1e",
            "nan",
            "1/",
            "1/2 [",
            "00:",
            "<",
            "00:01<",
            "1 day, ",
            "eta: ",
            "a_",
            "\r",
            "\b",
            "\x1b[",
        ),
        *("total training steps ", ",", "eval ", "step 1/2 [", "ips: 1 a/s", "\x00", "轮", "٣"),
    ]
)


def test_a_unit_is_a_short_word() -> None:
    assert parse("step: 1 ips: 2.0 samples/s").throughput_unit == "samples/s"
    assert parse(f"step: 1 ips: 2.0 {'x' * 17}/s").throughput_unit == ""


@given(st.lists(st.tuples(PIECES, st.integers(1, 5000)), max_size=12))
def test_no_line_takes_long_or_ends_in_an_error(pieces: list[tuple[str, int]]) -> None:
    """A pattern that goes back and forth would take minutes here, which is more than a test is given."""
    line = "".join(piece * times for piece, times in pieces)
    told = parse(line)
    tracker = fed(line, line)
    if told is not None:
        assert told.fraction is None or 0 <= told.fraction <= 1
        assert tracker.progress is not None
    metrics(line)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    fed(text).eta_seconds(1.0)


@pytest.mark.parametrize(
    ("losses", "shown"),
    [
        (["inf"], None),
        (["0.5", "inf"], 0.5),
        (["0.5", "inf", "0.4"], 0.4),
        (["0.5", "inf", "0.4", "-inf"], 0.4),
        (["0.5", "inf", "inf"], math.inf),
        (["inf", "-inf"], -math.inf),
    ],
)
@pytest.mark.parametrize("line", ["loss: {loss}", "step {step} loss: {loss}"])
def test_one_infinite_loss_is_an_overflow_and_two_are_a_result(line, losses, shown):
    tracker = Tracker()
    for step, loss in enumerate(losses):
        tracker.feed(line.format(step=step, loss=loss), step)
    assert tracker.progress is not None
    assert tracker.progress.loss == shown


def test_an_infinite_loss_that_is_reported_twice_for_a_step_is_one():
    tracker = Tracker()
    for step in (1, 1, 1):
        tracker.add(Progress(step=step, loss=math.inf), step)
    assert tracker.progress.loss is None
