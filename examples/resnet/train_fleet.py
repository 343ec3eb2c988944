"""Trains a small ResNet on handwritten digits with one or more workers that share every step (data parallel).

    python3 train_fleet.py                                  in every pod, or alone on a laptop
    python3 -m paddle.distributed.launch train_fleet.py     the same, through paddle's launcher

Each worker computes the gradients of its own part of a batch; the gradients are averaged over all workers, so
that all of them hold the same weights at all times.  On CPUs they talk through gloo, on GPUs through nccl.

    train_fleet.py   this file: settings, the data and the training loop
    network.py       the model
    progress.py      the lines that are printed
    prepare_data.py  makes DATA_DIR

Works with paddlepaddle 2.6.2 to 3.3.1.  Settings, all from the environment:

    DATA_DIR         what prepare_data.py wrote; default: data, beside this file; downloaded if it is empty
    CHECKPOINT_DIR   a directory that all pods share; default: none, no checkpoints
    EPOCHS           default 4
    BATCH_SIZE       images of one step of one worker; default 32
    LEARNING_RATE    at the start, it then falls along a cosine; default 0.005

PaddlePaddle itself reads PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS, PADDLE_MASTER and
PADDLE_CURRENT_ENDPOINT; a PaddleJob sets them all.

The exit code is 0 when training is done and 143 when it was stopped by SIGTERM; then the same command resumes
from the last checkpoint, also with another number of workers.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

# Read by paddle when it is imported: progress is what one wants to see, and pods share a machine's cores.
os.environ.setdefault("GLOG_minloglevel", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", module="paddle")

import network
import numpy as np
import paddle
import prepare_data
import progress
from paddle import distributed
from paddle.nn import functional
from progress import say

STARTED = time.monotonic()
TERMINATED = 128 + signal.SIGTERM
LINE_EVERY_STEPS = 20
CHECKPOINT = "last.pdparams"


@dataclass(frozen=True)
class Settings:
    """What one can choose without editing the program."""

    data_dir: Path
    checkpoint_dir: Path | None
    epochs: int
    batch_size: int
    learning_rate: float

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises: SystemExit with one sentence when a value is not the number it has to be."""
        beside_this_file = str(Path(__file__).resolve().parent / "data")
        checkpoint_dir = environment.get("CHECKPOINT_DIR")
        return cls(
            data_dir=Path(environment.get("DATA_DIR") or beside_this_file),
            checkpoint_dir=Path(checkpoint_dir) if checkpoint_dir else None,
            epochs=int(number(environment, "EPOCHS", 4)),
            batch_size=int(number(environment, "BATCH_SIZE", 32)),
            learning_rate=number(environment, "LEARNING_RATE", 0.005),
        )


def number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        sys.exit(f"train_fleet.py: {name} is {text!r}, it has to be a number above 0")
    return value


class Images(NamedTuple):
    """Pixels as the network wants them, and the digit of each image."""

    pixels: Any
    labels: Any

    @classmethod
    def read(cls, directory: Path, part: str) -> Images:
        """Reads `part` (train or t10k) of the MNIST files in `directory`."""
        images, labels = directory / f"{part}-images-idx3-ubyte", directory / f"{part}-labels-idx1-ubyte"
        if not (images.is_file() and labels.is_file()):
            fetch(directory)
        grey = np.frombuffer(images.read_bytes(), "uint8", offset=16).reshape(-1, 1, 28, 28)
        pixels = (grey.astype("float32") / 255 - 0.13) / 0.31  # mean and deviation of MNIST
        return cls(pixels, np.frombuffer(labels.read_bytes(), "uint8", offset=8).astype("int64"))


def fetch(directory: Path) -> None:
    """Downloads the data, as every pod without data does when it starts."""
    say(f"no data in {directory}, downloading it")
    try:
        # Several processes may do it at once: files are replaced as a whole.
        prepare_data.prepare(directory)
    except (prepare_data.PrepareError, OSError) as error:
        sys.exit(f"train_fleet.py: DATA_DIR {directory} has no data: {error}")


@dataclass(frozen=True)
class Position:
    """How far the whole job is.  Images, not steps: a job may resume with another number of workers."""

    epochs_done: int = 0
    images_done: int = 0

    def __str__(self) -> str:
        completed = f"pass-{self.epochs_done:05d}"
        return f"{completed}-images-{self.images_done:05d}" if self.images_done else completed


class Job:
    """One worker of the running job."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rank, self.workers = join_workers()
        self.stop_requested = False  # this pod got SIGTERM
        self.stopping = False  # all workers know that one of them did
        self.images_trained = 0
        self.training_seconds = 0.0
        self.train_set, self.test_set = (Images.read(settings.data_dir, part) for part in ("train", "t10k"))
        self.network = network.build()
        # Averages the gradients of all workers while they are computed; alone there is nothing to average.
        self.model = paddle.DataParallel(self.network) if self.workers > 1 else self.network
        self.optimizer = paddle.optimizer.AdamW(
            settings.learning_rate, parameters=self.network.parameters(), weight_decay=1e-4
        )

    def run(self) -> int:
        """Trains, resuming where a checkpoint says; returns the exit code of this pod."""
        # Installed after the import of paddle, which has a handler of its own.
        signal.signal(signal.SIGTERM, self.on_sigterm)
        position = self.resume()
        while position.epochs_done < self.settings.epochs and not self.stopping:
            position = self.train_epoch(position)
            self.save(position)
        if position.epochs_done < self.settings.epochs:
            say(f"stopped at {position}")
            return TERMINATED
        self.report()
        return 0

    def on_sigterm(self, *_: object) -> None:
        self.stop_requested = True

    # --- one epoch

    def train_epoch(self, start: Position) -> Position:
        """Trains from `start` to the end of its epoch, or to the step at which a worker was asked to stop."""
        epoch, done = start.epochs_done, start.images_done
        batch, total = self.settings.batch_size * self.workers, len(self.train_set.labels)
        order = np.array(random.Random(epoch).sample(range(total), total))  # the same on every worker
        began = time.monotonic()
        while done + batch <= total:
            self.optimizer.set_lr(self.learning_rate(epoch + done / total))
            loss = self.train_step(order[done : done + batch][self.rank :: self.workers])
            done += batch
            if done // batch % LINE_EVERY_STEPS == 0 or done + batch > total:
                say(progress.step_line(epoch + 1, done // batch, total // batch, loss))
            self.stopping = self.anyone_got_sigterm()
            if self.stopping and done + batch <= total:
                return Position(epoch, done)
        self.account(epoch + 1, done - start.images_done, time.monotonic() - began)
        return Position(epoch + 1)

    def train_step(self, chosen: Any) -> float:
        pixels, labels = (paddle.to_tensor(values[chosen]) for values in self.train_set)
        loss = functional.cross_entropy(self.model(pixels), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        return float(loss.item())

    def learning_rate(self, epochs: float) -> float:
        """Half a cosine from the start of training to its end, whatever the number of workers."""
        return self.settings.learning_rate * (1 + math.cos(math.pi * epochs / self.settings.epochs)) / 2

    def account(self, epoch: int, images: int, seconds: float) -> None:
        self.images_trained += images
        self.training_seconds += seconds
        say(progress.epoch_line(epoch, self.accuracy(), seconds, images))

    # --- the result

    def accuracy(self) -> float:
        """On the test images, by worker 0 alone: it is its running means of batch norm that are saved."""
        correct = self.count_correct() if self.rank == 0 else 0
        return self.combined(correct, distributed.ReduceOp.SUM) / len(self.test_set.labels)

    def count_correct(self) -> int:
        self.network.eval()
        with paddle.no_grad():
            parts = np.array_split(np.arange(len(self.test_set.labels)), 8)
            guesses = [
                self.network(paddle.to_tensor(self.test_set.pixels[part])).argmax(1).numpy() for part in parts
            ]
        self.network.train()
        return int((np.concatenate(guesses) == self.test_set.labels).sum())

    def report(self) -> None:
        """Raises: SystemExit when the workers ended with different weights, which must never happen."""
        # Only what is trained: the running means of batch norm are each worker's own.
        trained = [weight for weight in self.network.parameters() if not weight.stop_gradient]
        weights = sum(float(weight.abs().sum().item()) for weight in trained)
        low, high = (
            self.combined(weights, how) for how in (distributed.ReduceOp.MIN, distributed.ReduceOp.MAX)
        )
        if low != high:
            sys.exit(f"train_fleet.py: the workers' weights differ, their sums lie between {low} and {high}")
        say(f"weights {weights:.4f} on {self.workers} workers")
        accuracy, seconds = self.accuracy(), time.monotonic() - STARTED
        test_images = len(self.test_set.labels)
        say(progress.done_line(accuracy, test_images, seconds, self.images_trained, self.training_seconds))

    # --- checkpoints

    def resume(self) -> Position:
        """Every worker reads the same file, so all start from the same weights."""
        path = self.settings.checkpoint_dir / CHECKPOINT if self.settings.checkpoint_dir else None
        if path is None or not path.is_file():
            return Position()
        saved = paddle.load(str(path))
        self.network.set_state_dict(saved["network"])
        self.optimizer.set_state_dict(saved["optimizer"])
        position = Position(**saved["position"])
        say(f"resumed from {position}")
        return position

    def save(self, position: Position) -> None:
        """Worker 0 writes for all; renamed when whole, so that a crash leaves the checkpoint before."""
        directory = self.settings.checkpoint_dir
        if directory is None or self.rank != 0:
            return
        directory.mkdir(parents=True, exist_ok=True)
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        paddle.save({**state, "position": asdict(position)}, str(directory / f".{CHECKPOINT}"))
        (directory / f".{CHECKPOINT}").replace(directory / CHECKPOINT)
        say(f"checkpoint {position}")

    # --- the other workers

    def anyone_got_sigterm(self) -> bool:
        """All workers stop after the same step: one that waits for gradients of a gone worker crashes."""
        return self.combined(float(self.stop_requested), distributed.ReduceOp.MAX) > 0

    def combined(self, value: float, how: Any) -> float:
        if self.workers == 1:
            return value
        tensor = paddle.to_tensor([float(value)], dtype="float64")
        distributed.all_reduce(tensor, op=how)
        return float(tensor.item())


def join_workers() -> tuple[int, int]:
    """Connects this worker with the others; returns its rank and how many there are."""
    has_gpu = paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
    paddle.set_device("gpu" if has_gpu else "cpu")
    paddle.seed(2024)  # the same first weights on every worker
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) == 1:
        return 0, 1
    if not has_gpu:
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
    if "POD_IP" in os.environ:  # operators before this one left it to the program
        os.environ.setdefault(
            "PADDLE_CURRENT_ENDPOINT", f"{os.environ['POD_IP']}:{os.environ.get('PADDLE_PORT', '')}"
        )
    distributed.init_parallel_env()
    return distributed.get_rank(), distributed.get_world_size()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))  # until there is something to save
    job = Job(Settings.from_environment(os.environ))
    say(f"worker {job.rank} of {job.workers}, paddle {paddle.__version__}")
    sys.exit(job.run())


if __name__ == "__main__":
    main()
