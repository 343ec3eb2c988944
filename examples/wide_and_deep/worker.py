"""The worker's side: the training loop.

An epoch is a shuffled list of files, and the workers take turns: with two workers, worker 0 reads the first,
the third and so on, worker 1 the others.  Between two files a worker is free to print, to save and to notice
SIGTERM; while it reads a file it is inside paddle's C++ loop, which is what makes it fast.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import checkpoint
import network
import numpy as np
import paddle
import progress
import sharing
import trained_model
from checkpoint import Position
from paddle.distributed import fleet
from progress import say

if TYPE_CHECKING:
    from train import Settings

STARTED = time.monotonic()
TERMINATED = 128 + signal.SIGTERM
HTTP_RENDEZVOUS = "3"  # of PADDLE_GLOO_RENDEZVOUS


def main(settings: Settings) -> int:
    """Trains, resuming where a checkpoint says; returns the exit code of this pod."""
    # Installed after the import of paddle, which has a handler of its own.  Until there is something to save,
    # SIGTERM simply ends the program.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    wait_for_servers(settings.start_timeout_seconds, meeting_only=True)
    join_job()
    wait_for_servers(settings.start_timeout_seconds)
    model = build_network(settings)
    job = Job(settings, model)
    say(f"worker {job.rank} of {job.workers} with {job.servers} servers, paddle {paddle.__version__}")
    try:
        return job.run()
    except checkpoint.CheckpointError as error:
        sys.exit(f"train.py: {error}")


def join_job() -> None:
    """Finds this pod's place in the job from its environment; with gloo on, the workers meet here."""
    paddle.enable_static()
    paddle.seed(2024)
    with quiet():
        fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))


def build_network(settings: Settings) -> network.Network:
    """The graph, split by fleet into the part that this pod runs and the part on the servers."""
    manifest = read_manifest(settings)
    model = network.build(manifest["numbers"], manifest["categories"], manifest["vocabulary"])
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    table = f"table_parameters.{network.EMBEDDING_TABLE}"
    # The default of 1000 shards is 1000 small files, and ten seconds, for each checkpoint.
    strategy.sparse_table_configs = {
        network.EMBEDDING_TABLE: {
            f"{table}.table_class": "MemorySparseTable",
            f"{table}.shard_num": 8,
            f"{table}.accessor.accessor_class": "SparseAccessor",
        }
    }
    optimizer = paddle.optimizer.Adam(settings.learning_rate)
    with quiet():
        fleet.distributed_optimizer(optimizer, strategy).minimize(model.loss)
    return model


def read_manifest(settings: Settings) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((settings.data_dir / "manifest.json").read_text())
    return manifest


class Job:
    """One worker of the running job."""

    def __init__(self, settings: Settings, model: network.Network) -> None:
        self.settings = settings
        self.model = model
        self.manifest = read_manifest(settings)
        self.rank, self.workers, self.servers = fleet.worker_index(), fleet.worker_num(), fleet.server_num()
        self.train_rows: dict[str, int] = self.manifest["train"]
        if settings.data_sharded:
            self.train_rows = sharing.own_rows(settings.data_dir)
        self.stop_requested = False  # this pod got SIGTERM
        self.stopping = False  # all workers know that one of them did
        self.rows_trained = 0
        self.training_seconds = 0.0
        self.program = paddle.static.default_main_program()
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        with quiet():
            self.executor.run(paddle.static.default_startup_program())
            fleet.init_worker()

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self.on_sigterm)
        position = self.resume()
        while position.epochs_done < self.settings.epochs and not self.stopping:
            position = self.train_epoch(position)
            self.save(position)
        finished = position.epochs_done >= self.settings.epochs
        if finished:
            self.save_model()
            self.report()
        else:
            say(f"stopped at {position.name}")
        self.leave()
        return 0 if finished else TERMINATED

    def on_sigterm(self, *_: object) -> None:
        self.stop_requested = True

    # --- one epoch

    def train_epoch(self, start: Position) -> Position:
        """Trains from `start` to the end of its epoch, or to the file at which a worker was asked to stop."""
        epoch = start.epochs_done + 1
        rounds = self.rounds(epoch)
        first = start.files_done // self.workers
        steps = [self.steps_of(name) for name in rounds]
        began, rows = time.monotonic(), 0
        self.clear(self.model.positive_histogram, self.model.negative_histogram)
        for index, name in enumerate(rounds[first:], first):
            if name:
                rows += self.train_file(name)
                say(progress.step_line(epoch, sum(steps[: index + 1]), sum(steps), self.mean_loss()))
            self.stopping = self.anyone_got_sigterm()
            if self.stopping and index + 1 < len(rounds):
                return Position(start.epochs_done, (index + 1) * self.workers)
        self.account(epoch, rows, time.monotonic() - began)
        return Position(epoch)

    def rounds(self, epoch: int) -> list[str | None]:
        """The files of this worker in this epoch; None where others have one more: they meet after each."""
        rank, workers = (0, 1) if self.settings.data_sharded else (self.rank, self.workers)
        mine: list[str | None] = [*sharing.deal(list(self.train_rows), epoch, rank, workers)]
        longest = int(self.combined([len(mine)], "max")[0])
        return mine + [None] * (longest - len(mine))

    def train_file(self, name: str) -> int:
        self.clear(self.model.loss_sum, self.model.batches)
        with quiet():
            self.executor.train_from_dataset(self.program, self.dataset([name]), thread=1)
        return self.train_rows[name]

    def mean_loss(self) -> float:
        return self.read(self.model.loss_sum)[0] / self.read(self.model.batches)[0]

    def account(self, epoch: int, rows: int, seconds: float) -> None:
        everyones_rows, auc = int(self.sum_of([rows])[0]), self.auc()
        self.rows_trained += everyones_rows
        self.training_seconds += seconds
        say(progress.epoch_line(epoch, auc, seconds, everyones_rows))

    def steps_of(self, name: str | None) -> int:
        return math.ceil(self.train_rows[name] / self.settings.batch_size) if name else 0

    # --- the end

    def report(self) -> None:
        """Tests the trained model; the workers share the test files and add up what they counted."""
        self.clear(self.model.positive_histogram, self.model.negative_histogram)
        mine = list(self.manifest["test"])[self.rank :: self.workers]
        if mine:
            with quiet():
                self.executor.infer_from_dataset(self.program, self.dataset(mine), thread=1)
        test_rows = int(self.sum_of([sum(self.manifest["test"][name] for name in mine)])[0])
        seconds = time.monotonic() - STARTED
        say(progress.done_line(self.auc(), test_rows, seconds, self.rows_trained, self.training_seconds))

    def save_model(self) -> None:
        """Worker 0 saves the model for predictions; the others wait for it in the report."""
        directory = self.settings.model_dir
        if directory is None or self.rank != 0:
            return
        sizes = (self.manifest[name] for name in ("numbers", "categories", "vocabulary"))
        with quiet():
            trained_model.save(self.executor, self.model, directory, *sizes)
        say(f"model {directory}")

    def leave(self) -> None:
        """All workers leave together; the servers stay until the job's controller ends them."""
        fleet.util.barrier()
        with quiet():
            fleet.stop_worker()

    # --- checkpoints

    def resume(self) -> Position:
        directory = self.settings.checkpoint_dir
        found = checkpoint.latest(directory, self.servers) if directory else None
        if found is None:
            return Position()
        path, position = found
        with quiet():
            fleet.load_model(str(path), mode=0)  # by every worker: it meets the others inside
        say(f"resumed from {path.name}")
        return position

    def save(self, position: Position) -> None:
        directory = self.settings.checkpoint_dir
        if directory is None:
            return
        path = directory / position.name
        with quiet():
            fleet.save_persistables(self.executor, str(path))  # by every worker: it meets the others inside
        if self.rank == 0:
            checkpoint.mark_done(path, position, self.servers)
            say(f"checkpoint {path.name}")

    # --- paddle's variables and the other workers

    def dataset(self, names: list[str]) -> Any:
        dataset = paddle.distributed.QueueDataset()
        dataset.init(
            batch_size=self.settings.batch_size,
            thread_num=1,
            use_var=self.model.inputs,
            pipe_command="cat",  # the files are in paddle's own text format already
            input_type=0,
        )
        dataset.set_filelist([str(self.settings.data_dir / name) for name in names])
        return dataset

    def auc(self) -> float:
        """Of the rows of all workers since the histograms were cleared."""
        histograms = (self.model.positive_histogram, self.model.negative_histogram)
        positive, negative = (self.sum_of(self.read(variable)) for variable in histograms)
        auc: float = progress.area_under_curve(positive, negative)
        return auc

    def read(self, variable: Any) -> list[float]:
        tensor = paddle.static.global_scope().find_var(variable.name).get_tensor()
        values: list[float] = np.array(tensor).reshape(-1).astype("float64").tolist()
        return values

    def clear(self, *variables: Any) -> None:
        for variable in variables:
            tensor = paddle.static.global_scope().find_var(variable.name).get_tensor()
            tensor.set(np.zeros_like(np.array(tensor)), paddle.CPUPlace())

    def anyone_got_sigterm(self) -> bool:
        """The workers agree on it, because a checkpoint is saved by all of them or by none."""
        return self.combined([float(self.stop_requested)], "max")[0] > 0

    def sum_of(self, values: list[float]) -> list[float]:
        return self.combined(values, "sum")

    def combined(self, values: list[float], how: str) -> list[float]:
        """Over all workers when gloo connects them; without it (withGloo: 0) each worker is on its own."""
        if not with_gloo():
            return values
        result: list[float] = np.asarray(fleet.util.all_reduce(np.array(values, "float64"), how)).tolist()
        return result


def wait_for_servers(timeout_seconds: float, *, meeting_only: bool = False) -> None:
    """Waits until the servers accept connections: paddle 3.0 gives up instead of waiting.

    With gloo over HTTP there is a step before: ps-0 first opens the rendezvous of the workers, and its own
    port only after they met.
    """
    if meeting_only and (not with_gloo() or os.environ["PADDLE_GLOO_RENDEZVOUS"] != HTTP_RENDEZVOUS):
        return
    endpoints = os.environ["PADDLE_GLOO_HTTP_ENDPOINT" if meeting_only else "PADDLE_PSERVERS_IP_PORT_LIST"]
    deadline = time.monotonic() + timeout_seconds
    for endpoint in endpoints.split(","):
        host, _, port = endpoint.rpartition(":")
        while not answers(host, int(port)):
            if time.monotonic() > deadline:
                sys.exit(f"train.py: no server answered at {endpoint} within {timeout_seconds:g} seconds")
            time.sleep(0.2)


def with_gloo() -> bool:
    return os.environ.get("PADDLE_WITH_GLOO", "0") != "0"


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what paddle prints about its own work out of the log; errors go to stderr as ever."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
