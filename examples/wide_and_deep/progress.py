"""The lines that training prints.  They are stable: tools and tests parse them.

    epoch 1 step 235/390 loss 0.1432
    epoch 1 done train_auc 0.9211 seconds 4.1 rows/s 24310
    checkpoint pass-00001
    resumed from pass-00001
    stopped at pass-00001-files-0006
    done auc 0.9401 test_rows 99762 seconds 12.3 rows/s 23110

Steps are batches of this worker in this epoch, the loss is the mean since the line before, and rows/s
counts the training rows of all workers.  Every line of these kinds starts at the beginning of the line and
has no prefix.
"""

from __future__ import annotations

from collections.abc import Sequence


def say(line: str) -> None:
    # Flushed, because a pod's output is a pipe, and a person wants the line now.
    print(line, flush=True)


def step_line(epoch: int, step: int, steps: int, loss: float) -> str:
    return f"epoch {epoch} step {step}/{steps} loss {loss:.4f}"


def epoch_line(epoch: int, train_auc: float, seconds: float, rows: int) -> str:
    speed = per_second(rows, seconds)
    return f"epoch {epoch} done train_auc {train_auc:.4f} seconds {seconds:.1f} rows/s {speed}"


def done_line(auc: float, test_rows: int, seconds: float, rows: int, training_seconds: float) -> str:
    """`seconds` since paddle was loaded; `rows` were trained in `training_seconds` of them."""
    speed = per_second(rows, training_seconds)
    return f"done auc {auc:.4f} test_rows {test_rows} seconds {seconds:.1f} rows/s {speed}"


def per_second(rows: int, seconds: float) -> int:
    return round(rows / seconds) if seconds > 0 else 0


def area_under_curve(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The AUC, from how many positive and negative rows got each predicted probability, lowest first.

    It is the chance that a positive row is ranked above a negative one; rows in one bucket count half.
    Without rows of both kinds there is nothing to rank, which is worth as much as guessing: 0.5.
    """
    pairs_won = above = 0.0
    for positives, negatives in zip(reversed(positive), reversed(negative), strict=True):
        pairs_won += negatives * (above + positives / 2)
        above += positives
    pairs = above * sum(negative)
    return pairs_won / pairs if pairs else 0.5
