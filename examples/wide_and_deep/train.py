"""Trains Wide & Deep on the Census-Income survey with parameter servers: `python3 train.py` in every pod.

The same program is a server or a worker, as TRAINING_ROLE says.  The servers hold the parameters; the workers
read the data, fetch parameters, and send gradients back without waiting for each other.

    train.py             this file: settings, and the choice of the role
    worker.py            the training loop
    parameter_server.py  the server, and how it ends
    network.py           the model
    sharing.py           which worker reads which file
    checkpoint.py        where training stands, on disk
    progress.py          the lines that are printed, and the AUC
    trained_model.py     the model for predictions, without servers
    predict.py           predicts with it
    prepare_data.py      makes DATA_DIR

Needs paddlepaddle 2.6.2 or 3.0.0 with protobuf < 7: later wheels come without the parameter server.

Settings, all from the environment:

    DATA_DIR         what prepare_data.py wrote; default: data, beside this file
    DATA_SHARDED     1: DATA_DIR holds only this worker's part of it, as `paddlejob data split` leaves it
    CHECKPOINT_DIR   a directory that all pods share; default: none, no checkpoints
    MODEL_DIR        where worker 0 saves the trained model, for predict.py; default: none, it is not saved
    EPOCHS           default 2
    BATCH_SIZE       rows of one step; default 256
    LEARNING_RATE    default 0.002
    START_TIMEOUT    seconds that a worker waits for the servers; default 300
    STOP_TIMEOUT     seconds that a server waits for the workers to save after SIGTERM; default 25

PaddlePaddle itself reads TRAINING_ROLE, POD_IP, PADDLE_PORT, PADDLE_PSERVERS_IP_PORT_LIST,
PADDLE_TRAINER_ID, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS and PADDLE_WITH_GLOO with its endpoint; a
PaddleJob sets them all.

The exit code is 0 when training is done and 143 when it was stopped by SIGTERM; then the same command resumes
from the last checkpoint.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What one can choose without editing the program."""

    data_dir: Path
    data_sharded: bool
    checkpoint_dir: Path | None
    model_dir: Path | None
    epochs: int
    batch_size: int
    learning_rate: float
    start_timeout_seconds: float
    stop_timeout_seconds: float

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises: SystemExit with one sentence when a value is not the number it has to be."""
        beside_this_file = str(Path(__file__).resolve().parent / "data")
        checkpoint_dir, model_dir = environment.get("CHECKPOINT_DIR"), environment.get("MODEL_DIR")
        return cls(
            data_dir=Path(environment.get("DATA_DIR") or beside_this_file),
            data_sharded=environment.get("DATA_SHARDED") == "1",
            checkpoint_dir=Path(checkpoint_dir) if checkpoint_dir else None,
            model_dir=Path(model_dir) if model_dir else None,
            epochs=int(number(environment, "EPOCHS", 2)),
            batch_size=int(number(environment, "BATCH_SIZE", 256)),
            learning_rate=number(environment, "LEARNING_RATE", 0.002),
            start_timeout_seconds=number(environment, "START_TIMEOUT", 300),
            stop_timeout_seconds=number(environment, "STOP_TIMEOUT", 25),
        )


def number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        sys.exit(f"train.py: {name} is {text!r}, it has to be a number above 0")
    return value


def main() -> None:
    # Paddle reads these when it is imported, so they are set before one of the roles imports it.
    os.environ.setdefault("FLAGS_enable_pir_api", "0")  # 3.0: the servers know only the older program format
    os.environ.setdefault("GLOG_minloglevel", "1")  # progress is what one wants to see, not each remote call
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # several pods share a machine's cores
    settings = Settings.from_environment(os.environ)
    data = settings.data_dir
    if not (data / "manifest.json").is_file():
        sys.exit(f"train.py: DATA_DIR {data} has no manifest.json; run prepare_data.py --out {data}")
    # Imported late: a server's parent process has to stay small and free of paddle's threads.
    is_server = os.environ.get("TRAINING_ROLE") == "PSERVER"
    role = importlib.import_module("parameter_server" if is_server else "worker")
    sys.exit(role.main(settings))


if __name__ == "__main__":
    main()
