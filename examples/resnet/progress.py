"""The lines that training prints.  They are stable: tools and tests parse them.

    epoch 1 step 20/62 loss 0.8432
    epoch 1 done accuracy 0.9320 seconds 5.1 images/s 780
    checkpoint pass-00001
    resumed from pass-00001
    stopped at pass-00001-images-01280
    weights 5685.8096 on 2 workers
    done accuracy 0.9610 test_images 1000 seconds 22.4 images/s 774

A step is one batch on every worker, the loss is this worker's, and images/s counts the training images of all
workers.  A pass is a complete epoch; pass-00001-images-01280 is 1,280 images into the second.  Every line of
these kinds starts at the beginning of the line and has no prefix.
"""

from __future__ import annotations


def say(line: str) -> None:
    # Flushed, because a pod's output is a pipe, and a person wants the line now.
    print(line, flush=True)


def step_line(epoch: int, step: int, steps: int, loss: float) -> str:
    return f"epoch {epoch} step {step}/{steps} loss {loss:.4f}"


def epoch_line(epoch: int, accuracy: float, seconds: float, images: int) -> str:
    speed = per_second(images, seconds)
    return f"epoch {epoch} done accuracy {accuracy:.4f} seconds {seconds:.1f} images/s {speed}"


def done_line(accuracy: float, test_images: int, seconds: float, images: int, training_seconds: float) -> str:
    """`seconds` since paddle was loaded; `images` were trained in `training_seconds` of them."""
    speed = per_second(images, training_seconds)
    return f"done accuracy {accuracy:.4f} test_images {test_images} seconds {seconds:.1f} images/s {speed}"


def per_second(images: int, seconds: float) -> int:
    return round(images / seconds) if seconds > 0 else 0
