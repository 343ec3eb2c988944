"""Trains with real Paddle in every worker of a job, and gets into the trouble that a file asks for.

Worker 0 evaluates and saves for all, once and slowly. A step is a good deal of Python and a little of Paddle.
A worker whose file $TROUBLE is there takes a lock twice.
"""

from __future__ import annotations

import io
import os
import threading
import time
from typing import Any

os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle
from paddle import distributed

EVALUATE_AT, SAVE_AT = 10, 15
SLOW_SECONDS = float(os.environ.get("SLOW_SECONDS", "0"))
WORK = int(os.environ.get("WORK", "5"))
TROUBLE = os.environ.get("TROUBLE", "/tmp/trouble")


class SlowDisk(io.BytesIO):
    """A file whose first write takes long."""

    def write(self, data: Any) -> int:
        if not self.tell():
            time.sleep(SLOW_SECONDS)
        return super().write(data)


def evaluate(network: Any) -> None:
    network.eval()
    time.sleep(SLOW_SECONDS)
    network.train()


def read_data() -> None:
    """Work for a while, as who decodes images does."""
    for _ in range(WORK):
        sum(range(200_000))


def take_a_lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def main() -> None:
    paddle.seed(1)
    distributed.init_parallel_env()
    network = paddle.nn.Linear(64, 1)
    model = paddle.DataParallel(network)
    optimizer = paddle.optimizer.SGD(0.001, parameters=network.parameters())
    inputs = paddle.rand([32, 64])
    step = 0
    while True:
        step += 1
        read_data()
        loss = (model(inputs) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if os.path.exists(TROUBLE):  # noqa: PTH110
            take_a_lock_twice()
        distributed.all_reduce(paddle.to_tensor([1.0]))
        if distributed.get_rank() == 0 and step == EVALUATE_AT:
            evaluate(network)
        if distributed.get_rank() == 0 and step == SAVE_AT:
            paddle.save(network.state_dict(), SlowDisk())


if __name__ == "__main__":
    main()
