"""Where training stands, on disk.

    CHECKPOINT_DIR/
      pass-00001/                 after epoch 1; the servers write their parts of the parameters into it
      pass-00001-files-0006/      stopped in epoch 2, when six of its files had been read
        done                      written last, by worker 0: without it the directory does not count

The names sort in the order of training, so the last one with a `done` file is where to go on.
The servers write the parameters, each its own part, so the directory has to be shared by all pods.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

KEPT = 3  # enough to step back from a bad epoch without filling the disk


class CheckpointError(Exception):
    """One sentence about a checkpoint that cannot be used."""


@dataclass(frozen=True)
class Position:
    """How far the whole job is.

    Files, not steps: each worker takes every Nth file, and a job may resume with another number of workers.
    """

    epochs_done: int = 0
    files_done: int = 0

    @property
    def name(self) -> str:
        completed = f"pass-{self.epochs_done:05d}"
        return f"{completed}-files-{self.files_done:04d}" if self.files_done else completed


def finished(directory: Path) -> list[Path]:
    """The complete checkpoints, oldest first."""
    return sorted((path.parent for path in directory.glob("pass-*/done")), key=lambda path: path.name)


def latest(directory: Path, servers: int) -> tuple[Path, Position] | None:
    """The checkpoint to resume from, if there is one.

    Raises: CheckpointError when another number of servers wrote it; each holds one part of the parameters.
    """
    complete = finished(directory)
    if not complete:
        return None
    written = json.loads((complete[-1] / "done").read_text())
    if written["servers"] != servers:
        raise CheckpointError(
            f"{complete[-1]} was written by {written['servers']} servers and this job has {servers}; "
            "run it with the same number, or choose another CHECKPOINT_DIR"
        )
    return complete[-1], Position(written["epochs_done"], written["files_done"])


def mark_done(path: Path, position: Position, servers: int) -> None:
    """Declares the checkpoint complete, then removes those that are no longer needed."""
    scratch = path / ".done"
    scratch.write_text(json.dumps({**asdict(position), "servers": servers}) + "\n")
    scratch.replace(path / "done")
    for old in finished(path.parent)[:-KEPT]:
        (old / "done").unlink()  # first, so that a half removed checkpoint does not count
        shutil.rmtree(old)
